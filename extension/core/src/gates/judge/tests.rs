//! The ways to release early of `generic-addons.md` §13 that a judge answers, and properties of all judges.
//!
//! One row for all checks (9) is the caller's. Exact versions (11) are also the compiled gate's, and so is the check beside a delivery
//! object (5).

use serde_json::{Value, json};

use super::cases::{
    Edit, Given, custom_resource_definition, daemon_set, deployment, expression, helm_chart_proxy,
    helm_release, helm_release_of_workload, job, kustomization, kustomization_of_workload, other, release,
    stateful_set,
};
use super::clause::{Clause, Judge, of_check};
use super::common::{BELONGS, EXISTS, EXPRESSION, NAMED, NOT_DELETING, OBSERVED, TYPED};
use super::flux::at_its_interval;
use super::object::{BODY, Field, METADATA, Type, flag};
use super::{JudgedKind, Related, Verdict, judge, related};
use crate::reasons::CheckReason;

/// Number of the way, the proven case, the way, and the reason that holds it.
type Way = (u8, fn() -> Given, Edit, CheckReason);

#[rustfmt::skip]
const EARLY: &[Way] = &[
    // Ready of an older generation; the generation of a condition is ahead of it.
    (1, helm_chart_proxy, |given| { given.set_release("/metadata", "generation", 6.into()); given.set_release("/status/conditions/2", "observedGeneration", 6.into()); }, CheckReason::NotObserved),
    (1, daemon_set, |given| { given.set("/metadata", "generation", 4.into()); given.set("/status", "conditions", json!([{"type": "Ready", "status": "True", "observedGeneration": 4}])); }, CheckReason::NotObserved),
    (1, helm_release, |given| { given.set("/metadata", "generation", 4.into()); given.set("/status", "lastAttemptedGeneration", 4.into()); given.set("/status/conditions/0", "observedGeneration", 4.into()); }, CheckReason::NotObserved),
    (1, kustomization, |given| { given.set("/metadata", "generation", 4.into()); given.set("/status/conditions/0", "observedGeneration", 4.into()); }, CheckReason::NotObserved),
    // The source of a Kustomization was edited, and still has the artifact of its earlier generation.
    (1, kustomization, |given| { given.version = None; given.set_source("/metadata", "generation", 8.into()); given.set_source("/spec", "ref", json!({"tag": "v1.18.3"})); }, CheckReason::NotObserved),
    (1, other, |given| given.set("/metadata", "generation", 4.into()), CheckReason::NotObserved),
    // The version is asked for in the HelmChartProxy, and deployed is another one.
    (2, helm_chart_proxy, |given| given.related = vec![release("cilium-prod-1-x7k2p", "1.17.4")], CheckReason::NotAtVersion),
    (2, deployment, |given| given.set("/spec/template/spec/containers/0", "image", json!("registry.test:5000/cilium/cilium:v1.17.4")), CheckReason::NotAtVersion),
    // The chart source is late: the spec has the version, and neither the attempt nor the release has it.
    (2, helm_release, |given| { given.set("/status", "lastAttemptedRevision", json!("1.17.4")); given.set("/status/history/1", "chartVersion", json!("1.17.4")); }, CheckReason::NotAtVersion),
    // Helm is at work on the attempted version.
    (2, helm_release, |given| { given.set("/status/history/1", "chartVersion", json!("1.17.4")); given.set("/status/history/1", "configDigest", json!("sha256:old")); }, CheckReason::DeliveryInProgress),
    // Only the values have changed, in a ConfigMap.
    (2, helm_release, |given| given.set("/status", "lastAttemptedConfigDigest", json!("sha256:changed")), CheckReason::DeliveryInProgress),
    // The chart of an OCIRepository was pushed again under its tag.
    (2, helm_release, |given| { given.set("/status", "lastAttemptedRevisionDigest", json!("sha256:0123456789abcdef")); given.set("/status", "lastAttemptedRevision", json!("1.18.2+0123456789ab")); given.set("/status/history/1", "chartVersion", json!("1.18.2+ffffffffffff")); }, CheckReason::DeliveryInProgress),
    // The source of a Kustomization is ahead of it, and neither its generation nor its conditions have changed.
    (2, kustomization, |given| { given.version = Some("v1.18.3"); given.set_source("/status/artifact", "revision", json!("v1.18.3@sha1:ffff")); }, CheckReason::DeliveryInProgress),
    (2, kustomization, |given| { given.version = None; given.set_source("/status/artifact", "revision", json!("main@sha1:ffff")); }, CheckReason::DeliveryInProgress),
    (2, kustomization_of_workload, |given| given.set_source("/status/artifact", "revision", json!("v1.18.2@sha1:ffff")), CheckReason::DeliveryInProgress),
    // Applied, and a health check of the new revision runs.
    (2, kustomization, |given| { given.set("/status", "lastAppliedRevision", json!("v1.17.4@sha1:0000")); given.set_condition_of_object("Ready", "Unknown", "Progressing"); given.set_condition_of_object("Reconciling", "True", "Progressing"); }, CheckReason::DeliveryInProgress),
    // Suspended, paused, installed once.
    (3, helm_chart_proxy, |given| given.set("/metadata", "annotations", json!({"cluster.x-k8s.io/paused": ""})), CheckReason::DeliverySuspended),
    (3, helm_chart_proxy, |given| given.set_release("/metadata", "annotations", json!({"cluster.x-k8s.io/paused": ""})), CheckReason::DeliverySuspended),
    (3, helm_chart_proxy, |given| { given.set("/spec", "reconcileStrategy", json!("InstallOnce")); given.set_release("/spec", "reconcileStrategy", json!("InstallOnce")); }, CheckReason::DeliverySuspended),
    (3, deployment, |given| given.set("/spec", "paused", true.into()), CheckReason::DeliverySuspended),
    (3, job, |given| given.set("/spec", "suspend", true.into()), CheckReason::DeliverySuspended),
    (3, helm_release, |given| given.set("/spec", "suspend", json!(true)), CheckReason::DeliverySuspended),
    (3, helm_release_of_workload, |given| given.set("/spec", "suspend", json!(true)), CheckReason::DeliverySuspended),
    (3, kustomization, |given| given.set("/spec", "suspend", json!(true)), CheckReason::DeliverySuspended),
    // Suspended and edited in one write: Flux observes the generation and does nothing.
    (3, helm_release, |given| { given.set("/spec", "suspend", json!(true)); given.set("/metadata", "generation", 4.into()); given.set("/status", "observedGeneration", 4.into()); }, CheckReason::DeliverySuspended),
    (3, kustomization, |given| { given.set("/spec", "suspend", json!(true)); given.set("/metadata", "generation", 4.into()); given.set("/status", "observedGeneration", 4.into()); }, CheckReason::DeliverySuspended),
    // The same, once it is resumed and not reconciled yet.
    (3, helm_release, |given| { given.set("/metadata", "generation", 5.into()); given.set("/status", "observedGeneration", 4.into()); }, CheckReason::NotObserved),
    (3, kustomization, |given| { given.set("/metadata", "generation", 5.into()); given.set("/status", "observedGeneration", 4.into()); }, CheckReason::NotObserved),
    // The source is suspended and edited in one write, or its edit is invalid: its generation is observed, and its artifact is the earlier one.
    (3, kustomization, |given| { given.version = None; given.set_source("/spec", "suspend", json!(true)); }, CheckReason::DeliverySuspended),
    (3, kustomization, |given| { given.version = None; given.set_source("/status", "conditions", json!([{"type": "Stalled", "status": "True", "reason": "URLInvalid"}])); }, CheckReason::DeliveryFailed),
    // A request is acknowledged, and nothing was done.
    (4, helm_release, |given| { given.version = Some("1.18.3"); given.set("/metadata", "annotations", json!({"reconcile.fluxcd.io/requestedAt": "now"})); given.set("/status", "lastHandledReconcileAt", json!("now")); }, CheckReason::NotAtVersion),
    (4, kustomization, |given| { given.version = Some("v1.18.3"); given.set("/metadata", "annotations", json!({"reconcile.fluxcd.io/requestedAt": "now"})); given.set("/status", "lastHandledReconcileAt", json!("now")); }, CheckReason::NotAtVersion),
    // maxUnavailable Pods are missing, or OnDelete waits for its Pods.
    (6, daemon_set, |given| given.set("/status", "numberAvailable", 2.into()), CheckReason::NotRolledOut),
    (6, daemon_set, |given| { given.set("/spec/updateStrategy", "type", json!("OnDelete")); given.set("/status", "updatedNumberScheduled", 0.into()); }, CheckReason::NotRolledOut),
    (6, stateful_set, |given| { given.set("/spec/updateStrategy", "type", json!("OnDelete")); given.set("/status", "updatedReplicas", 0.into()); }, CheckReason::NotRolledOut),
    // The upgrade failed, and the earlier chart was deployed again as a new release.
    (7, helm_release, |given| { given.set("/status/history/1", "status", json!("failed")); rolled_back(given, 3); given.set_condition_of_object("Remediated", "True", "RollbackSucceeded"); given.set_condition_of_object("Ready", "False", "RollbackSucceeded"); }, CheckReason::DeliveryFailed),
    (7, helm_release, |given| { given.set("/status/history/1", "status", json!("superseded")); rolled_back(given, 3); }, CheckReason::DeliveryInProgress),
    (7, helm_release, |given| given.set_condition_of_object("Remediated", "True", "RollbackSucceeded"), CheckReason::DeliveryFailed),
    (7, helm_release, |given| given.set_condition_of_object("Stalled", "True", "RetriesExceeded"), CheckReason::DeliveryFailed),
    // The same by a client of Helm, after which Flux attempts the earlier version.
    (7, helm_release, |given| { rolled_back(given, 3); given.set("/status", "lastAttemptedRevision", json!("1.17.4")); given.set("/status", "lastAttemptedConfigDigest", json!("sha256:old")); }, CheckReason::NotAtVersion),
    // The HelmChartProxy is edited, the HelmReleaseProxy not yet, and the reverse.
    (8, helm_chart_proxy, |given| { given.version = Some("1.18.3"); given.set("/spec", "version", json!("1.18.3")); }, CheckReason::NotAtVersion),
    (8, helm_chart_proxy, |given| { given.version = Some("1.18.3"); given.set_release("/spec", "version", json!("1.18.3")); }, CheckReason::NotAtVersion),
    // Nothing there, or nothing desired.
    (10, helm_chart_proxy, |given| given.object = None, CheckReason::ObjectNotFound),
    (10, helm_chart_proxy, |given| given.related.clear(), CheckReason::ObjectNotFound),
    (10, daemon_set, |given| given.object = None, CheckReason::ObjectNotFound),
    (10, daemon_set, |given| given.set("/status", "desiredNumberScheduled", 0.into()), CheckReason::NotRolledOut),
    (10, deployment, |given| given.set("/spec", "replicas", 0.into()), CheckReason::NotRolledOut),
    (10, job, |given| given.object = None, CheckReason::ObjectNotFound),
    (10, helm_release, |given| given.object = None, CheckReason::ObjectNotFound),
    (10, helm_release, |given| given.set("/status", "history", json!([])), CheckReason::DeliveryInProgress),
    (10, kustomization, |given| given.object = None, CheckReason::ObjectNotFound),
    (10, kustomization, |given| given.related.clear(), CheckReason::ObjectNotFound),
    (10, kustomization, |given| { given.version = None; given.set_source("/status", "artifact", Value::Null); }, CheckReason::DeliveryInProgress),
    (10, custom_resource_definition, |given| given.object = None, CheckReason::ObjectNotFound),
    (10, custom_resource_definition, |given| given.version = Some("v1"), CheckReason::NotServed),
    (10, other, |given| given.object = None, CheckReason::ObjectNotFound),
    // Ranges, latest, and versions that only a comparison of versions would accept.
    (11, helm_chart_proxy, |given| { given.set("/spec", "version", json!("~1.18.0")); given.set_release("/spec", "version", json!("~1.18.0")); }, CheckReason::NotAtVersion),
    (11, helm_chart_proxy, |given| { given.set("/spec", "version", json!("1.18.2+b")); given.set_release("/spec", "version", json!("1.18.2+b")); }, CheckReason::NotAtVersion),
    (11, helm_release, |given| { given.set("/status", "lastAttemptedRevision", json!("1.18.2+b")); given.set("/status/history/1", "chartVersion", json!("1.18.2+b")); }, CheckReason::NotAtVersion),
    (11, helm_release, |given| given.version = Some("v1.18.2"), CheckReason::NotAtVersion),
    (11, kustomization, |given| given.version = Some("1.18.2"), CheckReason::NotAtVersion),
    (11, kustomization, |given| given.version = Some("sha1:0a1b"), CheckReason::NotAtVersion),
    (11, custom_resource_definition, |given| given.version = Some("V2"), CheckReason::NotServed),
    (11, daemon_set, |given| given.set("/spec/template/spec/containers/0", "image", json!("cilium:1.18.2")), CheckReason::NotAtVersion),
    (11, daemon_set, |given| { given.version = Some("latest"); given.set("/spec/template/spec/containers/0", "image", json!("cilium")); }, CheckReason::NotAtVersion),
    // Another Cluster.
    (12, helm_chart_proxy, |given| given.set_release("/spec/clusterRef", "name", json!("prod-2")), CheckReason::BelongsElsewhere),
    (12, deployment, |given| given.set("/metadata", "labels", json!({"cluster.x-k8s.io/cluster-name": "prod-2"})), CheckReason::BelongsElsewhere),
    (12, helm_release, |given| given.set("/spec/kubeConfig/secretRef", "name", json!("prod-2-kubeconfig")), CheckReason::BelongsElsewhere),
    (12, helm_release, |given| given.set("/spec", "kubeConfig", Value::Null), CheckReason::BelongsElsewhere),
    (12, helm_release_of_workload, |given| given.set("/spec", "kubeConfig", json!({"secretRef": {"name": "prod-2-kubeconfig"}})), CheckReason::BelongsElsewhere),
    (12, helm_release_of_workload, |given| given.set("/spec", "kubeConfig", json!({})), CheckReason::BelongsElsewhere),
    (12, kustomization, |given| given.set("/spec/kubeConfig/secretRef", "name", json!("prod-2-kubeconfig")), CheckReason::BelongsElsewhere),
    (12, kustomization, |given| given.set("/spec/sourceRef", "namespace", json!("team-b")), CheckReason::BelongsElsewhere),
    (12, kustomization_of_workload, |given| given.set("/spec", "kubeConfig", json!({"configMapRef": {"name": "prod-2"}})), CheckReason::BelongsElsewhere),
    (12, other, |given| given.set("/metadata", "labels", json!({"cluster.x-k8s.io/cluster-name": "prod-2"})), CheckReason::BelongsElsewhere),
    // Recreated under the same name.
    (13, helm_chart_proxy, |given| given.set("/metadata", "uid", json!("u9")), CheckReason::BelongsElsewhere),
    (13, helm_chart_proxy, |given| { given.record(); given.set_release("/metadata", "uid", json!("u9")); given.set_release("/status", "conditions", json!([])); }, CheckReason::DeliveryInProgress),
    (13, helm_release, |given| { *given = at_its_interval(given.clone()); given.set("/metadata", "uid", json!("u9")); }, CheckReason::DeliveryInProgress),
    (13, kustomization, |given| { *given = at_its_interval(given.clone()); given.set("/metadata", "uid", json!("u9")); }, CheckReason::DeliveryInProgress),
    (13, job, |given| { given.record(); given.set("/metadata", "uid", json!("u9")); given.set("/status", "conditions", json!([])); }, CheckReason::NotComplete),
    // An expression that fails, or is of another type.
    (16, other, |given| given.cel = Some(expression("object.status.absent")), CheckReason::ExpressionFailed),
    (16, other, |given| given.cel = Some(expression("object.status.version")), CheckReason::ExpressionFailed),
    (16, daemon_set, |given| given.cel = Some(expression("object.status.absent")), CheckReason::ExpressionFailed),
    // An expression that ignores the object.
    (17, other, |given| { given.cel = Some(expression("true")); given.set("/metadata", "generation", 4.into()); }, CheckReason::NotObserved),
    (17, other, |given| { given.cel = Some(expression("true")); given.set("/metadata", "deletionTimestamp", json!("2026-11-26T10:02:11Z")); }, CheckReason::ObjectDeleting),
    (17, helm_release, |given| { given.cel = Some(expression("true")); given.version = Some("1.18.3"); }, CheckReason::NotAtVersion),
];

