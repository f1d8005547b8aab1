//! Connection to a workload cluster: client, cached PackageInstalls and Apps, and reachability of the server.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use futures::future::join;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Resource, ResourceExt, core::NamespaceResourceScope, runtime::watcher};
use sluice_core::{
    cache::FollowedStore,
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
        rollbacks::Restarts,
        store::Store,
        watch::{Followed, Presence, Seen, follow},
    },
    clock::{clock, now},
    kube_client::{fence::Fence, middleware::Transport, responses::failure},
};

/// Time that a reconcile waits for the first lists of a connection.
const FIRST_LISTS: Duration = Duration::from_millis(250);

/// Approximate maximum size of each store, in bytes. Real stores have some hundred KiB.
pub(super) const LARGEST_STORE: usize = 16 * 1024 * 1024;

/// Number of the next connection. No connection has the number 0.
static OPENED: AtomicU64 = AtomicU64::new(1);

/// Connection to a workload cluster. Dropping it ends its watches.
pub struct Remote {
    /// Client of the workload API server.
    pub client: Client,
    /// PackageInstalls of the system namespace.
    pub installs: Store<PackageInstall>,
    /// Apps of the system namespace.
    pub apps: Store<App>,
    /// Number that is unique among the connections of a process.
    pub number: u64,
    /// Digest of the kubeconfig of the connection.
    pub digest: String,
    opened: Instant,
    server: Server,
    /// Transport of probes.
    probing: Transport,
    /// Tasks that keep the stores up to date.
    watches: [AbortOnDropHandle<()>; 2],
}

impl Remote {
    /// Opens the watches of the server behind `transport`; no write is sent while `fence` is closed.
    pub(super) fn open(
        transport: &Transport,
        fence: &Fence,
        namespace: &str,
        digest: String,
        pace: Pace,
    ) -> Self {
        let server = Server::new(pace);
        let listening = server.listen(transport.clone()).into_client();
        let (installs, first) = watch(
            &server,
            Api::namespaced(listening.clone(), namespace),
            Summary::of_install,
            |_, _| {},
        );
        let (apps, second) = watch(
            &server,
            Api::namespaced(listening, namespace),
            Summary::of_app,
            note_run,
        );
        Self {
            client: fence.guard(server.guard(transport.clone())).into_client(),
            installs,
            apps,
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            opened: now(),
            digest,
            server,
            probing: fence.guard(transport.clone()),
            watches: [first, second],
        }
    }

    /// Returns a client for a probe. It sends requests also while the server does not respond, and their outcomes do not count for the
    /// reachability.
    #[must_use]
    pub fn probing(&self) -> Client {
        self.probing.clone().into_client()
    }

    /// Returns the run that the App of this name showed when the watch first observed its present generation.
    #[must_use]
    pub fn first_seen_run(&self, app: &str) -> Option<FirstSeenRun> {
        self.server.known().runs.get(app).cloned()
    }

    /// Returns whether each store is filled. Before that, stores do not show all objects.
    #[must_use]
    pub fn is_filled(&self) -> bool {
        self.installs.is_filled() && self.apps.is_filled()
    }

    /// Waits until each store is filled, if the connection was opened a moment ago. An earlier reconcile would find nothing installed.
    pub async fn first_lists(&self) {
        // The reconcile continues without them: it treats no unobserved object as proven.
        let _late = timeout_at((self.opened + FIRST_LISTS).into(), self.filled()).await;
    }

    async fn filled(&self) {
        join(self.installs.filled(), self.apps.filled()).await;
    }

    /// Returns the reachability of the server. Sends a request only where it is unknown.
    pub async fn contact(&self) -> Contact {
        // A store whose watch has ended shows old objects.
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

    /// Reads the UID of namespace `kube-system` from the server now: it identifies the cluster.
    pub(super) async fn read_uid(&self) -> kube::Result<String> {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        let namespace = namespaces.get_metadata("kube-system").await?;
        Ok(namespace.uid().unwrap_or_default())
    }
}

/// Opens a store of `server` and the task that keeps it up to date.
fn watch<K>(
    server: &Server,
    api: Api<Item<K>>,
    summary: fn(&K) -> Option<Summary>,
    note: impl Fn(&mut FirstSeenRuns, &Seen<'_, K>) + Send + 'static,
) -> (Store<K>, AbortOnDropHandle<()>)
where
    K: Followed + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let server = server.clone();
    let (store, run) = follow(
        api,
        watcher::Config::default(),
        FollowedStore::of_workload(LARGEST_STORE),
        Restarts::never(),
        move |seen| {
            let kind = K::kind(&());
            if let Seen::GivenUp(why) = seen {
                warn!(%kind, %why, "Emptied cache of a workload cluster");
            }
            note(&mut server.known().runs, seen);
            let weight = match seen {
                Seen::Changed(change) => change
                    .changed()
                    .map_or(Weight::Proof, |object| Weight::of(summary(&object))),
                Seen::Unchanged => Weight::Progress,
                Seen::Synced(_) | Seen::Failed(_) | Seen::GivenUp(_) => Weight::Proof,
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
        /// Behaves as if the watches had found the server silent since then.
        pub(crate) fn silent_since(&self, then: Timestamp) {
            self.server.known().silent_since = Some(then);
        }

        /// Returns the cause of an emptied store that has not filled again yet.
        pub(crate) fn given_up(&self) -> Option<GivenUp> {
            self.server.known().given_up()
        }
    }
}
