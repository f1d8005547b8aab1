//! Hook calls beyond the cache of a replica: for another Cluster, a later generation, or before the first sync.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::extension::{HookReply, Replica, Settings};
use sluice_tests::objects::TKR;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kapp_controller::token;
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::release;

const CREATE: &str = "BeforeClusterCreate";

/// ClusterRoles of a replica.
const ROLES: [&str; 3] = ["sluice", "sluice-packages", "sluice-gates"];

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "missing-things-hooks",
        "a hook for a Cluster that was never seen, has another UID or was edited since, and a replica before its first list: held until the record is observed",
        |scene| Box::pin(run(scene)),
    )
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let known = release(&scene, VERSIONS[1], "1.0.0", Delay::NONE)?;
    let other = release(&scene, VERSIONS[2], "2.0.0", Delay::NONE)?;
    scene.publish(&known).await?;
    scene.publish(&other).await?;
    let cluster = scene.cluster("one").create_settled(&known).await?;
    // This replica answers from its own cache with the decision of the leader.
    let sluice = scene.world().extension()?.standby().await?;

    let seen = cluster.object().await?;
    is_released(sluice, &seen).await.context("as it is")?;
    for (what, change, reason) in unknown(&seen, &other.name()) {
        let reply = ask(sluice, &changed(&seen, &change)).await?;
        ensure!(reply.is_held(reason), "{what}: answered {reply:?}, not {reason}");
    }
    let unlabelled = json!({"metadata": {"name": "never-seen", "labels": {TKR: null}}});
    let reply = ask(sluice, &changed(&seen, &unlabelled)).await?;
    ensure!(
        reply.is_held("ClusterNotObserved"),
        "a Cluster that may ask for a release: {reply:?}"
    );

    edited(sluice, &cluster, &seen).await.context("an edit")?;
    created(sluice, &scene, &seen)
        .await
        .context("a Cluster that is created")?;
    moved(sluice, &cluster).await.context("a Cluster that is moved")?;
    unsynced(&scene, &cluster)
        .await
        .context("a replica that has read nothing")
}

