use rstest::rstest;
use serde_json::json;

use super::super::flux::{WITHDRAWN, WRONG as OF_FLUX, at_its_interval, each_withdraws};
use super::*;
use crate::gates::judge::cases::{
    CLUSTER, Edit, Given, OBJECT, Without, Wrong, each_clause_is_needed, kustomization,
    kustomization_of_workload,
};
use crate::gates::judge::{JudgedKind, Related, related};

#[rustfmt::skip]
const WRONG: &[Wrong] = &[
    ("source named", |given| given.set("/spec/sourceRef", "kind", json!("Secret")), CheckReason::ObjectNotFound, Without::Unlike),
    ("source named", |given| given.set("/spec/sourceRef", "name", json!("../addons")), CheckReason::ObjectNotFound, Without::Unlike),
    ("source named", |given| given.set("/spec/sourceRef", "namespace", json!("team-a/secrets")), CheckReason::ObjectNotFound, Without::Unlike),
    ("source named", |given| given.set("/spec", "sourceRef", Value::Null), CheckReason::ObjectNotFound, Without::Unlike),
    ("source of the namespace", |given| given.set("/spec/sourceRef", "namespace", json!("team-b")), CheckReason::BelongsElsewhere, Without::Unlike),
    ("source exists", |given| given.related.clear(), CheckReason::ObjectNotFound, Without::Unlike),
    ("source exists", |given| given.set_source("/metadata", "name", json!("other")), CheckReason::ObjectNotFound, Without::Unlike),
    ("source exists", |given| given.set_source("/metadata", "namespace", json!("team-b")), CheckReason::ObjectNotFound, Without::Unlike),
    ("source typed", |given| given.set_source("/spec", "suspend", json!("true")), CheckReason::NotObserved, Without::Proven),
    ("source typed", |given| given.set_source("/status", "conditions", json!({"type": "Stalled", "status": "True"})), CheckReason::NotObserved, Without::Proven),
    ("source not deleting", |given| given.set_source("/metadata", "deletionTimestamp", json!("2026-11-26T10:02:11Z")), CheckReason::ObjectDeleting, Without::Proven),
    ("source not suspended", |given| given.set_source("/spec", "suspend", json!(true)), CheckReason::DeliverySuspended, Without::Proven),
    ("source not stalled", |given| given.set_source("/status", "conditions", json!([{"type": "Stalled", "status": "True", "reason": "URLInvalid", "message": "bad"}])), CheckReason::DeliveryFailed, Without::Proven),
    ("source observed", |given| given.set_source("/metadata", "generation", json!(8)), CheckReason::NotObserved, Without::Proven),
    ("source observed", |given| given.set_source("/status", "observedGeneration", Value::Null), CheckReason::NotObserved, Without::Proven),
    ("at version", |given| given.version = Some("v1.18.3"), CheckReason::NotAtVersion, Without::Proven),
    ("at version", |given| given.version = Some("1.18.2"), CheckReason::NotAtVersion, Without::Proven),
    ("at version", |given| given.version = Some("v1.18"), CheckReason::NotAtVersion, Without::Proven),
    ("at version", |given| given.version = Some(""), CheckReason::NotAtVersion, Without::Proven),
    ("at version", |given| given.version = Some("sha1:0a1b"), CheckReason::NotAtVersion, Without::Proven),
    // The tag was moved.
    ("revision attempted", |given| given.set_source("/status/artifact", "revision", json!("v1.18.2@sha1:ffff")), CheckReason::DeliveryInProgress, Without::Proven),
    ("revision attempted", |given| { given.version = None; given.set_source("/status/artifact", "revision", json!("v1.18.3@sha1:ffff")); }, CheckReason::DeliveryInProgress, Without::Proven),
    ("revision attempted", |given| { given.version = None; given.set_source("/status", "artifact", Value::Null); }, CheckReason::DeliveryInProgress, Without::Proven),
    ("revision attempted", |given| given.set("/status", "lastAttemptedRevision", json!("v1.17.4@sha1:0000")), CheckReason::DeliveryInProgress, Without::Unlike),
    ("not failed", |given| given.set_condition_of_object("Ready", "False", "HealthCheckFailed"), CheckReason::DeliveryFailed, Without::Unlike),
    ("not failed", |given| given.set_condition_of_object("Ready", "False", "ReconciliationFailed"), CheckReason::DeliveryFailed, Without::Unlike),
    ("revision applied", |given| given.set("/status", "lastAppliedRevision", json!("v1.17.4@sha1:0000")), CheckReason::DeliveryInProgress, Without::Proven),
    ("revision applied", |given| given.remove("/status", "lastAppliedRevision"), CheckReason::DeliveryInProgress, Without::Proven),
];

