//! Requeues the Clusters of changed UpgradeGates: each once for all changes of a moment.
//!
//! It shares a task with the lease. A tool that writes thousands of UpgradeGates at once must not delay its renewal.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use futures::{Stream, StreamExt as _};
use kube::ResourceExt as _;
use sluice_core::{
    cache::stores::{Found, Stored as _},
    gates::selection::selects,
};
use sluice_crds::lifecycle::{ClusterUpgrade, UpgradeGate};
use tokio::{
    task::yield_now,
    time::{Instant, timeout_at},
};

use super::Context;
use crate::{
    cache::{event_handlers::GateChange, stores::Stores},
    queue::requeues::ClusterRef,
};

/// Time window in which changes are merged.
const TOGETHER: Duration = Duration::from_millis(200);

/// Changes, Clusters or label selectors that are handled before the task yields.
const BATCH: usize = 100;

/// Changed UpgradeGates of a namespace beyond which all its Clusters are requeued. It is cheaper than to compare all labels.
const MAX_CHANGED: usize = 50;

/// Changes of one time window.
#[derive(Debug, Default)]
struct Merged {
    /// Whether all Clusters are affected.
    all: bool,
    /// Changed UpgradeGates by namespace.
    namespaces: BTreeMap<String, Changed>,
}

/// Changes of one namespace.
#[derive(Debug)]
enum Changed {
    /// All Clusters of it are affected.
    Everything,
    /// The UpgradeGates with these names.
    Gates(BTreeSet<String>),
}

impl Merged {
    fn add(&mut self, change: GateChange) {
        match change {
            GateChange::All => self.all = true,
            GateChange::Namespace(namespace) => {
                self.namespaces.insert(namespace, Changed::Everything);
            }
            GateChange::One(gate) => {
                let namespace = self.namespaces.entry(gate.namespace().to_owned());
                let changed = namespace.or_insert_with(|| Changed::Gates(BTreeSet::new()));
                if let Changed::Gates(names) = changed {
                    names.insert(gate.name().to_owned());
                    if names.len() > MAX_CHANGED {
                        *changed = Changed::Everything;
                    }
                }
            }
        }
    }
}

/// Requeues the Clusters that changes of UpgradeGates affect. Never ends, so that the queue alone ends the controller.
pub(super) async fn run(ctx: &Context, mut changes: impl Stream<Item = GateChange> + Unpin) {
    while let Some(first) = changes.next().await {
        let merged = together(first, &mut changes).await;
        if merged.all {
            for namespace in ctx.stores.gate_namespaces() {
                ctx.statuses.send(namespace);
            }
        }
        requeue(ctx, &merged).await;
    }
    std::future::pending::<()>().await;
}

/// Returns `first` and all changes within [`TOGETHER`].
async fn together(first: GateChange, changes: &mut (impl Stream<Item = GateChange> + Unpin)) -> Merged {
    let (mut merged, until) = (Merged::default(), Instant::now() + TOGETHER);
    merged.add(first);
    let mut count: usize = 0;
    while Instant::now() < until {
        let Ok(Some(next)) = timeout_at(until, changes.next()).await else {
            break;
        };
        merged.add(next);
        count += 1;
        if count.is_multiple_of(BATCH) {
            yield_now().await;
        }
    }
    merged
}

/// Requeues the affected Clusters.
async fn requeue(ctx: &Context, merged: &Merged) {
    // A lookup of a label selector is the expensive part, but the others add up, too.
    let mut steps = 0;
    for cluster in ctx.stores.clusters.names() {
        let is_affected = match merged.namespaces.get(cluster.namespace()) {
            _ if merged.all => true,
            None => false,
            Some(Changed::Everything) => true,
            Some(Changed::Gates(names)) => {
                steps += names.len();
                concern(&ctx.stores, names, &cluster)
            }
        };
        if is_affected {
            ctx.triggers.enqueue_gated(cluster);
        }
        steps += 1;
        if steps >= BATCH {
            steps = 0;
            yield_now().await;
        }
    }
}

/// Whether changed UpgradeGates with these names may concern a Cluster of their namespace: one selects it, or a ClusterUpgrade of the
/// Cluster may list one or a fault of one.
fn concern(stores: &Stores, gates: &BTreeSet<String>, cluster: &ClusterRef) -> bool {
    let namespace = Some(cluster.namespace());
    let upgrade: Found<ClusterUpgrade> = stores.found(namespace, cluster.name());
    if !matches!(upgrade, Ok(None)) {
        return true;
    }
    let Some(cluster) = stores.clusters.get(namespace, cluster.name()) else {
        return false;
    };
    gates.iter().any(|name| {
        let found: Found<UpgradeGate> = stores.found(namespace, name);
        let Ok(Some(gate)) = found else {
            return false;
        };
        // A gate whose expressions have no meaning holds every Cluster.
        let expressions = gate.spec.cluster_selector.match_expressions.as_deref();
        if expressions.is_some_and(|expressions| !expressions.is_empty()) {
            return true;
        }
        // This task serves all Clusters. If it panics there, only the reconcile of the Cluster fails.
        let selected = catch_unwind(AssertUnwindSafe(|| selects(&gate, cluster.labels())));
        selected.unwrap_or(true)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{FutureExt as _, stream};

    use super::*;
    use crate::controllers::{bootstrap::world::World, gates::tests::leader};

    fn one(number: usize) -> GateChange {
        GateChange::One(ClusterRef::new("team-a", &format!("gate-{number}")))
    }

    /// The lease is renewed in the same task.
    #[tokio::test(start_paused = true)]
    async fn a_burst_of_changes_leaves_time_to_others() {
        const CHANGES: usize = 5_000;
        let world = World::new();
        let leader = leader(&world.management).await;
        let mut requeues = leader.triggers.listen_gated();
        let taken = AtomicUsize::new(0);
        let changes = stream::iter((0..CHANGES).map(one)).inspect(|_| {
            taken.fetch_add(1, Ordering::Relaxed);
        });
        let others = async {
            let (mut before, mut longest, mut turns) = (0, 0, 0);
            while turns < 100 {
                let now = taken.load(Ordering::Relaxed);
                longest = longest.max(now - before);
                before = now;
                turns += usize::from(now == CHANGES);
                yield_now().await;
            }
            longest
        };
        let longest = tokio::select! {
            () = run(&leader, changes) => panic!("it never ends"),
            longest = others => longest,
        };
        // Branches are polled in random order, so two batches may follow each other.
        assert!(longest <= 2 * (BATCH + 1), "{longest} changes without a break");
        let listed = std::iter::from_fn(|| requeues.next().now_or_never().flatten());
        assert_eq!(listed.count(), 1, "the Cluster, once");
    }

    #[test]
    fn many_changed_gates_affect_all_clusters_of_their_namespace() {
        let mut merged = Merged::default();
        (0..MAX_CHANGED).for_each(|number| merged.add(one(number)));
        merged.add(one(0));
        let names = match &merged.namespaces["team-a"] {
            Changed::Gates(names) => names.len(),
            Changed::Everything => 0,
        };
        assert_eq!(names, MAX_CHANGED);
        merged.add(one(MAX_CHANGED));
        assert!(matches!(merged.namespaces["team-a"], Changed::Everything));
        merged.add(one(0));
        assert!(matches!(merged.namespaces["team-a"], Changed::Everything));
        assert!(!merged.all);
    }
}
