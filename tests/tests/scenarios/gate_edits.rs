//! A Cluster with packages and gates: whichever is late holds it, and each edit during a hold does what it is for, and no more.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::{Chart, Check, Gate, Release};
use sluice_tests::observer::{Event, Revision};
use sluice_tests::requests::apply::apply_all;
use sluice_tests::scenario::verdict::in_order;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{is_completed, proven_before_written};
use crate::gates_only::{is_open, is_over};

/// Label that the gates select, the DaemonSet, and the check of it.
const AGENT: &str = "agent";

/// The Deployment, and the check of it.
const OPERATOR: &str = "operator";

/// Gates in the order in which they hold: by name.
const INVALID: &str = "a-invalid";
const ROW: &str = "a-row";
const RELAXED: &str = "b-relaxed";
const DELETED: &str = "c-deleted";
const AUDIT: &str = "d-audit";

/// Tag of both workloads, and the one that no workload gets.
const TAG: &str = "v2";
const LATE: &str = "v3";

/// Name of the policy, and of the configuration of the webhook.
const SHIPPED: &str = "sluice-gates";

const WEBHOOK: &str = "upgradegate.validating.lifecycle.sluice.dev";

/// Confirms the deletion of a gate that holds.
const CONFIRM: &str = "lifecycle.sluice.dev/confirm-delete";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "gate-edits",
        "packages that are late hold beside gates that are open, and the reverse; during a hold a removed label, a refused deletion and an invalid gate release nothing, and a row, a relaxed row, a confirmed deletion and mode Audit end the hold of their gate",
        |scene| Box::pin(run(scene)),
    )
    .gated()
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let releases = [
        scene.release(VERSIONS[0], "1.0.0", Delay::NONE)?,
        scene.release(VERSIONS[1], "2.0.0", Delay::Never)?,
        scene.release(VERSIONS[2], "3.0.0", Delay::NONE)?,
    ];
    for release in &releases {
        scene.publish(release).await?;
    }
    let one = scene.cluster("one").labelled(AGENT, "demo").workers(1);
    let one = one.create_settled(&releases[0]).await?;
    let workloads = [workload("DaemonSet", AGENT), workload("Deployment", OPERATOR)];
    apply_all(&one.workload()?.api.admin_client(), &workloads).await?;
    one.rolled_out(AGENT, TAG, TIMEOUT).await?;
    let gates = [
        gate(ROW, agent(), None),
        gate(RELAXED, operator(), Some(LATE)),
        gate(DELETED, agent(), Some(LATE)),
        gate(AUDIT, agent(), Some(LATE)),
    ];
    for gate in &gates {
        scene.gate(gate).await?;
    }
    for gate in &gates {
        scene.gate_is_in_force(gate.name()).await?;
    }

    packages_are_late(&one, &releases[1]).await?;
    gates_are_late(&one, &releases[2]).await
}

/// The gates are open, and the Cluster waits for a package.
async fn packages_are_late(one: &Cluster, release: &Release) -> Result<()> {
    let since = one.upgrade(release).await?;
    one.says("antrea", TIMEOUT).await?;
    let what = format!("the gates of {} to open", one.name());
    one.cluster_upgrade_until(what, TIMEOUT, |record| {
        let status = &record["status"];
        if is_open(status, "BeforeClusterUpgrade", VERSIONS[1]) && status["heldBy"].is_null() {
            Ok(())
        } else {
            wait::not_yet(status)
        }
    })
    .await?;
    one.control_plane_is_untouched(since).await?;
    one.delay("antrea", Delay::NONE);
    proven_before_written(one, release, since).await?;
    one.is_settled(TIMEOUT).await?;
    is_over(one).await?;
    is_completed(one).await
}

/// The packages are ready, and the Cluster waits for its gates, one after the other.
async fn gates_are_late(one: &Cluster, release: &Release) -> Result<()> {
    let since = one.upgrade(release).await?;
    let proven = one.packages_proven(release, since, TIMEOUT).await?;
    one.held_by(ROW, "NoVersionForHop", TIMEOUT).await?;
    one.says("NoVersionForHop: a-row", TIMEOUT).await?;

    a_removed_label_holds(one, since).await?;
    rows_end_holds(one, since).await?;
    a_deletion_is_confirmed(one, since).await?;
    an_invalid_gate_holds(one, since).await?;
    let audited = audit_releases(one, since).await?;

    let written = one.control_plane_written(VERSIONS[2], since, TIMEOUT).await?;
    in_order(&[
        ("the last proof of a package", proven.revision),
        ("mode Audit of the last gate", audited),
        ("the version of the control plane", written.revision),
    ])
}

/// The right to label Clusters is not the right to pass a gate.
async fn a_removed_label_holds(one: &Cluster, since: Revision) -> Result<()> {
    let label = |value: Value| json!({"metadata": {"labels": {AGENT: value}}});
    one.patch(&label(Value::Null)).await?;
    one.held_by(ROW, "GateDeselected", TIMEOUT).await?;
    one.says("GateDeselected", TIMEOUT).await?;
    one.control_plane_is_untouched(since).await?;
    one.patch(&label(json!("demo"))).await?;
    one.held_by(ROW, "NoVersionForHop", TIMEOUT).await.map(drop)
}