#[test]
fn each_clause_of_a_kustomization_is_needed() {
    each_clause_is_needed(kustomization, &[OBJECT, OF_FLUX, WRONG].concat());
}

#[rstest]
#[case::tag("v1.18.2@sha1:0a1b", "v1.18.2", true)]
#[case::whole("v1.18.2@sha1:0a1b", "v1.18.2@sha1:0a1b", true)]
#[case::reference("refs/tags/v1.18.2@sha1:0a1b", "refs/tags/v1.18.2", true)]
#[case::reference_without_its_prefix("refs/tags/v1.18.2@sha1:0a1b", "v1.18.2", false)]
#[case::branch("release/1.18@sha1:0a1b", "release/1.18", true)]
#[case::tag_of_an_artifact("1.18.2@sha256:0a1b", "1.18.2", true)]
#[case::tag_with_an_at("cilium@1.18.2@sha1:0a1b", "cilium@1.18.2", true)]
#[case::part_of_a_tag_with_an_at("cilium@1.18.2@sha1:0a1b", "cilium", false)]
#[case::digest("sha256:0a1b", "sha256:0a1b", true)]
#[case::digest_of_a_tag("v1.18.2@sha1:0a1b", "sha1:0a1b", false)]
#[case::longer_tag("v1.18.20@sha1:0a1b", "v1.18.2", false)]
#[case::other_case("V1.18.2@sha1:0a1b", "v1.18.2", false)]
#[case::no_name("@sha1:0a1b", "", false)]
#[case::empty("", "", false)]
fn the_version_of_a_revision_is_its_name_or_all_of_it(
    #[case] revision: &str,
    #[case] version: &str,
    #[case] expected: bool,
) {
    assert_eq!(has_version(revision, version), expected);
}

#[test]
fn without_a_version_the_revision_of_the_source_is_applied() {
    let mut given = kustomization();
    given.version = None;
    assert_eq!(given.judged().reason(), None, "{}", given.message());
}

/// Its status has no observed generation.
#[test]
fn an_external_artifact_reports_no_generation() {
    let mut given = kustomization();
    given.set_source("/status", "observedGeneration", Value::Null);
    given.set("/spec/sourceRef", "kind", json!("ExternalArtifact"));
    assert_eq!(given.judged().reason(), None, "{}", given.message());
    given.set_source("/status", "observedGeneration", json!(6));
    assert_eq!(given.judged().reason(), Some(CheckReason::NotObserved));
}

#[test]
fn one_of_the_workload_cluster_has_no_kubeconfig_and_may_name_a_source_of_another_namespace() {
    let given = kustomization_of_workload();
    assert_eq!(given.judged().reason(), None, "{}", given.message());
    let mut absent = given.clone();
    absent.related.clear();
    assert_eq!(
        absent.message(),
        "GitRepository flux-system/addons of Kustomization kube-system/cilium does not exist"
    );
    let mut remote = given;
    let of_cluster = json!({"secretRef": {"name": "prod-1-kubeconfig"}});
    remote.set("/spec", "kubeConfig", of_cluster);
    assert_eq!(remote.judged().reason(), Some(CheckReason::BelongsElsewhere));
}

/// Returns kind, namespace and name of the source to read.
fn read_for(given: &Given) -> Option<(&'static str, String, String)> {
    let source = related(
        JudgedKind::Kustomization,
        &given.expected(),
        given.object.as_ref(),
    )?;
    let Related::Object(source) = source else {
        panic!("{source:?}")
    };
    assert_eq!(source.api_version, "source.toolkit.fluxcd.io/v1");
    Some((source.kind, source.namespace, source.name))
}

#[test]
fn the_source_is_read_that_the_kustomization_names() {
    let mut given = kustomization();
    let source = |kind, namespace: &str| Some((kind, namespace.to_owned(), "addons".to_owned()));
    assert_eq!(given.expected().cluster, CLUSTER);
    assert_eq!(read_for(&given), source("GitRepository", "team-a"));
    for kind in KINDS {
        given.set("/spec/sourceRef", "kind", json!(kind));
        assert_eq!(read_for(&given), source(kind, "team-a"));
    }
    given.set("/spec/sourceRef", "namespace", json!(""));
    assert_eq!(read_for(&given), source(EXTERNAL_ARTIFACT, "team-a"));
    given.set("/spec/sourceRef", "namespace", json!("team-b"));
    assert_eq!(read_for(&given), None, "of another namespace");
    given.object = None;
    assert_eq!(read_for(&given), None);
    assert_eq!(
        read_for(&kustomization_of_workload()),
        source("GitRepository", "flux-system")
    );
}

