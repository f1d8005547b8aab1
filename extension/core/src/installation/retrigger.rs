//! Retriggers: touches of Clusters that make Cluster API repeat a failed hook call at once.
//!
//! After an error Cluster API doubles its retry delay, up to minutes. Any change of the Cluster makes it retry at once. So Sluice touches
//! the Cluster when a hook of this extension was unreachable and is reachable again. Handlers of other extensions may have the same names,
//! so the comparison includes the name of the ExtensionConfig.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    time::{Duration, Instant},
};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::Cluster,
    labels::{annotation, name::TOPOLOGY_RECONCILED},
};

use crate::{
    cluster::{ClusterRef, is_stopped},
    gate::hook_call::{GENERATE_UPGRADE_PLAN_HANDLER, Hook, handler},
};

/// Minimum interval between two touches of a Cluster.
const EVERY: Duration = Duration::from_secs(10);

/// Maximum interval between two touches of a Cluster whose calls keep failing: each interval is twice the previous one.
const LONGEST: Duration = Duration::from_mins(5);

/// Intervals between touches of a Cluster.
const INTERVALS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(EVERY)
    .with_max_delay(LONGEST)
    .with_factor(2.0)
    .without_max_times();

/// Default name of the ExtensionConfig of this extension.
pub const EXTENSION_CONFIG: &str = "sluice";

/// Handlers of this extension in the spelling of Cluster API, with the name of the ExtensionConfig: `before-cluster-upgrade.sluice`.
#[derive(Debug, Clone)]
pub struct Handlers(Vec<String>);

impl Handlers {
    /// Creates the handlers of the ExtensionConfigs with these names.
    pub fn of<'a>(configs: impl IntoIterator<Item = &'a str>) -> Self {
        let handlers = || {
            Hook::ALL
                .into_iter()
                .map(handler)
                .chain([GENERATE_UPGRADE_PLAN_HANDLER])
        };
        let of = |config| handlers().map(move |handler| call(handler, config));
        Self(configs.into_iter().flat_map(of).collect())
    }

    /// Whether Cluster API reports a failed call of a handler. Neither Sluice nor Cluster API acts on a paused Cluster.
    fn failed(&self, cluster: &Cluster) -> bool {
        if is_stopped(cluster) {
            return false;
        }
        let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
        let ours = |message: &str| self.0.iter().any(|call| message.contains(call));
        conditions
            .filter(|condition| {
                condition.type_ == TOPOLOGY_RECONCILED && condition.reason == "ReconcileFailed"
            })
            .any(|condition| ours(&condition.message))
    }
}

/// Name of a call in the message of Cluster API's condition.
fn call(handler: &str, config: &str) -> String {
    format!("extension handler \"{handler}.{config}\"")
}

impl Default for Handlers {
    fn default() -> Self {
        Self::of([EXTENSION_CONFIG])
    }
}

/// Clusters with a failed hook call.
#[derive(Debug, Default)]
pub struct Uncalled {
    handlers: Handlers,
    clusters: HashSet<ClusterRef>,
}

impl Uncalled {
    /// Creates an empty set for these handlers.
    #[must_use]
    pub fn of(handlers: Handlers) -> Self {
        Self {
            handlers,
            clusters: HashSet::new(),
        }
    }

    /// Observes the current state of a Cluster.
    pub fn saw(&mut self, named: &ClusterRef, cluster: &Cluster) {
        if self.handlers.failed(cluster) {
            self.clusters.insert(named.clone());
        } else {
            self.clusters.remove(named);
        }
    }

    /// Removes a deleted Cluster.
    pub fn gone(&mut self, named: &ClusterRef) {
        self.clusters.remove(named);
    }

    /// Whether a call for this Cluster failed.
    #[must_use]
    pub fn has(&self, named: &ClusterRef) -> bool {
        self.clusters.contains(named)
    }

    /// Returns all Clusters with a failed call.
    #[must_use]
    pub fn clusters(&self) -> Vec<ClusterRef> {
        self.clusters.iter().cloned().collect()
    }
}

/// Time of the last touch of each Cluster.
#[derive(Debug, Default)]
pub struct Touched(HashMap<ClusterRef, Touch>);

#[derive(Debug)]
struct Touch {
    last: Instant,
    /// Minimum delay until the next touch.
    wait: Duration,
    /// Delays after that.
    intervals: ExponentialBackoff,
}

impl Touch {
    fn first(now: Instant) -> Self {
        let mut intervals = INTERVALS.build();
        Self {
            last: now,
            wait: intervals.next().unwrap_or(EVERY),
            intervals,
        }
    }
}

impl Touched {
    /// Forgets Clusters that may be touched again, and resets the backoff of Clusters whose calls succeed. The caller must call this before
    /// each check of all Clusters.
    pub fn forget_old(&mut self, uncalled: &Uncalled, now: Instant) {
        self.0.retain(|named, touch| {
            if !uncalled.has(named) {
                *touch = Touch::first(touch.last);
            }
            uncalled.has(named) || now.duration_since(touch.last) < EVERY
        });
    }

