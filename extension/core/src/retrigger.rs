//! Which Clusters are touched so that Cluster API asks again at once after a call of ours failed.
//!
//! After an error Cluster API waits twice as long before each next try, minutes in the end. Any change of the Cluster
//! makes it try at once, so the Cluster is touched when a hook of this extension could not be called and now can.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};
use sluice_crds::{foreign::Cluster, labels::annotation};

use crate::{
    cluster::{ClusterRef, is_stopped},
    hook_call::{Hook, handler},
};

/// A Cluster is touched at most this often.
const EVERY: Duration = Duration::from_secs(10);

/// Clusters of which Cluster API could not call a hook.
#[derive(Debug, Default)]
pub struct Uncalled(HashSet<ClusterRef>);

impl Uncalled {
    /// Takes in a Cluster as it is.
    pub fn saw(&mut self, named: &ClusterRef, cluster: &Cluster) {
        if call_failed(cluster) {
            self.0.insert(named.clone());
        } else {
            self.0.remove(named);
        }
    }

    /// A Cluster is gone.
    pub fn gone(&mut self, named: &ClusterRef) {
        self.0.remove(named);
    }

    /// All of them.
    #[must_use]
    pub fn clusters(&self) -> Vec<ClusterRef> {
        self.0.iter().cloned().collect()
    }
}

/// When each Cluster was touched last, by UID.
#[derive(Debug, Default)]
pub struct Touched(HashMap<String, Instant>);

impl Touched {
    /// Forgets Clusters that may be touched again. To be called before each look at all of them.
    pub fn forget_old(&mut self, now: Instant) {
        self.0.retain(|_, last| now.duration_since(*last) < EVERY);
    }

    /// Whether the Cluster is to be touched `now`, which is remembered: its last call failed, and it was not touched lately.
    pub fn is_due(&mut self, cluster: &Cluster, now: Instant) -> bool {
        let uid = cluster.uid().unwrap_or_default();
        let is_due = call_failed(cluster) && !self.0.contains_key(&uid);
        if is_due {
            self.0.insert(uid, now);
        }
        is_due
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

/// Whether Cluster API says that it could not call one of our handlers. A paused Cluster is left alone, and so does
/// Cluster API.
fn call_failed(cluster: &Cluster) -> bool {
    if is_stopped(cluster) {
        return false;
    }
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    let ours = |message: &str| {
        Hook::ALL
            .iter()
            .any(|hook| message.contains(&format!("extension handler \"{}.", handler(*hook))))
    };
    conditions
        .filter(|condition| condition.type_ == "TopologyReconciled" && condition.reason == "ReconcileFailed")
        .any(|condition| ours(&condition.message))
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_failed_call_of_ours_is_told_from_everything_else() {
        let ours = r#"failed to call extension handler "before-cluster-upgrade.sluice": http call failed"#;
        let another =
            r#"failed to call extension handler "before-cluster-upgrade-audit.other": http call failed"#;
        assert!(call_failed(&says("ReconcileFailed", ours)));
        assert!(!call_failed(&says("ReconcileFailed", another)));
        assert!(!call_failed(&says("ReconcileFailed", "no such template")));
        assert!(!call_failed(&says("ClusterUpgrading", ours)));
        assert!(!call_failed(&Cluster::default()));
        let mut paused = says("ReconcileFailed", ours);
        paused.spec.paused = true;
        assert!(!call_failed(&paused));
    }

    #[test]
    fn a_cluster_is_touched_at_most_every_ten_seconds() {
        let ours = r#"failed to call extension handler "before-cluster-delete.sluice": timeout"#;
        let (mut touched, began) = (Touched::default(), Instant::now());
        let mut looks = |seconds| {
            let now = began + Duration::from_secs(seconds);
            touched.forget_old(now);
            let first = touched.is_due(&says("ReconcileFailed", ours), now);
            assert!(!touched.is_due(&says("ClusterUpgrading", ours), now));
            first
        };
        assert_eq!(
            [0, 1, 9, 10, 11].map(&mut looks),
            [true, false, false, true, false]
        );
    }
}
