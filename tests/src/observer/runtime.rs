//! The observer, running beside a stack.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use futures::{Stream, StreamExt as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::feed::{Change, Gateway, Revision};
use super::ledger::Ledger;
use super::milestone::{Event, Milestone};
use super::violation::Violation;
use crate::stack::etcd::Etcd;
use crate::wait;

/// How long the observer may lag behind etcd.
const LAG: Duration = Duration::from_secs(20);

/// Watches a stack from its start to its end.
pub struct Observer {
    gateway: Gateway,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    ledger: Mutex<Ledger>,
    /// Why the watch ended. Nothing can be said about a stack after that.
    blind: Mutex<Option<String>>,
    progress: watch::Sender<Revision>,
}

impl Observer {
    /// Starts to watch `etcd`. To be called before anything that is to be judged is written.
    pub async fn start(etcd: &Etcd) -> Result<Self> {
        let gateway = Gateway::new(&etcd.url())?;
        let changes = gateway.changes(None).await?;
        Ok(Self::follow(gateway, Ledger::default(), changes))
    }

    /// Starts to watch `etcd` in the middle of its life. What is there counts as written in the order of the last writes, of which
    /// none is judged; every later write is.
    pub async fn start_anew(etcd: &Etcd) -> Result<Self> {
        let gateway = Gateway::new(&etcd.url())?;
        let (revision, state) = gateway.state().await?;
        let mut ledger = Ledger::default();
        for change in &state {
            ledger.observe(change);
        }
        ledger.reached(revision);
        let changes = gateway.changes(Some(revision)).await?;
        Ok(Self::follow(gateway, ledger, changes))
    }

    fn follow(
        gateway: Gateway,
        ledger: Ledger,
        changes: impl Stream<Item = Result<Vec<Change>>> + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            ledger: Mutex::new(ledger),
            ..Shared::default()
        });
        let watcher = shared.clone();
        let task = tokio::spawn(async move {
            let mut changes = std::pin::pin!(changes);
            while let Some(batch) = changes.next().await {
                match batch {
                    Ok(batch) => {
                        let revision = {
                            let mut ledger = watcher.ledger();
                            for change in &batch {
                                ledger.observe(change);
                            }
                            ledger.revision()
                        };
                        watcher.progress.send_replace(revision);
                    }
                    Err(error) => {
                        *watcher.blind() = Some(format!("{error:#}"));
                        return;
                    }
                }
            }
        });
        Self {
            gateway,
            shared,
            task,
        }
    }

    /// Waits until everything that is written by now has been seen, and fails if the observer has gone blind.
    pub async fn catch_up(&self) -> Result<Revision> {
        let revision = self.gateway.revision().await?;
        wait::until(
            format!("the observer to reach revision {revision}"),
            LAG,
            || async {
                self.check()?;
                match self.shared.ledger().revision() {
                    seen if seen >= revision => Ok(()),
                    seen => wait::not_yet(format!("revision {seen}")),
                }
            },
        )
        .await?;
        Ok(revision)
    }

    /// Fails if the observer has gone blind.
    pub fn check(&self) -> Result<()> {
        match &*self.shared.blind() {
            Some(reason) => bail!("the observer is blind: {reason}"),
            None => Ok(()),
        }
    }

    /// Reads the ledger.
    pub fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.shared.ledger())
    }

    /// Writes in `namespace` that came too early.
    #[must_use]
    pub fn violations(&self, namespace: &str) -> Vec<Violation> {
        self.read(|ledger| {
            ledger
                .violations()
                .iter()
                .filter(|violation| violation.namespace == namespace)
                .cloned()
                .collect()
        })
    }

    /// The milestones of a Cluster.
    #[must_use]
    pub fn milestones(&self, namespace: &str, cluster: &str) -> Vec<Milestone> {
        self.read(|ledger| {
            ledger
                .milestones()
                .iter()
                .filter(|milestone| milestone.namespace == namespace && milestone.cluster == cluster)
                .cloned()
                .collect()
        })
    }

    /// The first milestone of a Cluster after `since` that `wanted` accepts; waits for it.
    pub async fn milestone(
        &self,
        what: &str,
        deadline: Duration,
        (namespace, cluster): (&str, &str),
        since: Revision,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Milestone> {
        let found = wait::until(what, deadline, || async {
            self.check()?;
            let milestones = self.milestones(namespace, cluster);
            match milestones
                .iter()
                .find(|milestone| milestone.revision > since && wanted(&milestone.event))
            {
                Some(found) => Ok(found.clone()),
                None => wait::not_yet(match milestones.last() {
                    Some(last) => format!("last milestone {:?} at revision {}", last.event, last.revision),
                    None => "no milestone".to_owned(),
                }),
            }
        })
        .await?;
        Ok(found)
    }

    /// Changes with every write that has been taken.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Revision> {
        self.shared.progress.subscribe()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn blind(&self) -> MutexGuard<'_, Option<String>> {
        self.blind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
