use serde_json::json;
use sluice_crds::lifecycle::{CheckRecord, CheckState};

use super::*;
use crate::gates::judge::cases::{
    Edit, Given, OBJECT, OBSERVED as NOT_OBSERVED, Without, Wrong, each_clause_is_needed, helm_chart_proxy,
    release as release_at,
};

#[rustfmt::skip]
const WRONG: &[Wrong] = &[
    ("not paused", |given| given.set("/metadata", "annotations", json!({"cluster.x-k8s.io/paused": ""})), CheckReason::DeliverySuspended, Without::Proven),
    ("typed", |given| given.set("/metadata", "annotations", json!(["cluster.x-k8s.io/paused"])), CheckReason::NotObserved, Without::Proven),
    ("continuous", |given| given.set("/spec", "reconcileStrategy", json!("InstallOnce")), CheckReason::DeliverySuspended, Without::Proven),
    ("typed", |given| given.set("/spec", "reconcileStrategy", json!(["InstallOnce"])), CheckReason::NotObserved, Without::Proven),
    ("version wanted", |given| given.set("/spec", "version", json!("1.18.3")), CheckReason::NotAtVersion, Without::Proven),
    ("version wanted", |given| given.set("/spec", "version", json!("^1.18.2")), CheckReason::NotAtVersion, Without::Proven),
    ("version wanted", |given| given.set("/spec", "version", json!("v1.18.2")), CheckReason::NotAtVersion, Without::Proven),
    ("version wanted", |given| given.remove("/spec", "version"), CheckReason::NotAtVersion, Without::Proven),
    ("one release", |given| given.related.push(release_at("cilium-prod-1-other", "1.17.4")), CheckReason::SeveralMatches, Without::Proven),
    ("release exists", |given| given.related.clear(), CheckReason::ObjectNotFound, Without::Unlike),
    ("release exists", |given| given.set_release("/metadata/labels", CAPI_CLUSTER_NAME, json!("prod-2")), CheckReason::ObjectNotFound, Without::Unlike),
    ("release exists", |given| given.set_release("/metadata/labels", PROXY_NAME, json!("calico")), CheckReason::ObjectNotFound, Without::Unlike),
    ("release exists", |given| given.set_release("/metadata", "namespace", json!("team-b")), CheckReason::ObjectNotFound, Without::Unlike),
    ("release typed", |given| given.set_release("/metadata", "annotations", json!(["cluster.x-k8s.io/paused"])), CheckReason::NotObserved, Without::Proven),
    ("release typed", |given| given.set_release("/spec", "reconcileStrategy", json!(["InstallOnce"])), CheckReason::NotObserved, Without::Proven),
    ("controlled", |given| given.set_release("/metadata/ownerReferences/0", "uid", json!("u0")), CheckReason::BelongsElsewhere, Without::Proven),
    ("controlled", |given| given.set_release("/metadata/ownerReferences/0", "controller", json!(false)), CheckReason::BelongsElsewhere, Without::Proven),
    ("controlled", |given| given.set_release("/metadata", "ownerReferences", json!([])), CheckReason::BelongsElsewhere, Without::Proven),
    ("controlled", |given| given.remove("/metadata", "uid"), CheckReason::BelongsElsewhere, Without::Proven),
    ("of the Cluster", |given| given.set_release("/spec/clusterRef", "name", json!("prod-2")), CheckReason::BelongsElsewhere, Without::Proven),
    ("of the Cluster", |given| given.set_release("/spec/clusterRef", "namespace", json!("team-b")), CheckReason::BelongsElsewhere, Without::Proven),
    ("of the Cluster", |given| given.set_release("/spec/clusterRef", "kind", json!("Machine")), CheckReason::BelongsElsewhere, Without::Proven),
    ("of the Cluster", |given| given.set_release("/spec/clusterRef", "apiVersion", json!("example.com/v1")), CheckReason::BelongsElsewhere, Without::Proven),
    ("of the Cluster", |given| given.set_release("/spec", "clusterRef", json!({})), CheckReason::BelongsElsewhere, Without::Proven),
    ("release not deleting", |given| given.set_release("/metadata", "deletionTimestamp", json!("2026-11-26T10:02:11Z")), CheckReason::ObjectDeleting, Without::Proven),
    ("release not paused", |given| given.set_release("/metadata", "annotations", json!({"cluster.x-k8s.io/paused": "true"})), CheckReason::DeliverySuspended, Without::Proven),
    ("release continuous", |given| given.set_release("/spec", "reconcileStrategy", json!("InstallOnce")), CheckReason::DeliverySuspended, Without::Proven),
    ("version delivered", |given| given.set_release("/spec", "version", json!("1.17.4")), CheckReason::NotAtVersion, Without::Proven),
    ("version delivered", |given| given.set_release("/spec", "version", Value::Null), CheckReason::NotAtVersion, Without::Proven),
    ("version delivered", |given| { given.version = None; given.set("/spec", "version", json!("1.18.3")); }, CheckReason::NotAtVersion, Without::Proven),
    ("release observed", |given| given.set_release("/metadata", "generation", json!(6)), CheckReason::NotObserved, Without::Proven),
    ("release observed", |given| given.set_release("/status", "observedGeneration", Value::Null), CheckReason::NotObserved, Without::Proven),
    // The summary Ready is written after the others.
    ("not failed", |given| given.set_condition("HelmReleaseReady", "False", "HelmInstallOrUpgradeFailed"), CheckReason::DeliveryFailed, Without::Proven),
    ("not failed", |given| given.set_condition("ClusterAvailable", "False", "GetKubeconfigFailed"), CheckReason::DeliveryFailed, Without::Proven),
    ("not failed", |given| given.set_release("/status", "status", json!("failed")), CheckReason::DeliveryFailed, Without::Unlike),
    ("ready", |given| given.set_condition("Ready", "False", "NotReady"), CheckReason::DeliveryInProgress, Without::Proven),
    ("ready", |given| given.set_condition("Ready", "Unknown", "NotReady"), CheckReason::DeliveryInProgress, Without::Proven),
    ("ready", |given| given.set_release("/status", "conditions", json!([])), CheckReason::DeliveryInProgress, Without::Proven),
    ("deployed", |given| given.set_release("/status", "status", json!("superseded")), CheckReason::DeliveryInProgress, Without::Proven),
    ("deployed", |given| given.set_release("/status", "status", json!("pending-rollback")), CheckReason::DeliveryInProgress, Without::Proven),
    ("deployed", |given| given.set_release("/status", "status", Value::Null), CheckReason::DeliveryInProgress, Without::Proven),
];