/// The names become parts of a path, and the definition of Flux does not check them.
#[rstest]
#[case::kind("kind", "Secret")]
#[case::name_with_a_slash("name", "../../../../api/v1/namespaces/kube-system/secrets/token")]
#[case::name_with_a_query("name", "addons?watch=true")]
#[case::dots("name", "..")]
#[case::no_name("name", "")]
#[case::namespace("namespace", "team-a/secrets")]
fn no_other_path_is_read(#[case] key: &str, #[case] value: &str) {
    for mut given in [kustomization(), kustomization_of_workload()] {
        given.set("/spec/sourceRef", key, json!(value));
        assert_eq!(read_for(&given), None);
        assert_eq!(given.judged().reason(), Some(CheckReason::ObjectNotFound));
    }
}

#[test]
fn the_condition_of_a_late_source_is_the_detail() {
    let mut given = kustomization();
    given.version = Some("v1.18.3");
    given.set_source(
        "/status",
        "conditions",
        json!([
            {"type": "Ready", "status": "False", "reason": "GitOperationFailed", "message": "no tag\nv1.18.3"},
        ]),
    );
    assert_eq!(given.message(), "GitRepository addons is not at v1.18.3");
    assert_eq!(given.detail(), "Ready=False (GitOperationFailed): no tag v1.18.3");
}

#[test]
fn a_failed_health_check_is_a_failure_with_the_condition_as_its_detail() {
    let mut given = kustomization();
    given.set_condition_of_object("Ready", "False", "HealthCheckFailed");
    // It is written only after a success.
    given.set("/status", "observedGeneration", json!(2));
    assert_eq!(
        given.judged(),
        Verdict::Failed {
            reason: CheckReason::DeliveryFailed,
            message: "Kustomization cilium failed".to_owned(),
            detail: "Ready=False (HealthCheckFailed): of Flux".to_owned(),
        }
    );
}

#[rustfmt::skip]
const WITHDRAWN_HERE: &[(&str, Edit, CheckReason)] = &[
    ("failed health check", |given| given.set_condition_of_object("Ready", "False", "HealthCheckFailed"), CheckReason::DeliveryFailed),
    ("moved tag", |given| given.set_source("/status/artifact", "revision", json!("v1.18.2@sha1:ffff")), CheckReason::DeliveryInProgress),
    ("later revision", |given| given.set_source("/status/artifact", "revision", json!("v1.18.3@sha1:ffff")), CheckReason::NotAtVersion),
    ("later revision that is attempted", |given| { given.set_source("/status/artifact", "revision", json!("v1.18.2@sha1:ffff")); given.set("/status", "lastAttemptedRevision", json!("v1.18.2@sha1:ffff")); }, CheckReason::DeliveryInProgress),
    ("edited source", |given| given.set_source("/metadata", "generation", json!(8)), CheckReason::NotObserved),
    ("suspended source", |given| given.set_source("/spec", "suspend", json!(true)), CheckReason::DeliverySuspended),
    ("deleted source", |given| given.related.clear(), CheckReason::ObjectNotFound),
    ("another source", |given| given.set("/spec/sourceRef", "name", json!("other")), CheckReason::ObjectNotFound),
];

#[test]
fn anything_but_a_reconcile_withdraws_a_recorded_proof() {
    each_withdraws(kustomization, &[WITHDRAWN, WITHDRAWN_HERE].concat());
}

/// Without a versionKey, the recorded version is empty, and the revision of the source still counts.
#[test]
fn a_new_revision_withdraws_a_recorded_proof_without_a_version() {
    let without_version = || {
        let mut given = kustomization();
        given.version = None;
        at_its_interval(given)
    };
    assert_eq!(without_version().judged().reason(), None);
    let mut given = without_version();
    given.set_source("/status/artifact", "revision", json!("v1.18.3@sha1:ffff"));
    assert_eq!(given.judged().reason(), Some(CheckReason::DeliveryInProgress));
}
