//! One live connection: a client, the PackageInstalls and Apps behind it, and whether the server answers.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::future::join;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Resource, ResourceExt, core::NamespaceResourceScope, runtime::watcher};
use sluice_core::{
    cache::{FollowedStore, compact::Packer},
    decode::Item,
    proof::Summary,
    protocol::{self, Contact},
    workload::{FirstSeenRuns, Weight},
};
use sluice_crds::{
    foreign::{App, PackageInstall},
    run::FirstSeenRun,
};
use tokio::time::timeout_at;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::{pace::Pace, server::Server};
use crate::{
    cache::{
        store::Store,
        watch::{Followed, Presence, Seen, follow},
    },
    clock::{clock, now},
    kube_client::{fence::Fence, responses::failure},
};

/// How long a pass waits for the first lists of a connection.
const FIRST_LISTS: Duration = Duration::from_millis(250);

/// About what each store may take, in bytes. Real ones take some hundred KiB.
pub(super) const LARGEST_STORE: usize = 16 * 1024 * 1024;

/// The number of the next connection. None has the number 0.
static OPENED: AtomicU64 = AtomicU64::new(1);

/// What all connections pack their objects with.
#[derive(Debug, Default)]
pub(super) struct Packers {
    installs: Arc<Packer<PackageInstall>>,
    apps: Arc<Packer<App>>,
}

/// One live connection. Dropping it ends its watches.
pub struct Remote {
    /// Client of the workload API server.
    pub client: Client,
    /// PackageInstalls of the system namespace.
    pub installs: Store<PackageInstall>,
    /// Apps of the system namespace.
    pub apps: Store<App>,
    /// No two connections of a process have the same.
    pub number: u64,
    /// Digest of the kubeconfig that the connection was made of.
    pub digest: String,
    opened: Instant,
    server: Server,
    /// The tasks behind the stores.
    watches: [AbortOnDropHandle<()>; 2],
}

impl Remote {
    /// Watches the server behind `client`; nothing is written to it while `fence` is closed.
    pub(super) fn open(
        client: &Client,
        fence: &Fence,
        namespace: &str,
        digest: String,
        pace: Pace,
        packers: &Packers,
    ) -> Self {
        let server = Server::new(pace);
        let listening = server.listen(client.clone());
        let (installs, first) = watch(
            &server,
            Api::namespaced(listening.clone(), namespace),
            &packers.installs,
            Summary::of_install,
            |_, _| {},
        );
        let (apps, second) = watch(
            &server,
            Api::namespaced(listening, namespace),
            &packers.apps,
            Summary::of_app,
            note_run,
        );
        Self {
            client: fence.guard(server.guard(client.clone())),
            installs,
            apps,
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            opened: now(),
            digest,
            server,
            watches: [first, second],
        }
    }

    /// The run that the App of this name showed when its present generation was first seen by the watch.
    #[must_use]
    pub fn first_seen_run(&self, app: &str) -> Option<FirstSeenRun> {
        self.server.known().runs.get(app).cloned()
    }

    /// Whether each store was filled. Before that, stores do not show all objects.
    #[must_use]
    pub fn is_filled(&self) -> bool {
        self.installs.is_filled() && self.apps.is_filled()
    }

    /// Waits until each store was filled, if the connection was opened a moment ago. A pass that begins earlier finds nothing
    /// installed.
    pub async fn first_lists(&self) {
        // Without them the pass goes on: what it does not see it does not take for proven.
        let _late = timeout_at((self.opened + FIRST_LISTS).into(), self.filled()).await;
    }

    async fn filled(&self) {
        join(self.installs.filled(), self.apps.filled()).await;
    }

    /// How the server answers. It is asked only where that is not known.
    pub async fn contact(&self) -> Contact {
        // A store that is not followed any more shows what was there then.
        if self.watches.iter().any(AbortOnDropHandle::is_finished) {
            return Contact::Ended;
        }
        let known = self.server.known().contact(clock());
        let asking = match known {
            Ok(contact) => return contact,
            Err(asking) => asking,
        };
        let uid = self.read_uid().await;
        let uid = uid.map_err(|error| failure(protocol::Server::Workload, &error));
        self.server.known().asked(&asking, uid, clock())
    }

    /// UID of namespace `kube-system`, asked of the server now: it says whose data the server serves.
    pub(super) async fn read_uid(&self) -> kube::Result<String> {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        let namespace = namespaces.get_metadata("kube-system").await?;
        Ok(namespace.uid().unwrap_or_default())
    }
}

/// A store of what `server` shows, and the task behind it.
fn watch<K>(
    server: &Server,
    api: Api<Item<K>>,
    packer: &Arc<Packer<K>>,
    summary: fn(&K) -> Option<Summary>,
    note: impl Fn(&mut FirstSeenRuns, &Seen<'_, K>) + Send + 'static,
) -> (Store<K>, AbortOnDropHandle<()>)
where
    K: Followed + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let (server, followed) = (server.clone(), FollowedStore::of_workload(LARGEST_STORE));
    let followed = Arc::new(Mutex::new(followed));
    let (store, run) = follow(
        api,
        watcher::Config::default(),
        Arc::clone(packer),
        followed,
        move |seen| {
            let kind = K::kind(&());
            if let Seen::GivenUp(why) = seen {
                warn!(%kind, %why, "Emptied a store of a workload cluster");
            }
            note(&mut server.known().runs, seen);
            let weight = match seen {
                Seen::Touched(object) => Weight::of(summary(object)),
                Seen::Unchanged => Weight::Progress,
                _ => Weight::Proof,
            };
            server.saw(&kind, seen.sign(), weight);
        },
    );
    (store, AbortOnDropHandle::new(tokio::spawn(run)))
}

fn note_run(runs: &mut FirstSeenRuns, seen: &Seen<'_, App>) {
    seen.each(|app, presence| match presence {
        Presence::There => runs.note(app),
        Presence::Gone => runs.forget(app),
    });
    if let Seen::GivenUp(_) = seen {
        runs.clear();
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use sluice_core::limits::GivenUp;

    use super::*;

    impl Remote {
        /// As if the watches had found the server silent since then.
        pub(crate) fn silent_since(&self, then: Timestamp) {
            self.server.known().silent_since = Some(then);
        }

        /// Why a store had to be emptied that is not filled again yet.
        pub(crate) fn given_up(&self) -> Option<GivenUp> {
            self.server.known().given_up()
        }
    }
}
