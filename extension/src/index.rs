//! What hooks are answered from: the stores of this replica, read without waiting for anything.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sluice_core::{
    decision::{Decision, Knowledge, decide},
    hold::Hold,
    hook_call::HookCall,
    index::{self, Answers, Pace},
    stuck::{Counted, Standings},
    unsynced::Unsynced,
};
use sluice_hooks::Gate;
use tokio::time::Instant;
use tracing::{debug, field::display, info, warn};

use crate::{leadership::Leadership, stores::Stores};

/// How often held clusters are counted. It only sets how soon Cluster API asks again.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// The gate of every hook. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Index(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    system_namespace: String,
    deletion_limit: u32,
    stores: OnceLock<Stores>,
    synced: AtomicBool,
    /// Whether it was said last that the stores are too old.
    stale: AtomicBool,
    /// From here on the time is measured for which Clusters make no progress.
    began: Instant,
    held: RwLock<Counted>,
    /// What keeps a Cluster from having a record at all, by UID. Only the leader knows.
    notes: RwLock<HashMap<String, Hold>>,
    /// Unset where there is no lease.
    leadership: OnceLock<Leadership>,
    /// Whether it was said last that no replica leads.
    leaderless: AtomicBool,
    answers: Mutex<Answers>,
}

impl Index {
    /// An index that knows nothing yet and holds every call.
    #[must_use]
    pub fn new(system_namespace: String, deletion_limit: Duration) -> Self {
        Self(Arc::new(Inner {
            system_namespace,
            deletion_limit: u32::try_from(deletion_limit.as_secs()).unwrap_or(u32::MAX),
            stores: OnceLock::new(),
            synced: AtomicBool::new(false),
            stale: AtomicBool::new(false),
            began: Instant::now(),
            held: RwLock::default(),
            notes: RwLock::default(),
            leadership: OnceLock::new(),
            leaderless: AtomicBool::new(false),
            answers: Mutex::default(),
        }))
    }

    /// From now on nothing is released by a record while no replica leads.
    pub fn needs(&self, leadership: Leadership) {
        self.0.leadership.get_or_init(|| leadership);
    }

    /// Follows the stores for as long as it is polled. Calls are answered from them once all are filled.
    pub async fn follow(&self, stores: Stores) {
        let stores = self.0.stores.get_or_init(|| stores);
        stores.synced().await;
        self.0.synced.store(true, Ordering::Release);
        let mut standings = Standings::default();
        let mut tick = tokio::time::interval(COUNT_EVERY);
        loop {
            tick.tick().await;
            // Says that the age is over its limit also when no call asks.
            self.unsynced(stores);
            self.is_leaderless();
            let counted = standings.look(self.0.began.elapsed(), self.over(stores).held());
            let mut held = self.0.held.write().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut *held, counted);
            drop(held);
            // Not while a hook may wait for the lock.
            drop(before);
        }
    }

    /// Whether the stores were complete once. Their age is no matter of readiness: while the API server is away all replicas
    /// are stale, and a Cluster API that restarts then does not start without an endpoint to discover.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.0.synced.load(Ordering::Acquire)
    }

    /// Tells hooks what keeps the Cluster with this UID from having a record.
    pub fn note(&self, uid: &str, hold: Option<Hold>) {
        let mut notes = self.0.notes.write().unwrap_or_else(PoisonError::into_inner);
        match hold {
            Some(hold) => drop(notes.insert(uid.to_owned(), hold)),
            None => drop(notes.remove(uid)),
        }
    }

    /// The stores, or why they are no knowledge. Asked at each call: after a pause of the process the first call must hold.
    fn knowledge(&self) -> Result<&Stores, Unsynced> {
        let filled = self.0.stores.get().filter(|_| self.is_synced());
        let stores = filled.ok_or(Unsynced::Starting)?;
        self.unsynced(stores).map_or(Ok(stores), Err)
    }

    /// Why the stores are no knowledge, if so; logged when it changes.
    fn unsynced(&self, stores: &Stores) -> Option<Unsynced> {
        let ages = stores.ages();
        let unsynced = Unsynced::of(ages.map(|(_, age)| age));
        let stale = unsynced.is_some();
        if self.0.stale.swap(stale, Ordering::Relaxed) != stale {
            if stale {
                warn!(
                    ?ages,
                    "Stale: the API server does not confirm what is remembered, holding"
                );
            } else {
                info!("Current again: the API server has confirmed what is remembered");
            }
        }
        unsynced
    }

    /// Whether no replica leads; logged when it changes.
    fn is_leaderless(&self) -> bool {
        let missing = self.0.leadership.get().is_some_and(Leadership::is_missing);
        if self.0.leaderless.swap(missing, Ordering::Relaxed) != missing {
            if missing {
                warn!("No leader: the lease is not renewed, holding what records would release");
            } else {
                info!("A replica leads again");
            }
        }
        missing
    }

    fn judge(&self, call: &HookCall<'_>) -> Decision {
        let held = self.0.held.read().unwrap_or_else(PoisonError::into_inner);
        let pace = Pace::of(call.uid, &held, self.0.deletion_limit, self.0.began.elapsed());
        drop(held);
        match self.knowledge() {
            Ok(stores) => self.over(stores).decide(call, &pace, self.is_leaderless()),
            Err(unsynced) => decide(call, &Knowledge::Unsynced(unsynced), &pace.policy),
        }
    }

    /// The stores, with what is noted.
    fn over<'a>(&'a self, stores: &'a Stores) -> index::Index<'a, Stores, impl Fn(&str) -> Option<Hold>> {
        index::Index {
            stores,
            system_namespace: &self.0.system_namespace,
            note: |uid: &str| {
                let notes = self.0.notes.read().unwrap_or_else(PoisonError::into_inner);
                notes.get(uid).cloned()
            },
        }
    }
}

impl Gate for Index {
    fn decide(&self, call: &HookCall<'_>) -> Decision {
        let decision = self.judge(call);
        let mut answers = self.0.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = answers.is_new(call, &decision);
        drop(answers);
        log(call, &decision, is_new);
        decision
    }
}

/// Logs one answered call. Cluster API asks a held Cluster every few seconds, so a call that is answered as before is worth no line.
fn log(call: &HookCall<'_>, decision: &Decision, is_new: bool) {
    let HookCall {
        hook,
        namespace,
        name: cluster,
        ..
    } = call;
    let (answer, held) = match decision {
        Decision::Release => ("release", None),
        Decision::Hold {
            retry_after, reason, ..
        } => ("hold", Some((display(reason), retry_after.seconds()))),
    };
    let (reason, retry_after) = held.unzip();
    if is_new {
        info!(%hook, namespace, cluster, answer, reason, retry_after, "answered hook");
    } else {
        debug!(%hook, namespace, cluster, answer, reason, retry_after, "answered hook");
    }
}

#[cfg(test)]
mod tests;