#[test]
fn each_clause_of_a_helm_chart_proxy_is_needed() {
    each_clause_is_needed(helm_chart_proxy, &[OBJECT, NOT_OBSERVED, WRONG].concat());
}

#[test]
fn the_proof_is_that_of_the_helm_release_proxy() {
    assert_eq!(
        helm_chart_proxy().judged(),
        Verdict::Proven {
            uid: "u2".to_owned(),
            generation: 5
        }
    );
}

#[test]
fn a_cluster_reference_without_kind_is_accepted() {
    let mut given = helm_chart_proxy();
    given.set_release(
        "/spec",
        "clusterRef",
        json!({"name": "prod-1", "namespace": "team-a"}),
    );
    assert_eq!(given.judged().reason(), None);
}

#[test]
fn without_a_version_both_have_the_same() {
    let mut given = helm_chart_proxy();
    given.version = None;
    assert_eq!(given.judged().reason(), None);
}

/// Broken values for another Cluster stop the reconcile of the HelmChartProxy.
#[test]
fn the_condition_of_the_proxy_explains_a_late_release() {
    let mut given = helm_chart_proxy();
    given.set_release("/spec", "version", json!("1.17.4"));
    given.set(
        "/status",
        "conditions",
        json!([{
            "type": "HelmReleaseProxySpecsUpToDate", "status": "False", "reason": "ValueParsingFailed",
            "message": "failed to parse values\n on cluster prod-2",
        }]),
    );
    assert_eq!(
        given.judged(),
        Verdict::Waiting {
            reason: CheckReason::NotAtVersion,
            message: "HelmReleaseProxy cilium-prod-1-x7k2p is not at 1.18.2".to_owned(),
            detail: "HelmReleaseProxySpecsUpToDate=False (ValueParsingFailed): failed to parse values on cluster prod-2"
                .to_owned(),
        }
    );
}

