//! The ways to release early of `generic-addons.md` §13 that a judge answers, and properties of all judges.
//!
//! One row for all checks (9) is the caller's, and exact versions (11) are also the compiled gate's.

use serde_json::{Value, json};

use super::cases::{
    CLUSTER, Edit, Given, daemon_set, deployment, helm_chart_proxy, job, release, stateful_set,
};
use super::clause::{Clause, Judge, of_check};
use super::common::{BELONGS, EXISTS, NAMED, NOT_DELETING, OBSERVED, TYPED};
use super::object::{COMMON, Type, flag};
use super::{Evidence, Expected, JudgedKind, Verdict, judge, related};
use crate::reasons::CheckReason;

/// Number of the way, the proven case, the way, and the reason that holds it.
type Way = (u8, fn() -> Given, Edit, CheckReason);

#[rustfmt::skip]
const EARLY: &[Way] = &[
    // Ready of an older generation; the generation of a condition is ahead of it.
    (1, helm_chart_proxy, |given| { given.set_release("/metadata", "generation", 6.into()); given.set_release("/status/conditions/2", "observedGeneration", 6.into()); }, CheckReason::NotObserved),
    (1, daemon_set, |given| { given.set("/metadata", "generation", 4.into()); given.set("/status", "conditions", json!([{"type": "Ready", "status": "True", "observedGeneration": 4}])); }, CheckReason::NotObserved),
    // The version is asked for in the HelmChartProxy, and deployed is another one.
    (2, helm_chart_proxy, |given| given.related = vec![release("cilium-prod-1-x7k2p", "1.17.4")], CheckReason::NotAtVersion),
    (2, deployment, |given| given.set("/spec/template/spec/containers/0", "image", json!("registry.test:5000/cilium/cilium:v1.17.4")), CheckReason::NotAtVersion),
    // Suspended, paused, installed once.
    (3, helm_chart_proxy, |given| given.set("/metadata", "annotations", json!({"cluster.x-k8s.io/paused": ""})), CheckReason::DeliverySuspended),
    (3, helm_chart_proxy, |given| given.set_release("/metadata", "annotations", json!({"cluster.x-k8s.io/paused": ""})), CheckReason::DeliverySuspended),
    (3, helm_chart_proxy, |given| { given.set("/spec", "reconcileStrategy", json!("InstallOnce")); given.set_release("/spec", "reconcileStrategy", json!("InstallOnce")); }, CheckReason::DeliverySuspended),
    (3, deployment, |given| given.set("/spec", "paused", true.into()), CheckReason::DeliverySuspended),
    (3, job, |given| given.set("/spec", "suspend", true.into()), CheckReason::DeliverySuspended),
    // maxUnavailable Pods are missing, or OnDelete waits for its Pods.
    (6, daemon_set, |given| given.set("/status", "numberAvailable", 2.into()), CheckReason::NotRolledOut),
    (6, daemon_set, |given| { given.set("/spec/updateStrategy", "type", json!("OnDelete")); given.set("/status", "updatedNumberScheduled", 0.into()); }, CheckReason::NotRolledOut),
    (6, stateful_set, |given| { given.set("/spec/updateStrategy", "type", json!("OnDelete")); given.set("/status", "updatedReplicas", 0.into()); }, CheckReason::NotRolledOut),
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
    // Ranges, latest, and versions that only a comparison of versions would accept.
    (11, helm_chart_proxy, |given| { given.set("/spec", "version", json!("~1.18.0")); given.set_release("/spec", "version", json!("~1.18.0")); }, CheckReason::NotAtVersion),
    (11, helm_chart_proxy, |given| { given.set("/spec", "version", json!("1.18.2+b")); given.set_release("/spec", "version", json!("1.18.2+b")); }, CheckReason::NotAtVersion),
    (11, daemon_set, |given| given.set("/spec/template/spec/containers/0", "image", json!("cilium:1.18.2")), CheckReason::NotAtVersion),
    (11, daemon_set, |given| { given.version = Some("latest"); given.set("/spec/template/spec/containers/0", "image", json!("cilium")); }, CheckReason::NotAtVersion),
    // Another Cluster.
    (12, helm_chart_proxy, |given| given.set_release("/spec/clusterRef", "name", json!("prod-2")), CheckReason::BelongsElsewhere),
    (12, deployment, |given| given.set("/metadata", "labels", json!({"cluster.x-k8s.io/cluster-name": "prod-2"})), CheckReason::BelongsElsewhere),
    // Recreated under the same name.
    (13, helm_chart_proxy, |given| given.set("/metadata", "uid", json!("u9")), CheckReason::BelongsElsewhere),
    (13, helm_chart_proxy, |given| { given.record(); given.set_release("/metadata", "uid", json!("u9")); given.set_release("/status", "conditions", json!([])); }, CheckReason::DeliveryInProgress),
    (13, job, |given| { given.record(); given.set("/metadata", "uid", json!("u9")); given.set("/status", "conditions", json!([])); }, CheckReason::NotComplete),
];

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

const PROVEN: [fn() -> Given; 5] = [helm_chart_proxy, daemon_set, deployment, stateful_set, job];

#[test]
fn each_kind_is_judged_by_its_own_table() {
    for (kind, proven) in JudgedKind::ALL.into_iter().zip(PROVEN) {
        let given = proven();
        assert_eq!(JudgedKind::of(kind.api_version(), kind.as_str()), Some(kind));
        assert_eq!(
            (given.judge.kind, given.judge.api_version),
            (kind.as_str(), kind.api_version())
        );
        let evidence = Evidence {
            object: given.object.as_ref(),
            related: &given.related,
        };
        let expected = Expected {
            cluster: CLUSTER,
            namespace: given.namespace,
            name: "cilium",
            version: given.version,
            container: given.container,
        };
        assert_eq!(
            judge(kind, &evidence, &expected, None),
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
    ] {
        assert_eq!(JudgedKind::of(api_version, kind), None, "{api_version} {kind}");
    }
}

#[test]
fn a_helm_chart_proxy_needs_the_helm_release_proxies_of_the_cluster() {
    let expected = Expected {
        cluster: CLUSTER,
        namespace: "team-a",
        name: "cilium",
        version: None,
        container: None,
    };
    let lists = JudgedKind::ALL.map(|kind| related(kind, &expected));
    let [Some(list), None, None, None, None] = &lists else {
        panic!("{lists:?}")
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
    let given = helm_chart_proxy();
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
    for proven in PROVEN {
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
    for proven in PROVEN {
        let whole = proven();
        for (pointer, _) in COMMON.iter().chain(whole.judge.fields) {
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
