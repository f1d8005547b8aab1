//! Has Cluster API ask again at once after a call of ours failed.
//!
//! After an error Cluster API waits twice as long before each next try, minutes in the end. Any change of the Cluster
//! makes it try at once, so the Cluster is touched when a hook of this extension could not be called and now can.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::reflector::Store,
};
use serde_json::json;
use sluice_core::cluster::is_stopped;
use sluice_crds::{foreign::Cluster, labels::annotation};
use sluice_hooks::{Hook, handler};
use tracing::{info, warn};

/// How often the Clusters in memory are looked through.
const LOOK: Duration = Duration::from_secs(1);
/// A Cluster is touched at most this often.
const EVERY: Duration = Duration::from_secs(10);

/// Touches Clusters whose last call failed, for as long as it is polled. Only the leader does.
///
/// All Clusters count, managed or not: Cluster API asks about every one, and waits for every answer.
pub async fn run(client: Client, clusters: Store<Cluster>) {
    let mut touched: HashMap<String, Instant> = HashMap::new();
    let mut tick = tokio::time::interval(LOOK);
    loop {
        tick.tick().await;
        touched.retain(|_, last| last.elapsed() < EVERY);
        for cluster in clusters.state_filter(call_failed) {
            let uid = cluster.uid().unwrap_or_default();
            if touched.contains_key(&uid) {
                continue;
            }
            touched.insert(uid, Instant::now());
            let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
            match touch(&client, &cluster).await {
                Ok(()) => info!(namespace, name, "Asked Cluster API to call again"),
                // Somebody else changed or deleted it, which wakes Cluster API as well.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => warn!(namespace, name, %error, "Asking Cluster API to call again"),
            }
        }
    }
}

async fn touch(client: &Client, cluster: &Cluster) -> kube::Result<()> {
    let touch = json!({"metadata": {
        "uid": cluster.metadata.uid,
        "resourceVersion": cluster.metadata.resource_version,
        "annotations": {annotation::RETRIGGERED_AT: Timestamp::now().to_string()},
    }});
    Api::<Cluster>::namespaced(client.clone(), &cluster.namespace().unwrap_or_default())
        .patch_metadata(
            &cluster.name_any(),
            &PatchParams::default(),
            &Patch::Merge(&touch),
        )
        .await
        .map(drop)
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
}
