//! Which Clusters are touched so that Cluster API asks again at once after a call of ours failed.
//!
//! After an error Cluster API waits twice as long before each next try, minutes in the end. Any change of the Cluster
//! makes it try at once, so the Cluster is touched when a hook of this extension could not be called and now can. Handlers of other
//! extensions may have the same names: the name of the ExtensionConfig is part of what is compared.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_crds::{foreign::Cluster, labels::annotation};

use crate::{
    cluster::{ClusterRef, is_stopped},
    gate::hook_call::{Hook, handler},
};

/// A Cluster is touched at most this often.
const EVERY: Duration = Duration::from_secs(10);

/// The longest time between two touches of a Cluster whose calls go on to fail: each is twice the one before.
const LONGEST: Duration = Duration::from_mins(5);

/// The ExtensionConfig that this extension is registered by, unless others are named.
pub const EXTENSION_CONFIG: &str = "sluice";

/// The handlers of this extension, as Cluster API names them: `before-cluster-upgrade.sluice`, after the ExtensionConfig.
#[derive(Debug, Clone)]
pub struct Handlers(Vec<String>);

impl Handlers {
    /// Those that are registered by ExtensionConfigs of these names.
    pub fn of<'a>(configs: impl IntoIterator<Item = &'a str>) -> Self {
        let of = |config| Hook::ALL.iter().map(move |hook| call(*hook, config));
        Self(configs.into_iter().flat_map(of).collect())
    }

    /// Whether Cluster API says that it could not call one of them. A paused Cluster is left alone, and so does Cluster API.
    fn failed(&self, cluster: &Cluster) -> bool {
        if is_stopped(cluster) {
            return false;
        }
        let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
        let ours = |message: &str| self.0.iter().any(|call| message.contains(call));
        conditions
            .filter(|condition| {
                condition.type_ == "TopologyReconciled" && condition.reason == "ReconcileFailed"
            })
            .any(|condition| ours(&condition.message))
    }
}

/// How Cluster API names a call in the message of its condition.
fn call(hook: Hook, config: &str) -> String {
    format!("extension handler \"{}.{config}\"", handler(hook))
}

impl Default for Handlers {
    fn default() -> Self {
        Self::of([EXTENSION_CONFIG])
    }
}

/// Clusters of which Cluster API could not call a hook.
#[derive(Debug, Default)]
pub struct Uncalled {
    handlers: Handlers,
    clusters: HashSet<ClusterRef>,
}

impl Uncalled {
    /// None yet, of these handlers.
    #[must_use]
    pub fn of(handlers: Handlers) -> Self {
        Self {
            handlers,
            clusters: HashSet::new(),
        }
    }

    /// Takes in a Cluster as it is.
    pub fn saw(&mut self, named: &ClusterRef, cluster: &Cluster) {
        if self.handlers.failed(cluster) {
            self.clusters.insert(named.clone());
        } else {
            self.clusters.remove(named);
        }
    }

    /// A Cluster is gone.
    pub fn gone(&mut self, named: &ClusterRef) {
        self.clusters.remove(named);
    }

    /// Whether the call of this one failed.
    #[must_use]
    pub fn has(&self, named: &ClusterRef) -> bool {
        self.clusters.contains(named)
    }

    /// All of them.
    #[must_use]
    pub fn clusters(&self) -> Vec<ClusterRef> {
        self.clusters.iter().cloned().collect()
    }
}

/// When each Cluster was touched last.
#[derive(Debug, Default)]
pub struct Touched(HashMap<ClusterRef, Touch>);

#[derive(Debug, Clone, Copy)]
struct Touch {
    last: Instant,
    /// It is not touched again before this time has passed.
    wait: Duration,
}

impl Touched {
    /// Forgets Clusters that may be touched again, and how often those were touched whose calls do not fail any more. To be called before
    /// each look at all of them.
    pub fn forget_old(&mut self, uncalled: &Uncalled, now: Instant) {
        self.0.retain(|named, touch| {
            if !uncalled.has(named) {
                touch.wait = EVERY;
            }
            uncalled.has(named) || now.duration_since(touch.last) < EVERY
        });
    }

    /// Whether a Cluster whose last call failed is to be touched `now`, which is remembered: it was not touched lately.
    pub fn is_due(&mut self, named: &ClusterRef, now: Instant) -> bool {
        let wait = match self.0.get(named) {
            Some(touch) if now.duration_since(touch.last) < touch.wait => return false,
            Some(touch) => (touch.wait * 2).min(LONGEST),
            None => EVERY,
        };
        self.0.insert(named.clone(), Touch { last: now, wait });
        true
    }
}

/// The merge patch that touches exactly this Cluster in this version.
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

    /// Its handlers may have the same names.
    #[rstest]
    #[case::of_another_extension("before-cluster-upgrade.other", &["sluice"], false)]
    #[case::whose_name_begins_like_ours("before-cluster-upgrade.sluice-audit", &["sluice"], false)]
    #[case::of_another_handler("before-cluster-upgrade-audit.sluice", &["sluice"], false)]
    #[case::that_ends_like_ours("not-before-cluster-upgrade.sluice", &["sluice"], false)]
    #[case::by_our_own_name("before-cluster-upgrade.gate", &["gate"], true)]
    #[case::by_one_of_our_names("after-workers-upgrade.old", &["sluice", "old"], true)]
    fn a_failed_call_is_that_of_the_extension_that_it_names(
        #[case] handler: &str,
        #[case] configs: &[&str],
        #[case] ours: bool,
    ) {
        let message = format!("failed to call extension handler \"{handler}\": http call failed");
        let handlers = Handlers::of(configs.iter().copied());
        assert_eq!(handlers.failed(&says("ReconcileFailed", &message)), ours);
    }

    /// The seconds up to `end` in which a Cluster is touched whose calls fail, except for those in `works`.
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