/// Adds a release of the earlier chart with this version.
fn rolled_back(given: &mut Given, version: i64) {
    let object = given.object.as_mut().unwrap();
    let mut release = object["status"]["history"][0].clone();
    release["version"] = json!(version);
    release["status"] = json!("deployed");
    object["status"]["history"].as_array_mut().unwrap().push(release);
}

#[test]
fn no_way_to_release_early_is_a_proof() {
    for (at, (way, proven, edit, reason)) in EARLY.iter().enumerate() {
        let mut given = proven();
        edit(&mut given);
        let judged = given.judged();
        assert_eq!(judged.reason(), Some(*reason), "way {way}, case {at}: {judged:?}");
        assert!(!given.message().is_empty(), "way {way}, case {at}");
    }
}

const PROVEN: [fn() -> Given; 8] = [
    helm_chart_proxy,
    helm_release,
    kustomization,
    daemon_set,
    deployment,
    stateful_set,
    job,
    custom_resource_definition,
];

/// The same, and all others.
const EACH: [fn() -> Given; 11] = [
    helm_chart_proxy,
    helm_release,
    helm_release_of_workload,
    kustomization,
    kustomization_of_workload,
    daemon_set,
    deployment,
    stateful_set,
    job,
    custom_resource_definition,
    other,
];