    /// Whether to touch a Cluster with a failed call `now`. Records the touch.
    pub fn is_due(&mut self, named: &ClusterRef, now: Instant) -> bool {
        match self.0.entry(named.clone()) {
            Entry::Occupied(mut touched) => {
                let touch = touched.get_mut();
                if now.duration_since(touch.last) < touch.wait {
                    return false;
                }
                touch.last = now;
                touch.wait = touch.intervals.next().unwrap_or(LONGEST);
            }
            Entry::Vacant(untouched) => {
                untouched.insert(Touch::first(now));
            }
        }
        true
    }
}

/// Returns the merge patch that touches this Cluster at exactly this resourceVersion.
#[must_use]
pub fn touch(cluster: &Cluster, now: Timestamp) -> Value {
    json!({"metadata": {
        "uid": cluster.metadata.uid,
        "resourceVersion": cluster.metadata.resource_version,
        "annotations": {annotation::RETRIGGERED_AT: now.to_string()},
    }})
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sluice_crds::foreign::{cluster::ClusterStatus, condition::Condition};

    use super::*;

    fn says(reason: &str, message: &str) -> Cluster {
        let condition = Condition {
            observed_generation: None,
            type_: "TopologyReconciled".to_owned(),
            status: "False".to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        Cluster {
            status: Some(ClusterStatus {
                conditions: vec![condition],
                ..ClusterStatus::default()
            }),
            ..Cluster::default()
        }
    }

    const OURS: &str =
        r#"failed to call extension handler "before-cluster-upgrade.sluice": http call failed"#;

    #[test]
    fn a_failed_call_of_ours_is_told_from_everything_else() {
        let failed = |cluster: &Cluster| Handlers::default().failed(cluster);
        assert!(failed(&says("ReconcileFailed", OURS)));
        assert!(!failed(&says("ReconcileFailed", "no such template")));
        assert!(!failed(&says("ClusterUpgrading", OURS)));
        assert!(!failed(&Cluster::default()));
        let mut paused = says("ReconcileFailed", OURS);
        paused.spec.paused = true;
        assert!(!failed(&paused));
    }

    /// The handlers of another extension may have the same names.
    #[rstest]
    #[case::of_another_extension("before-cluster-upgrade.other", &["sluice"], false)]
    #[case::whose_name_begins_like_ours("before-cluster-upgrade.sluice-audit", &["sluice"], false)]
    #[case::of_another_handler("before-cluster-upgrade-audit.sluice", &["sluice"], false)]
    #[case::that_ends_like_ours("not-before-cluster-upgrade.sluice", &["sluice"], false)]
    #[case::by_our_own_name("before-cluster-upgrade.gate", &["gate"], true)]
    #[case::by_one_of_our_names("after-workers-upgrade.old", &["sluice", "old"], true)]
    #[case::that_plans("generate-upgrade-plan.sluice", &["sluice"], true)]
    #[case::that_plans_for_another_extension("generate-upgrade-plan.other", &["sluice"], false)]
    fn a_failed_call_is_that_of_the_extension_that_it_names(
        #[case] handler: &str,
        #[case] configs: &[&str],
        #[case] ours: bool,
    ) {
        let message = format!("failed to call extension handler \"{handler}\": http call failed");
        let handlers = Handlers::of(configs.iter().copied());
        assert_eq!(handlers.failed(&says("ReconcileFailed", &message)), ours);
    }

    /// The seconds up to `end` with a touch of a Cluster whose calls fail, except during `works`.
    fn touches(end: u64, works: std::ops::Range<u64>) -> Vec<u64> {
        let named = ClusterRef::new("team-a", "one");
        let (mut touched, mut uncalled) = (Touched::default(), Uncalled::default());
        let began = Instant::now();
        let mut seconds = Vec::new();
        for second in 0..end {
            let now = began + Duration::from_secs(second);
            if works.contains(&second) {
                uncalled.gone(&named);
            } else {
                uncalled.saw(&named, &says("ReconcileFailed", OURS));
            }
            touched.forget_old(&uncalled, now);
            for named in uncalled.clusters() {
                if touched.is_due(&named, now) {
                    seconds.push(second);
                }
            }
        }
        seconds
    }

    #[test]
    fn a_cluster_whose_calls_go_on_to_fail_is_touched_ever_later() {
        assert_eq!(touches(1_300, 0..0), [0, 10, 30, 70, 150, 310, 610, 910, 1_210]);
    }

    #[test]
    fn a_cluster_whose_calls_fail_again_is_touched_at_once_but_every_ten_seconds_at_most() {
        assert_eq!(touches(100, 40..45), [0, 10, 30, 45, 55, 75]);
        assert_eq!(touches(60, 31..32), [0, 10, 30, 40]);
    }
}