/// A gate is judged again with an added row, and with a row that asks for less.
async fn rows_end_holds(one: &Cluster, since: Revision) -> Result<()> {
    let scene = one.scene();
    scene.gate(&gate(ROW, agent(), Some(TAG))).await?;
    one.held_by("b-relaxed/operator", "NotAtVersion", TIMEOUT).await?;
    one.has_event_after(since, "GateEdited", ROW, TIMEOUT).await?;
    one.control_plane_is_untouched(since).await?;

    scene.gate(&gate(RELAXED, operator(), Some(TAG))).await?;
    one.held_by("c-deleted/agent", "NotAtVersion", TIMEOUT).await?;
    one.has_event_after(since, "GateEdited", RELAXED, TIMEOUT).await?;
    one.control_plane_is_untouched(since).await
}

/// The policy refuses the deletion of a gate that holds, unless it is confirmed.
async fn a_deletion_is_confirmed(one: &Cluster, since: Revision) -> Result<()> {
    let scene = one.scene();
    let path = scene.gate_path(DELETED);
    wait::until("the gate to count the Cluster", TIMEOUT, || async {
        let gate = scene.objects().get(&path).await?.unwrap_or_default();
        if gate["status"]["holding"] == 1 {
            Ok(())
        } else {
            wait::not_yet(&gate["status"])
        }
    })
    .await?;
    let refused = scene.objects().delete(&path).await.err();
    let refused = refused.context("a gate that holds is deleted")?;
    ensure!(
        format!("{refused:#}").contains(SHIPPED),
        "the deletion is refused by another rule: {refused:#}"
    );
    one.held_by("c-deleted/agent", "NotAtVersion", TIMEOUT).await?;
    one.control_plane_is_untouched(since).await?;

    let confirmed = json!({"metadata": {"annotations": {CONFIRM: "true"}}});
    scene.objects().merge(&path, &confirmed).await?;
    scene.objects().delete(&path).await?;
    one.held_by("d-audit/agent", "NotAtVersion", TIMEOUT).await?;
    one.has_event_after(since, "GateRemoved", DELETED, TIMEOUT)
        .await?;
    one.control_plane_is_untouched(since).await
}

/// The webhook refuses an invalid gate. One that was stored without it holds until it is corrected.
async fn an_invalid_gate_holds(one: &Cluster, since: Revision) -> Result<()> {
    let scene = one.scene();
    let invalid = gate(INVALID, agent().with("cel", json!("object.")), Some(TAG));
    let refused = scene.gate(&invalid).await.err();
    let refused = refused.context("an invalid gate is stored")?;
    ensure!(
        format!("{refused:#}").contains(WEBHOOK),
        "the invalid gate is refused by another rule: {refused:#}"
    );

    let webhook = format!("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{SHIPPED}");
    scene.objects().delete(&webhook).await?;
    // The API server asks until it observes the deletion.
    wait::until("the invalid gate to be stored", TIMEOUT, || async {
        scene.gate(&invalid).await.map_err(Into::into)
    })
    .await?;
    one.held_by(INVALID, "GateInvalid", TIMEOUT).await?;
    one.says("GateInvalid", TIMEOUT).await?;
    one.control_plane_is_untouched(since).await?;

    let extension = scene.world().extension()?;
    extension.admit_gates(SHIPPED, scene.namespace()).await?;
    scene.gate(&gate(INVALID, agent(), Some(TAG))).await?;
    one.held_by("d-audit/agent", "NotAtVersion", TIMEOUT).await?;
    one.control_plane_is_untouched(since).await
}

/// Mode Audit ends the last hold, and reports the missing proof. Returns the revision before the edit.
async fn audit_releases(one: &Cluster, since: Revision) -> Result<Revision> {
    let scene = one.scene();
    let before = scene.world().observer().catch_up().await?;
    let audit = json!({"spec": {"mode": "Audit"}});
    scene.objects().merge(&scene.gate_path(AUDIT), &audit).await?;
    one.has_event_after(before, "GateEdited", AUDIT, TIMEOUT).await?;
    one.has_event_after(before, "GatesReleased", VERSIONS[2], TIMEOUT)
        .await?;
    one.control_plane_written(VERSIONS[2], since, TIMEOUT).await?;
    one.has_event_after(before, "AuditWouldHold", AUDIT, TIMEOUT)
        .await?;
    let missed = |event: &Event| matches!(event, Event::AuditWouldHold { gate, .. } if gate == AUDIT);
    one.milestone(
        "a version without the proof of an Audit gate",
        TIMEOUT,
        before,
        missed,
    )
    .await?;
    one.is_settled(TIMEOUT).await?;
    is_over(one).await?;
    is_completed(one).await?;
    Ok(before)
}

/// A gate that is proven for the first upgrade, and for the second one if `tag` is that of the workloads.
fn gate(name: &str, check: Check, tag: Option<&str>) -> Gate {
    let gate = Gate::new(name)
        .selects(&json!({AGENT: "demo"}))
        .row("1.35", &[("image", TAG)])
        .check(check);
    match tag {
        Some(tag) => gate.row("1.36", &[("image", tag)]),
        None => gate,
    }
}

fn agent() -> Check {
    check("DaemonSet", AGENT)
}

fn operator() -> Check {
    check("Deployment", OPERATOR)
}

fn check(kind: &str, name: &str) -> Check {
    Check::workload(name, ("apps/v1", kind), Chart::NAMESPACE, name)
        .container(name)
        .version_key("image")
}

fn workload(kind: &str, name: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": Chart::NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": name, "image": Chart::new(name, "", TAG).image()}]},
            },
        },
    })
}