#[test]
fn each_kind_is_judged_by_its_own_table() {
    let of_others = [(JudgedKind::Other, other as fn() -> Given)];
    let all = JudgedKind::ALL.into_iter().zip(PROVEN);
    for (kind, proven) in all.chain(of_others) {
        let given = proven();
        let found = JudgedKind::of(kind.api_version(), kind.as_str());
        assert_eq!(found, Some(kind).filter(|kind| *kind != JudgedKind::Other));
        assert_eq!(
            (given.judge.kind, given.judge.api_version),
            (kind.as_str(), kind.api_version())
        );
        assert_eq!(
            judge(kind, &given.evidence(), &given.expected(), None),
            given.judged(),
            "{kind:?}"
        );
        assert_eq!(given.judged().reason(), None, "{kind:?}: {:?}", given.judged());
    }
    for (api_version, kind) in [
        ("apps/v1", "ReplicaSet"),
        ("apps/v1beta1", "DaemonSet"),
        ("example.com/v1", "Deployment"),
        ("v1", "Pod"),
        ("apps/v1", "daemonset"),
        ("helm.toolkit.fluxcd.io/v2beta2", "HelmRelease"),
        ("kustomize.toolkit.fluxcd.io/v1beta2", "Kustomization"),
        ("kustomize.config.k8s.io/v1beta1", "Kustomization"),
        ("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition"),
    ] {
        assert_eq!(JudgedKind::of(api_version, kind), None, "{api_version} {kind}");
    }
}

