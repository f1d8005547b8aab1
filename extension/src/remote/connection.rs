//! One live connection: a client, the PackageInstalls and Apps behind it, and whether the server answers.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{reflector::Store, watcher},
};
use serde::Serialize;
use sluice_crds::{
    foreign::{App, PackageInstall},
    run::FirstSeenRun,
};
use tokio::{
    task::AbortHandle,
    time::{Instant, timeout_at},
};
use tracing::warn;

use super::{
    breaker::Breaker,
    identity::{Identity, Served},
    pace::Pace,
    runs::FirstSeenRuns,
};
use crate::{
    backoff::Backoff,
    fence::Fence,
    watch::{Followed, GivenUp, Seen, follow_up_to},
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

/// Whether the workload API server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contact {
    /// It answered the last request.
    Answers,
    /// It has not answered since then.
    Silent(Timestamp),
}

/// Why the identity of the API server is not known.
#[derive(Debug, thiserror::Error)]
#[error("read namespace kube-system of a workload cluster")]
pub struct Unread {
    /// Since when, if it was known before.
    pub since: Option<Timestamp>,
    /// What went wrong this time.
    pub source: kube::Error,
}

impl Contact {
    /// The contact after one more sign of the server, and whether the Cluster is woken for it. Silence counts from its first
    /// sign, however often the server is tried meanwhile.
    fn after(self, silent: bool, now: Timestamp) -> (Self, bool) {
        match (self, silent) {
            (Self::Answers, true) => (Self::Silent(now), true),
            (Self::Silent(since), true) => (Self::Silent(since), false),
            (_, false) => (Self::Answers, true),
        }
    }
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
    runs: Arc<FirstSeenRuns>,
    digest: String,
    contact: Arc<Mutex<Contact>>,
    breaker: Breaker,
    /// How often a watch failed or was filled.
    disturbances: Arc<AtomicU64>,
    identity: Mutex<Identity>,
    watches: [Watch; 2],
}

/// The task behind a store.
struct Watch {
    task: AbortHandle,
    /// Why the store is not filled, if it had to be emptied.
    given_up: Arc<Mutex<Option<GivenUp>>>,
}

impl Remote {
    /// Watches the server behind `client`; nothing is written to it while `fence` is closed.
    pub(super) fn open(client: &Client, fence: &Fence, namespace: &str, digest: String, pace: &Pace) -> Self {
        let breaker = Breaker::new(pace.clone());
        let store = breaker.listen(client.clone());
        let contact = Arc::new(Mutex::new(Contact::Answers));
        let disturbances = Arc::default();
        let runs = Arc::new(FirstSeenRuns::default());
        let noted = Arc::clone(&runs);
        let (installs, first) =
            watch::<PackageInstall>(&store, namespace, &contact, &disturbances, pace.clone(), |_| {});
        let (apps, second) = watch::<App>(
            &store,
            namespace,
            &contact,
            &disturbances,
            pace.clone(),
            move |seen| match seen {
                Seen::Touched(app) => noted.note(app),
                Seen::Gone(app) => noted.forget(app),
                Seen::Synced => noted.listed(),
                Seen::GivenUp(_) => noted.clear(),
                Seen::Failed(_) => {}
            },
        );
        Self {
            client: fence.guard(breaker.guard(client.clone())),
            installs,
            apps,
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            opened: Instant::now(),
            runs,
            digest,
            contact,
            breaker,
            disturbances,
            identity: Mutex::default(),
            watches: [first, second],
        }
    }

    /// Digest of the kubeconfig that the connection was made of.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The run that the App of this name showed when its present generation was first seen by the watch.
    #[must_use]
    pub fn first_seen_run(&self, app: &str) -> Option<FirstSeenRun> {
        self.runs.get(app)
    }

