//! Clusters whose control plane reference names another kind of object.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::json;
use sluice_tests::objects::{self, Release};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

/// Kinds, and the event message for each.
const KINDS: [(&str, &str, &str); 3] = [
    (
        "apps",
        "Deployment",
        "deployments.apps does not exist or has no label",
    ),
    (
        "rbac.authorization.k8s.io",
        "ClusterRole",
        "clusterroles.rbac.authorization.k8s.io does not exist or has no label",
    ),
    (
        "controlplane.example.com",
        "Nothing",
        "the API server does not serve it",
    ),
];

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "hostile-kind",
        "Clusters that name a Deployment, a ClusterRole or nothing as their control plane get a reason, and no other Cluster waits for them",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let old = scene.release(VERSIONS[1], "1.0.0", Delay::NONE)?;
    let new = scene.release(VERSIONS[2], "2.0.0", Delay::NONE)?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    for (group, kind, _) in KINDS {
        scene.apply(&[hostile(&scene, &old, group, kind)]).await?;
    }
    for (_, kind, why) in KINDS {
        has_reason(&scene, kind, why).await?;
    }

    // A Cluster that comes after them goes its way.
    let cluster = scene.cluster("one").at(&old).create_settled(&old).await?;
    let before = cluster.upgrade(&new).await?;
    cluster
        .control_plane_written(VERSIONS[2], before, TIMEOUT)
        .await?;
    cluster.is_settled(TIMEOUT).await?;
    for (_, kind, _) in KINDS {
        let path = path(&scene, kind);
        scene.objects().delete(&path).await?;
        // Cluster API does not finish the deletion of a paused Cluster.
        scene
            .objects()
            .merge(&path, &json!({"metadata": {"finalizers": null}}))
            .await?;
    }
    Ok(())
}

/// A Cluster that Cluster API leaves alone, because it is paused.
fn hostile(scene: &Scene, release: &Release, group: &str, kind: &str) -> serde_json::Value {
    let mut cluster = objects::cluster(
        scene.namespace(),
        &kind.to_lowercase(),
        release.kubernetes(),
        Some(&release.name()),
        0,
    );
    cluster["spec"]["paused"] = json!(true);
    cluster["spec"]["controlPlaneRef"] = json!({"apiGroup": group, "kind": kind, "name": "sluice"});
    cluster
}

fn path(scene: &Scene, kind: &str) -> String {
    format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/clusters/{}",
        scene.namespace(),
        kind.to_lowercase()
    )
}

async fn has_reason(scene: &Scene, kind: &str, why: &str) -> Result<()> {
    let name = kind.to_lowercase();
    let events = Api::<Event>::namespaced(scene.client(), scene.namespace());
    let of_cluster = ListParams::default().fields(&format!("involvedObject.name={name}"));
    wait::until(
        format!("an event that says why Cluster {name} waits"),
        TIMEOUT,
        || async {
            let found = events.list(&of_cluster).await?.items;
            let says = |event: &Event| {
                event.reason.as_deref() == Some("ControlPlaneKindUnreadable")
                    && event
                        .message
                        .as_deref()
                        .is_some_and(|message| message.contains(why))
            };
            if found.iter().any(says) {
                Ok(())
            } else {
                let messages: Vec<_> = found
                    .iter()
                    .filter_map(|event| event.message.as_deref())
                    .collect();
                wait::not_yet(format!("{messages:?}"))
            }
        },
    )
    .await
    .with_context(|| format!("control plane of kind {kind}"))
}