/// A Kustomization names its source, which is not known before it is read.
#[test]
fn delivery_kinds_need_further_objects() {
    for (kind, proven) in JudgedKind::ALL.into_iter().zip(PROVEN) {
        let given = proven();
        let needed = |object| related(kind, &given.expected(), object);
        let (before, after) = (needed(None), needed(given.object.as_ref()));
        match kind {
            JudgedKind::HelmChartProxy => {
                assert!(matches!(before, Some(Related::List(_))), "{before:?}");
                assert_eq!(before, after);
            }
            JudgedKind::Kustomization => {
                assert_eq!(before, None);
                assert!(matches!(after, Some(Related::Object(_))), "{after:?}");
            }
            _ => assert_eq!((before, after), (None, None), "{kind:?}"),
        }
    }
}

#[test]
fn deliveries_are_no_proof_of_running_pods() {
    let delivers: Vec<JudgedKind> = JudgedKind::ALL
        .into_iter()
        .filter(|kind| kind.is_delivery())
        .collect();
    let expected = [
        JudgedKind::HelmChartProxy,
        JudgedKind::HelmRelease,
        JudgedKind::Kustomization,
    ];
    assert_eq!(delivers, expected);
    assert!(!JudgedKind::Other.is_delivery());
}

#[test]
fn a_helm_chart_proxy_needs_the_helm_release_proxies_of_the_cluster() {
    let given = helm_chart_proxy();
    let needed = related(JudgedKind::HelmChartProxy, &given.expected(), None);
    let Some(Related::List(list)) = &needed else {
        panic!("{needed:?}")
    };
    assert_eq!(
        (list.group, list.version.as_str(), list.kind, list.plural),
        (
            "addons.cluster.x-k8s.io",
            "v1alpha1",
            "HelmReleaseProxy",
            "helmreleaseproxies"
        )
    );
    for (key, value) in &list.labels {
        assert_eq!(given.related[0]["metadata"]["labels"][key], json!(value));
    }
    assert_eq!(list.labels.len(), 2);
}