#[test]
fn a_failed_release_is_a_failure_with_the_condition_as_its_detail() {
    let mut given = helm_chart_proxy();
    given.set_condition("HelmReleaseReady", "False", "HelmInstallOrUpgradeFailed");
    given.set_condition("Ready", "False", "NotReady");
    assert_eq!(
        given.judged(),
        Verdict::Failed {
            reason: CheckReason::DeliveryFailed,
            message: "HelmReleaseProxy cilium-prod-1-x7k2p failed".to_owned(),
            detail: "HelmReleaseReady=False (HelmInstallOrUpgradeFailed): of Helm".to_owned(),
        }
    );
}

/// Returns a recorded proof whose release Helm is at work on.
fn reconciling() -> Given {
    let mut given = helm_chart_proxy();
    given.record();
    given.set_condition("HelmReleaseReady", "False", "HelmReleasePending");
    given.set_condition("Ready", "False", "NotReady");
    given.set_release("/status", "status", json!("pending-upgrade"));
    given
}

#[test]
fn a_recorded_proof_outlives_a_reconcile_of_the_same_generation() {
    assert_eq!(reconciling().judged().reason(), None);
    let mut unrecorded = reconciling();
    unrecorded.latch = None;
    assert_eq!(
        unrecorded.judged().reason(),
        Some(CheckReason::DeliveryInProgress)
    );
}

#[rustfmt::skip]
const WITHDRAWN: &[(&str, Edit, CheckReason)] = &[
    ("failure", |given| given.set_condition("HelmReleaseReady", "False", "HelmInstallOrUpgradeFailed"), CheckReason::DeliveryFailed),
    ("failed status", |given| given.set_release("/status", "status", json!("failed")), CheckReason::DeliveryFailed),
    ("kubeconfig", |given| given.set_condition("ClusterAvailable", "False", "GetKubeconfigFailed"), CheckReason::DeliveryFailed),
    ("unavailable", |given| given.set_condition("ClusterAvailable", "Unknown", "Other"), CheckReason::DeliveryInProgress),
    ("unknown reason", |given| given.set_condition("HelmReleaseReady", "False", "Newer"), CheckReason::DeliveryInProgress),
    ("rollback", |given| given.set_release("/status", "status", json!("pending-rollback")), CheckReason::DeliveryInProgress),
    ("pause", |given| given.set_release("/metadata", "annotations", json!({"cluster.x-k8s.io/paused": ""})), CheckReason::DeliverySuspended),
    ("pause of the proxy", |given| given.set("/metadata", "annotations", json!({"cluster.x-k8s.io/paused": ""})), CheckReason::DeliverySuspended),
    ("deletion", |given| given.set_release("/metadata", "deletionTimestamp", json!("2026-11-26T10:02:11Z")), CheckReason::ObjectDeleting),
    ("absence", |given| given.related.clear(), CheckReason::ObjectNotFound),
    ("absence of the proxy", |given| given.object = None, CheckReason::ObjectNotFound),
    ("recreated", |given| given.set_release("/metadata", "uid", json!("u3")), CheckReason::DeliveryInProgress),
    ("edited", edited, CheckReason::DeliveryInProgress),
    ("other version", at_another_version, CheckReason::DeliveryInProgress),
    ("recorded at another version", |given| record(given).version = "1.17.4".to_owned(), CheckReason::DeliveryInProgress),
    ("recorded without uid", |given| record(given).uid = None, CheckReason::DeliveryInProgress),
    ("recorded without generation", |given| record(given).generation = None, CheckReason::DeliveryInProgress),
    ("recorded as waiting", |given| record(given).state = CheckState::Waiting, CheckReason::DeliveryInProgress),
    ("recorded as failed", |given| record(given).state = CheckState::Failed, CheckReason::DeliveryInProgress),
];

#[test]
fn anything_else_withdraws_a_recorded_proof() {
    for (name, edit, reason) in WITHDRAWN {
        let mut given = reconciling();
        edit(&mut given);
        assert_eq!(
            given.judged().reason(),
            Some(*reason),
            "{name}: {:?}",
            given.judged()
        );
    }
}

fn record(given: &mut Given) -> &mut CheckRecord {
    given.latch.as_mut().unwrap()
}

/// The next generation, as CAAPH observes it before it has deployed it.
fn edited(given: &mut Given) {
    given.set_release("/metadata", "generation", json!(6));
    given.set_release("/status", "observedGeneration", json!(6));
}

/// A gate that expects another version, at the generation that proved the earlier one.
fn at_another_version(given: &mut Given) {
    given.version = Some("1.18.3");
    given.set("/spec", "version", json!("1.18.3"));
    given.set_release("/spec", "version", json!("1.18.3"));
}
