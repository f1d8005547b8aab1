//! One live connection: a client, the PackageInstalls and Apps behind it, and whether the server answers.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use futures::{FutureExt as _, future::join};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource, ResourceExt,
    core::NamespaceResourceScope,
    runtime::{reflector::Store, watcher},
};
use sluice_core::walls::{Backoff, Contact, FirstSeenRuns, GivenUp, Served};
use sluice_crds::{
    foreign::{App, PackageInstall},
    run::FirstSeenRun,
};
use tokio::time::timeout_at;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::{pace::Pace, server::Server};
use crate::{
    clock::now,
    fence::Fence,
    watch::{Followed, Manner, Seen, follow},
};

/// The first delay before a watch that broke is tried again. Workload API servers restart in the middle of every upgrade.
const MIN_DELAY: Duration = Duration::from_millis(200);

/// The longest one.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// How long a pass waits for the first lists of a connection.
const FIRST_LISTS: Duration = Duration::from_millis(250);

/// About what each store may take, in bytes. Real ones take some hundred KiB.
pub(super) const LARGEST_STORE: usize = 16 * 1024 * 1024;

/// How many connections were opened. None has the number 0.
static OPENED: AtomicU64 = AtomicU64::new(1);

/// Why the identity of the API server is not known.
#[derive(Debug, thiserror::Error)]
#[error("read namespace kube-system of a workload cluster")]
pub struct Unread {
    /// Since when, if it was known before.
    pub since: Option<Timestamp>,
    /// What went wrong this time.
    pub source: kube::Error,
}

/// One live connection. Dropping it ends its watches.
pub struct Remote {
    /// Client of the workload API server.
    pub client: Client,
    /// PackageInstalls of the system namespace.
    pub installs: Store<PackageInstall>,
    /// Apps of the system namespace.
    pub apps: Store<App>,
    number: u64,
    opened: Instant,
    digest: String,
    server: Server,
    /// The tasks behind the stores.
    watches: [AbortOnDropHandle<()>; 2],
}

impl Remote {
    /// Watches the server behind `client`; nothing is written to it while `fence` is closed.
    pub(super) fn open(client: &Client, fence: &Fence, namespace: &str, digest: String, pace: Pace) -> Self {
        let server = Server::new(pace);
        let listening = server.listen(client.clone());
        let (installs, first) = watch(&server, Api::namespaced(listening.clone(), namespace), |_, _| {});
        let (apps, second) = watch(&server, Api::namespaced(listening, namespace), note_run);
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

    /// Digest of the kubeconfig that the connection was made of.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The number of the connection. No two of a process have the same.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The run that the App of this name showed when its present generation was first seen by the watch.
    #[must_use]
    pub fn first_seen_run(&self, app: &str) -> Option<FirstSeenRun> {
        self.server.known().runs.get(app).cloned()
    }

    /// Whether the server answers, as far as the watches know.
    #[must_use]
    pub fn contact(&self) -> Contact {
        self.server.known().contact
    }

    /// How long ago the server answered anything, whatever the watches know.
    #[must_use]
    pub fn last_answer(&self) -> Option<Duration> {
        let answered = self.server.known().breaker.last_answer();
        answered.map(|at| now().duration_since(at))
    }

    /// Why a store had to be emptied that is not filled again yet. What the stores show is not all then.
    #[must_use]
    pub fn given_up(&self) -> Option<GivenUp> {
        self.server.known().given_up()
    }

    /// Whether each store was filled. What they show is not all before.
    #[must_use]
    pub fn is_filled(&self) -> bool {
        let installs = self.installs.wait_until_ready().now_or_never();
        installs.is_some() && self.apps.wait_until_ready().now_or_never().is_some()
    }

    /// Waits until each store was filled, if the connection was opened a moment ago. A pass that looks before finds nothing installed.
    pub async fn first_lists(&self) {
        let lists = join(self.installs.wait_until_ready(), self.apps.wait_until_ready());
        // Without them the pass goes on: what it does not see it does not take for proven.
        let _late = timeout_at((self.opened + FIRST_LISTS).into(), lists).await;
    }

    /// Whether a store is not followed any more. Another connection has to be opened then.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.watches.iter().any(AbortOnDropHandle::is_finished)
    }

    /// Whose data the server serves. Asked of it when a watch failed or was filled since it was asked last, and every few
    /// seconds: another server may answer at the same address, with the same credentials.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn served(&self) -> Result<Served, Unread> {
        let disturbances = {
            let known = self.server.known();
            if let Some(uid) = known.identity.known(known.disturbances, now()) {
                return Ok(Served::Same(uid.to_owned()));
            }
            known.disturbances
        };
        let read = self.read_uid().await;
        let identity = &mut self.server.known().identity;
        match read {
            Ok(uid) => Ok(identity.read(uid, disturbances, now())),
            Err(source) => Err(Unread {
                since: identity.unread(Timestamp::now()),
                source,
            }),
        }
    }

    /// UID of namespace `kube-system`, asked of the server now.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn read_uid(&self) -> kube::Result<String> {
        let namespace = Api::<Namespace>::all(self.client.clone())
            .get_metadata("kube-system")
            .await?;
        Ok(namespace.uid().unwrap_or_default())
    }
}

/// A store of what `server` shows, and the task behind it.
fn watch<K>(
    server: &Server,
    api: Api<K>,
    note: impl Fn(&mut FirstSeenRuns, &Seen<'_, K>) + Send + 'static,
) -> (Store<K>, AbortOnDropHandle<()>)
where
    K: Followed + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let manner = Manner {
        backoff: Backoff::new(MIN_DELAY, MAX_DELAY),
        freshness: None,
        limit: Some(LARGEST_STORE),
    };
    let server = server.clone();
    let (store, run) = follow(api, watcher::Config::default(), (), manner, move |seen| {
        let kind = K::kind(&());
        if let Seen::GivenUp(why) = &seen {
            warn!(%kind, %why, "Emptied a store of a workload cluster");
        }
        note(&mut server.known().runs, &seen);
        server.saw(&kind, seen.sign());
    });
    (store, AbortOnDropHandle::new(tokio::spawn(run)))
}

fn note_run(runs: &mut FirstSeenRuns, seen: &Seen<'_, App>) {
    match seen {
        Seen::Touched(app) => runs.note(app),
        Seen::Gone(app) => runs.forget(app),
        Seen::Synced => runs.listed(),
        Seen::GivenUp(_) => runs.clear(),
        Seen::Failed(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Remote {
        /// As if the watches had found the server silent since then.
        pub(crate) fn silent_since(&self, then: Timestamp) {
            self.server.known().contact = Contact::Silent(then);
        }
    }
}