/// Returns the JSON pointers of all parts of an object.
fn pointers(value: &Value, at: &str) -> Vec<String> {
    let keys: Vec<String> = match value {
        Value::Object(fields) => fields
            .keys()
            .map(|key| key.replace('~', "~0").replace('/', "~1"))
            .collect(),
        Value::Array(elements) => (0..elements.len()).map(|index| index.to_string()).collect(),
        _ => Vec::new(),
    };
    let mut found = vec![at.to_owned()];
    for key in keys {
        found.extend(pointers(
            value.pointer(&format!("/{key}")).unwrap(),
            &format!("{at}/{key}"),
        ));
    }
    found
}

/// Returns copies of an object, with each part in turn replaced by values of all types.
fn edited(object: &Value) -> Vec<Value> {
    let values = json!([null, true, -1, 0.5, "", "3", [], [[]], [{}], {}]);
    let mut edited = Vec::new();
    for pointer in pointers(object, "") {
        for value in values.as_array().unwrap() {
            let mut copy = object.clone();
            *copy.pointer_mut(&pointer).unwrap() = value.clone();
            edited.push(copy);
        }
    }
    edited
}

/// No judge panics, and each reason comes with a message. Nothing proves an object without its fields.
#[test]
fn an_object_of_any_shape_has_a_verdict() {
    for proven in EACH {
        let given = proven();
        let mut copies: Vec<Given> = edited(given.object.as_ref().unwrap())
            .into_iter()
            .map(|object| Given {
                object: Some(object),
                ..given.clone()
            })
            .collect();
        for release in &given.related {
            copies.extend(edited(release).into_iter().map(|release| Given {
                related: vec![release],
                ..given.clone()
            }));
        }
        assert!(copies.len() > 100, "{}", copies.len());
        for copy in copies {
            let is_proven = copy.judged().reason().is_none();
            assert_eq!(
                copy.message().is_empty(),
                is_proven,
                "{:?} {:?}",
                copy.object,
                copy.related
            );
            let is_whole = copy
                .object
                .as_ref()
                .is_some_and(|object| object["metadata"].is_object());
            assert!(is_whole || !is_proven, "{:?}", copy.object);
        }
    }
}