    /// Whether the server answers, as far as the watches know.
    #[must_use]
    pub fn contact(&self) -> Contact {
        *self.contact.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether each store was filled. What they show is not all before.
    #[must_use]
    pub fn is_filled(&self) -> bool {
        let installs = self.installs.wait_until_ready().now_or_never();
        installs.is_some() && self.apps.wait_until_ready().now_or_never().is_some()
    }

    /// Waits until each store was filled, if the connection was opened a moment ago. A pass that looks before finds nothing installed.
    pub async fn first_lists(&self) {
        let lists = futures::future::join(self.installs.wait_until_ready(), self.apps.wait_until_ready());
        // Without them the pass goes on: what it does not see it does not take for proven.
        let _late = timeout_at(self.opened + FIRST_LISTS, lists).await;
    }

    /// Why a store had to be emptied that is not filled again yet. What the stores show is not all then.
    #[must_use]
    pub fn given_up(&self) -> Option<GivenUp> {
        let given_up = |watch: &Watch| *watch.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        self.watches.iter().find_map(given_up)
    }

    /// Whether a store is not followed any more. Another connection has to be opened then.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.watches.iter().any(|watch| watch.task.is_finished())
    }

    /// How long ago the server answered anything, whatever the watches know.
    #[must_use]
    pub fn last_answer(&self) -> Option<Duration> {
        self.breaker.last_answer().map(|at| at.elapsed())
    }

    /// The number of the connection. No two of a process have the same.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Whose data the server serves. Asked of it when a watch failed or was filled since it was asked last, and every few
    /// seconds: another server may answer at the same address, with the same credentials.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn served(&self) -> Result<Served, Unread> {
        let disturbances = self.disturbances.load(Ordering::Acquire);
        if let Some(uid) = self.identity().known(disturbances, Instant::now()) {
            return Ok(Served::Same(uid.to_owned()));
        }
        match self.read_uid().await {
            Ok(uid) => Ok(self.identity().read(uid, disturbances, Instant::now())),
            Err(source) => Err(Unread {
                since: self.identity().unread(Timestamp::now()),
                source,
            }),
        }
    }

    fn identity(&self) -> MutexGuard<'_, Identity> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Drop for Remote {
    fn drop(&mut self) {
        self.watches.iter().for_each(|watch| watch.task.abort());
    }
}

fn watch<K>(
    client: &Client,
    namespace: &str,
    contact: &Arc<Mutex<Contact>>,
    disturbances: &Arc<AtomicU64>,
    pace: Pace,
    note: impl Fn(&Seen<'_, K>) + Send + 'static,
) -> (Store<K>, Watch)
where
    K: Followed + Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope> + Serialize,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let (contact, disturbances) = (Arc::clone(contact), Arc::clone(disturbances));
    let given_up = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&given_up);
    let (store, run) = follow_up_to(
        LARGEST_STORE,
        Backoff::new(MIN_DELAY, MAX_DELAY),
        api,
        watcher::Config::default(),
        (),
        move |seen| {
            note(&seen);
            let changed = match &seen {
                Seen::Synced => Some(None),
                Seen::GivenUp(why) => {
                    warn!(kind = %K::kind(&()), %why, "Emptied a store of a workload cluster");
                    Some(Some(*why))
                }
                Seen::Touched(_) | Seen::Gone(_) | Seen::Failed(_) => None,
            };
            if let Some(changed) = changed {
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = changed;
            }
            if matches!(seen, Seen::Failed(_) | Seen::Synced) {
                disturbances.fetch_add(1, Ordering::AcqRel);
            }
            // Until kapp-controller has brought its kinds, "not found" is a sign of life.
            let silent = matches!(&seen, Seen::Failed(error) if !answered(error));
            let mut contact = contact.lock().unwrap_or_else(PoisonError::into_inner);
            let (next, wakes) = contact.after(silent, Timestamp::now());
            *contact = next;
            drop(contact);
            if wakes {
                pace.wake();
            }
        },
    );
    let task = tokio::spawn(run).abort_handle();
    (store, Watch { task, given_up })
}

fn answered(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => matches!(error, kube::Error::Api(_)),
        watcher::Error::WatchError(_) => true,
        watcher::Error::NoResourceVersion => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Remote {
        /// As if the watches had found the server silent since then.
        pub(crate) fn silent_since(&self, then: Timestamp) {
            *self.contact.lock().unwrap() = Contact::Silent(then);
        }
    }

    #[test]
    fn silence_counts_from_its_first_sign() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let (contact, wakes) = Contact::Answers.after(true, at(10));
        assert_eq!((contact, wakes), (Contact::Silent(at(10)), true));
        for second in 11..100 {
            assert_eq!(contact.after(true, at(second)), (Contact::Silent(at(10)), false));
        }
        assert_eq!(contact.after(false, at(100)), (Contact::Answers, true));
    }
}
