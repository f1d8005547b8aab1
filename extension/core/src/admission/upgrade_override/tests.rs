//! Creates over a cached Cluster, by one changed field each.

use std::{fs, path::Path};

use jiff::ToSpan as _;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::lifecycle::UpgradeOverride;

use super::*;
use crate::{
    cache::stores::tests::{Given, object, undecodable},
    upgrade::overrides::{Override, POLICY, Unusable},
};

const RELEASE: &str = "v1.36.3---a.1";

fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

/// A Cluster with package `old` in its record, `antrea` in its ClusterBootstrap, and `metrics` in the template of the release.
fn stores() -> Given {
    let antrea = json!({"refName": "antrea.tanzu.vmware.com.1.0.0"});
    let metrics = json!([{"refName": "metrics.tanzu.vmware.com.1.0.0"}]);
    let record = json!({
        "schema": 1, "clusterUID": "uid", "observedClusterGeneration": 1, "observedBootstrapGeneration": 1, "label": RELEASE, "to": "v1.36.3",
        "packages": [{"name": "old", "version": "1.0.0", "state": "Pending"}],
    });
    let bootstrap = json!({"spec": {"cni": antrea}, "status": {"upgrade": record}});
    Given {
        clusters: vec![object(Some("team-a"), "prod-1", &json!({}), &json!({"spec": {}}))],
        bootstraps: vec![object(Some("team-a"), "prod-1", &json!({}), &bootstrap)],
        templates: vec![object(
            Some("system"),
            RELEASE,
            &json!({}),
            &json!({"spec": {"additionalPackages": metrics}}),
        )],
        ..Given::default()
    }
}

fn spec() -> Value {
    json!({
        "clusterName": "prod-1",
        "target": {"kubernetesVersion": "v1.36.3", "release": RELEASE},
        "gate": "ControlPlane",
        "packages": ["metrics"],
        "reason": "CHG-4711: metrics is unused here",
        "expiresAt": "2026-11-29T18:00:00Z",
    })
}

/// Returns the spec with another value of a field.
fn with(field: &str, value: Value) -> Value {
    let mut spec = spec();
    *spec.pointer_mut(field).unwrap() = value;
    spec
}

fn judged_in(spec: &Value, stores: &Given) -> OverrideVerdict {
    let spec = decoded(&spec.to_string()).unwrap();
    let new = NewOverride {
        namespace: "team-a",
        user: "ada",
        spec: &spec,
    };
    judge(&new, stores, "system", now())
}

fn faults(of: &OverrideVerdict) -> Vec<&str> {
    of.verdict
        .faults
        .iter()
        .map(|fault| fault.field.as_str())
        .collect()
}

/// A completed override counts for the Cluster.
#[rstest]
#[case::one(spec())]
#[case::of_the_bootstrap(with("/packages", json!(["antrea"])))]
#[case::of_the_record(with("/packages", json!(["old", "antrea", "metrics"])))]
#[case::every(with("/packages", json!(["*"])))]
#[case::another_step(with("/target/kubernetesVersion", json!("v1.35.4")))]
#[case::after_seven_days(with("/expiresAt", json!("2026-12-06T12:00:00Z")))]
#[case::the_longest_reason(with("/reason", json!("é".repeat(1024))))]
fn user_and_uid_are_filled_in(#[case] spec: Value) {
    let judged = judged_in(&spec, &stores());
    assert_eq!(faults(&judged), Vec::<&str>::new(), "{judged:?}");
    assert_eq!(judged.requested_by.as_deref(), Some("ada"));
    assert_eq!(judged.cluster_uid.as_deref(), Some("uid"));

    let mut completed = spec;
    completed["requestedBy"] = json!(judged.requested_by);
    completed["clusterUID"] = json!(judged.cluster_uid);
    let of: UpgradeOverride = serde_json::from_value(json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "UpgradeOverride",
        "metadata": {"name": "one", "namespace": "team-a", "uid": "o-1", "creationTimestamp": now().to_string()},
        "spec": completed,
    }))
    .unwrap();
    assert!(Override::of(&of, "uid", now()).is_ok());
    let judged = judged_in(&completed, &stores());
    assert_eq!(
        judged,
        OverrideVerdict::default(),
        "given fields are not replaced"
    );
}