#[test]
fn a_field_of_another_type_is_never_proven() {
    for proven in EACH {
        let whole = proven();
        let body: &[Field] = if whole.judge.kind.is_empty() { &[] } else { BODY };
        for (pointer, _) in METADATA.iter().chain(body).chain(whole.judge.fields) {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let is_there = |object: &Value| object.pointer(parent).is_some_and(Value::is_object);
            if !whole.object.as_ref().is_some_and(is_there) {
                continue;
            }
            let mut given = proven();
            given.set(parent, key, json!([{"neither": "nor"}]));
            assert_eq!(
                given.judged().reason(),
                Some(CheckReason::NotObserved),
                "{} {pointer}",
                given.judge.kind
            );
            let field = pointer.trim_start_matches('/').replace('/', ".");
            assert!(given.message().contains(&field), "{}", given.message());
        }
    }
}

/// A new judge is one table: its own clauses beside the common ones.
static BACKEND: Judge = Judge {
    api_version: "example.com/v1",
    kind: "Backend",
    delivers: false,
    fields: &[("/status/ready", Type::Flag)],
    clauses: &[
        EXISTS,
        TYPED,
        NAMED,
        BELONGS,
        NOT_DELETING,
        OBSERVED,
        Clause {
            name: "ready",
            met: |seen| flag(seen.object(), "/status/ready"),
            objection: |seen| {
                Verdict::waiting(CheckReason::NotRolledOut, format!("{} is not ready", seen.name()))
            },
        },
        EXPRESSION,
    ],
    proving: of_check,
};

#[test]
fn a_kind_is_added_by_one_table() {
    let mut given = Given {
        judge: &BACKEND,
        ..daemon_set()
    };
    assert_eq!(given.message(), "Backend kube-system/cilium is not ready");
    given.set("/status", "ready", json!("true"));
    assert_eq!(
        given.message(),
        "Backend kube-system/cilium: status.ready is not a boolean"
    );
    given.set("/status", "ready", true.into());
    assert_eq!(
        given.judged(),
        Verdict::Proven {
            uid: "u1".to_owned(),
            generation: 3
        }
    );
}
