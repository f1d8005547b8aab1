//! What hooks are answered from: the stores of this replica, read without waiting for anything.

mod answers;
mod held;

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::{ResourceExt, runtime::reflector::ObjectRef};
use sluice_core::{
    cluster::is_legacy,
    decision::{Decision, Knowledge, Known, decide},
    hold::Hold,
    hook_call::HookCall,
    record::of_cluster,
    retry::RetryPolicy,
    stuck::{Counted, Standing, Standings, Stuck},
    tkr::{template_not_found, tkr_not_found},
    unsynced::Unsynced,
};
use sluice_crds::{labels::annotation, run::UpgradeRecord};
use sluice_hooks::Gate;
use tokio::time::Instant;
use tracing::{info, warn};

use self::answers::Answers;
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
    answers: Answers,
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
            answers: Answers::default(),
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
            let counted = standings.look(self.0.began.elapsed(), self.held_clusters(stores));
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

    /// What sets the wait of a Cluster: the policy for all, and where this one is stuck, if it is.
    fn pace(&self, uid: &str) -> (RetryPolicy, Option<Stuck>) {
        let held = self.0.held.read().unwrap_or_else(PoisonError::into_inner);
        let policy = RetryPolicy {
            stuck: u32::try_from(held.stuck.len()).unwrap_or(u32::MAX),
            deletion_limit: self.0.deletion_limit,
            ..RetryPolicy::with_held(held.moving)
        };
        (policy, held.stuck.get(uid).copied())
    }

    fn judge(&self, call: &HookCall<'_>) -> Decision {
        let (policy, stuck) = self.pace(call.uid);
        let stores = match self.knowledge() {
            Ok(stores) => stores,
            Err(unsynced) => return decide(call, &Knowledge::Unsynced(unsynced), &policy),
        };
        let bootstrap = stores
            .bootstraps
            .get(&ObjectRef::new(call.name).within(call.namespace));
        let cluster = stores
            .clusters
            .get(&ObjectRef::new(call.name).within(call.namespace));
        let release = call
            .label
            .and_then(|label| stores.releases.get(&ObjectRef::new(label)));
        let record = bootstrap
            .as_ref()
            .and_then(|b| b.status.as_ref()?.upgrade.as_ref());
        let missing = self.missing(stores, call.label, call.uid, release.is_some());
        // Not by the last look: the Cluster may have moved since.
        let still = stuck.and_then(|stuck| {
            let standing = standing(call, record, missing.as_ref())?;
            Some(stuck.still(standing, self.0.began.elapsed()))
        });
        let known = Known {
            record,
            bootstrap_generation: bootstrap.as_ref().and_then(|b| b.metadata.generation),
            legacy: release.as_deref().is_some_and(is_legacy),
            custom: cluster.is_some_and(|cluster| {
                cluster
                    .annotations()
                    .contains_key(annotation::CUSTOM_CLUSTER_BOOTSTRAP)
            }),
            missing,
            leaderless: self.is_leaderless(),
            still: still.unwrap_or_default(),
        };
        decide(call, &Knowledge::synced(call.label, known), &policy)
    }

    /// What keeps a record from being made at all.
    fn missing(&self, stores: &Stores, label: Option<&str>, uid: &str, released: bool) -> Option<Hold> {
        let label = label.filter(|label| !label.is_empty())?;
        if !released {
            return Some(tkr_not_found(label));
        }
        let namespace = &self.0.system_namespace;
        let template = stores.templates.get(&ObjectRef::new(label).within(namespace));
        if template.is_none() {
            return Some(template_not_found(namespace, label));
        }
        self.0
            .notes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(uid)
            .cloned()
    }
}

/// How far the Cluster of a call is; see [`held`].
fn standing(call: &HookCall<'_>, record: Option<&UpgradeRecord>, missing: Option<&Hold>) -> Option<Standing> {
    if let Some(record) = of_cluster(record, call.uid) {
        return Some(Standing::of_record(record));
    }
    missing.map(|hold| Standing::of_hold(call.label.unwrap_or_default(), hold))
}

impl Gate for Index {
    fn decide(&self, call: &HookCall<'_>) -> Decision {
        let decision = self.judge(call);
        // Cluster API asks a held Cluster every few seconds, so a call that is answered as before is worth no line.
        if self.0.answers.is_new(call, &decision) {
            answered!(info, call, &decision);
        } else {
            answered!(debug, call, &decision);
        }
        decision
    }
}

/// Logs one answered call.
macro_rules! answered {
    ($level:ident, $call:expr, $decision:expr) => {{
        let HookCall { hook, namespace, name: cluster, .. } = $call;
        match $decision {
            Decision::Release => {
                tracing::$level!(%hook, namespace, cluster, answer = "release", "answered hook");
            }
            Decision::Hold { retry_after, reason, .. } => tracing::$level!(
                %hook, namespace, cluster, answer = "hold", %reason, retry_after = retry_after.seconds(),
                "answered hook"
            ),
        }
    }};
}
use answered;

#[cfg(test)]
mod tests;