/// The judge of gates ignores what it can judge of these.
#[rstest]
#[case::unknown_cluster(with("/clusterName", json!("prod-2")), &["spec.clusterName"], None)]
#[case::now(with("/expiresAt", json!("2026-11-29T12:00:00Z")), &["spec.expiresAt"], Some(Unusable::Expired))]
#[case::the_past(with("/expiresAt", json!("2020-01-01T00:00:00Z")), &["spec.expiresAt"], Some(Unusable::Expired))]
#[case::eight_days(with("/expiresAt", json!("2026-12-07T12:00:00Z")), &["spec.expiresAt"], Some(Unusable::ExpiresTooLate))]
#[case::no_reason(with("/reason", json!("")), &["spec.reason"], Some(Unusable::Malformed))]
#[case::a_blank_reason(with("/reason", json!(" \u{a0}")), &["spec.reason"], Some(Unusable::Malformed))]
#[case::a_long_reason(with("/reason", json!("x".repeat(10 * 1024))), &["spec.reason"], Some(Unusable::Malformed))]
#[case::an_escape_sequence(with("/reason", json!("\u{1b}[2J")), &["spec.reason"], Some(Unusable::Malformed))]
#[case::a_control_character_of_two_bytes(with("/reason", json!("a\u{9b}2J")), &["spec.reason"], Some(Unusable::Malformed))]
#[case::a_version_of_two_lines(
    with("/target/kubernetesVersion", json!("v1.36.3\nv1.37.0")),
    &["spec.target.kubernetesVersion"],
    None
)]
#[case::a_release_with_a_bell(with("/target/release", json!("\u{7}")), &["spec.target.release"], None)]
#[case::no_package(with("/packages", json!([])), &["spec.packages"], Some(Unusable::Malformed))]
#[case::unknown_packages(with("/packages", json!(["a", "metrics", "b"])), &["spec.packages[0]", "spec.packages[2]"], None)]
#[case::a_full_name(with("/packages", json!(["metrics.tanzu.vmware.com"])), &["spec.packages[0]"], None)]
fn what_has_no_effect_is_refused(
    #[case] spec: Value,
    #[case] fields: &[&str],
    #[case] ignored: Option<Unusable>,
) {
    let judged = judged_in(&spec, &stores());
    // The template of another release has no package.
    let found = faults(&judged);
    let found: Vec<&str> = if fields == ["spec.target.release"] {
        found
            .into_iter()
            .filter(|field| !field.starts_with("spec.packages"))
            .collect()
    } else {
        found
    };
    assert_eq!(found, fields, "{judged:?}");
    assert_eq!((judged.requested_by, judged.cluster_uid), (None, None));
    for fault in &judged.verdict.faults {
        assert!(!fault.to_string().contains(char::is_control), "{fault}");
        assert!(fault.to_string().len() < 1024, "{fault}");
    }

    let mut completed = spec;
    completed["requestedBy"] = json!("ada");
    completed["clusterUID"] = json!("uid");
    let of = json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "UpgradeOverride",
        "metadata": {"name": "one", "uid": "o-1", "creationTimestamp": now().to_string()}, "spec": completed,
    });
    let of: UpgradeOverride = serde_json::from_value(of).unwrap();
    assert_eq!(Override::of(&of, "uid", now()).err(), ignored);
}

#[test]
fn more_packages_than_allowed_are_refused() {
    let names: Vec<String> = (0..10_000).map(|number| format!("p{number}")).collect();
    let judged = judged_in(&with("/packages", json!(names)), &stores());
    assert_eq!(judged.verdict.faults.len(), 1 + MAX_UNKNOWN);
    assert_eq!(faults(&judged).first(), Some(&"spec.packages"));
}