/// What no replica has seen, as changes of the request about a settled Cluster.
fn unknown(seen: &Value, other: &str) -> Vec<(&'static str, Value, &'static str)> {
    vec![
        (
            "another UID",
            json!({"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}}),
            "RecordUIDMismatch",
        ),
        (
            "a later generation",
            json!({"metadata": {"generation": generation(seen) + 1}}),
            "ClusterNotObserved",
        ),
        (
            "an earlier generation",
            json!({"metadata": {"generation": generation(seen) - 1}}),
            "CallOutdated",
        ),
        (
            "another release",
            json!({"metadata": {"labels": {TKR: other}}}),
            "LabelNotObserved",
        ),
        (
            "no release",
            json!({"metadata": {"labels": {TKR: null}}}),
            "TKRLabelRemoved",
        ),
        (
            "another version",
            json!({"spec": {"topology": {"version": VERSIONS[2]}}}),
            "RecordTargetMismatch",
        ),
        (
            "never seen",
            json!({"metadata": {"name": "never-seen"}}),
            "RecordNotFound",
        ),
        (
            "never seen, of a release that does not exist",
            json!({"metadata": {"name": "never-seen", "labels": {TKR: "v1.36.3---nowhere.1"}}}),
            "TKRNotFound",
        ),
    ]
}

/// The later generation becomes the one that Sluice has seen.
async fn edited(sluice: &Replica, cluster: &Cluster, seen: &Value) -> Result<()> {
    let edit =
        json!({"spec": {"topology": {"controlPlane": {"metadata": {"labels": {"harness.test/edit": "1"}}}}}});
    cluster.patch(&edit).await?;
    let next = changed(seen, &json!({"metadata": {"generation": generation(seen) + 1}}));
    becomes_released(sluice, &next).await
}

/// The Cluster that was never seen is made.
async fn created(sluice: &Replica, scene: &Scene, seen: &Value) -> Result<()> {
    let label = seen["metadata"]["labels"][TKR].as_str().context("no label")?;
    let version = seen["spec"]["topology"]["version"]
        .as_str()
        .context("no version")?;
    let object = sluice_tests::objects::cluster(scene.namespace(), "never-seen", version, Some(label), 0);
    scene.apply(&[object]).await?;
    let path = format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/clusters/never-seen",
        scene.namespace()
    );
    wait::until("the creation to be released", TIMEOUT, || async {
        // Cluster API edits the spec once its own call is released.
        let created = scene.objects().get(&path).await?.context("no Cluster")?;
        match ask(sluice, &created).await? {
            reply if reply.is_released() => Ok(()),
            reply => wait::not_yet(format!("{reply:?}")),
        }
    })
    .await?;
    Ok(())
}

/// The UID that was held is that of the Cluster, and the one before is not any more. A Cluster that has a control plane is not
/// created again, so another hook is asked.
async fn moved(sluice: &Replica, cluster: &Cluster) -> Result<()> {
    let before = cluster.object().await?;
    let reply = ask_at_rest(sluice, &before).await?;
    ensure!(reply.is_released(), "before the move: {reply:?}");
    cluster.relocate().await?;
    let after = cluster.object().await?;
    becomes_released_at_rest(sluice, &after).await?;
    let uid = json!({"metadata": {"uid": before["metadata"]["uid"]}});
    let reply = ask_at_rest(sluice, &changed(&after, &uid)).await?;
    ensure!(
        reply.is_held("RecordUIDMismatch"),
        "the UID from before: {reply:?}"
    );
    Ok(())
}

/// A replica that may read nothing has an empty store, which looks like a management cluster without Clusters.
async fn unsynced(scene: &Scene, cluster: &Cluster) -> Result<()> {
    let stack = scene.world().stack();
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "late", "namespace": scene.namespace()},
    });
    scene.apply(&[account]).await?;
    let token = token(&scene.client(), scene.namespace(), "late").await?;
    let settings = Settings {
        // It must not write beside the one that reconciles, so it stays without the right to lead.
        arguments: ["--leader-elect-namespace", scene.namespace()]
            .map(str::to_owned)
            .to_vec(),
        ..Settings::new("sluice-late")
    };
    let late = Replica::start_unready(stack, settings, &token).await?;

    let seen = cluster.object().await?;
    let reply = wait::until("the replica to listen", TIMEOUT, || async {
        ask_at_rest(&late, &seen).await.map_err(Into::into)
    })
    .await?;
    ensure!(reply.is_held("Starting"), "a managed Cluster: {reply:?}");
    let unlabelled = json!({"metadata": {"name": "never-seen", "labels": {TKR: null}}});
    let reply = ask_at_rest(&late, &changed(&seen, &unlabelled)).await?;
    ensure!(
        reply.is_held("Starting"),
        "a Cluster that may be none of ours: {reply:?}"
    );

    let bindings = ROLES.map(|role| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("{role}-late")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "late", "namespace": scene.namespace()}],
        })
    });
    scene.apply(&bindings).await?;
    let mut outcome = becomes_released_at_rest(&late, &seen).await;
    late.kill().await?;
    for role in ROLES {
        let binding = format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{role}-late");
        outcome = outcome.and(scene.objects().delete(&binding).await);
    }
    outcome
}

/// Asks about a Cluster that has a control plane.
async fn ask_at_rest(sluice: &Replica, cluster: &Value) -> Result<HookReply> {
    let version = json!({"kubernetesVersion": cluster["spec"]["topology"]["version"]});
    sluice.ask("AfterClusterUpgrade", cluster, &version).await
}

async fn becomes_released_at_rest(sluice: &Replica, cluster: &Value) -> Result<()> {
    wait::until("the hook to be released", TIMEOUT, || async {
        match ask_at_rest(sluice, cluster).await? {
            reply if reply.is_released() => Ok(()),
            reply => wait::not_yet(format!("{reply:?}")),
        }
    })
    .await?;
    Ok(())
}

async fn ask(sluice: &Replica, cluster: &Value) -> Result<HookReply> {
    sluice.ask(CREATE, cluster, &json!({})).await
}

async fn is_released(sluice: &Replica, cluster: &Value) -> Result<()> {
    let reply = ask(sluice, cluster).await?;
    ensure!(reply.is_released(), "answered {reply:?}");
    Ok(())
}

async fn becomes_released(sluice: &Replica, cluster: &Value) -> Result<()> {
    wait::until("the hook to be released", TIMEOUT, || async {
        let reply = ask(sluice, cluster).await?;
        if reply.is_released() {
            Ok(())
        } else {
            wait::not_yet(format!("{reply:?}"))
        }
    })
    .await?;
    Ok(())
}

fn generation(cluster: &Value) -> i64 {
    cluster["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// `object` after a merge patch.
fn changed(object: &Value, change: &Value) -> Value {
    let Value::Object(fields) = change else {
        return change.clone();
    };
    let mut next = object.clone();
    for (field, value) in fields {
        if value.is_null() {
            next.as_object_mut().map(|object| object.remove(field));
        } else {
            next[field] = changed(&object[field], value);
        }
    }
    next
}