#[test]
fn the_uid_of_another_cluster_is_refused() {
    let mut other = spec();
    other["clusterUID"] = json!("another");
    assert_eq!(faults(&judged_in(&other, &stores())), ["spec.clusterUID"]);
}

#[test]
fn a_given_user_is_the_caller() {
    let mut given = spec();
    given["requestedBy"] = json!("ada");
    let judged = judged_in(&given, &stores());
    assert_eq!((faults(&judged), &judged.requested_by), (Vec::new(), &None));
    given["requestedBy"] = json!("eve");
    assert_eq!(faults(&judged_in(&given, &stores())), ["spec.requestedBy"]);
}

#[test]
fn an_override_is_of_a_cluster_of_its_namespace() {
    let spec = decoded(&spec().to_string()).unwrap();
    let new = NewOverride {
        namespace: "team-b",
        user: "ada",
        spec: &spec,
    };
    let judged = judge(&new, &stores(), "system", now());
    assert_eq!(faults(&judged), ["spec.clusterName"]);
}

/// An unmanaged Cluster has no packages.
#[test]
fn packages_of_a_cluster_without_a_bootstrap_are_those_of_the_release() {
    let mut unmanaged = stores();
    unmanaged.bootstraps.clear();
    assert_eq!(faults(&judged_in(&spec(), &unmanaged)), Vec::<&str>::new());
    unmanaged.templates.clear();
    assert_eq!(faults(&judged_in(&spec(), &unmanaged)), ["spec.packages[0]"]);
    assert_eq!(
        faults(&judged_in(&with("/packages", json!(["*"])), &unmanaged)),
        Vec::<&str>::new()
    );
}

#[rstest]
#[case::cluster("Cluster", Some("team-a"), "prod-1")]
#[case::bootstrap("ClusterBootstrap", Some("team-a"), "prod-1")]
#[case::template("ClusterBootstrapTemplate", Some("system"), RELEASE)]
fn an_undecodable_object_refuses_nothing(
    #[case] kind: &str,
    #[case] namespace: Option<&str>,
    #[case] name: &str,
) {
    let mut given = stores();
    given.undecodable = vec![undecodable(kind, namespace, name, &json!({}))];
    let judged = judged_in(&spec(), &given);
    assert_eq!(faults(&judged), Vec::<&str>::new());
    assert_eq!(judged.cluster_uid.as_deref(), Some("uid"));
}

#[rstest]
#[case::no_spec(json!({}), "spec")]
#[case::no_time(with("/expiresAt", json!("tomorrow")), "spec.expiresAt")]
#[case::another_gate(with("/gate", json!("Everything")), "spec.gate")]
#[case::no_list(with("/packages", json!("*")), "spec.packages")]
fn an_undecodable_spec_is_refused(#[case] spec: Value, #[case] field: &str) {
    assert_eq!(decoded(&spec.to_string()).unwrap_err().field, field);
}

#[test]
fn the_limits_of_the_expiry_are_exact() {
    let at = |expires: Timestamp| expiry(expires, now()).is_none();
    assert!(at(now() + 1.second()));
    assert!(!at(now()));
    assert!(at(now() + (7 * 24).hours()));
    assert!(!at(now() + (7 * 24).hours() + 1.second()));
}

/// Overrides count only while these objects exist.
#[test]
fn the_manifest_has_the_policy_that_overrides_need() {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/base/override-policy.yaml");
    let manifest = fs::read_to_string(base).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&manifest).unwrap();
    let named: Vec<_> = objects
        .iter()
        .map(|object| (object["kind"].as_str(), object["metadata"]["name"].as_str()))
        .collect();
    let expected = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    assert_eq!(named, expected.map(|kind| (Some(kind), Some(POLICY))));
    assert_eq!(objects[1]["spec"]["policyName"], POLICY);
}
