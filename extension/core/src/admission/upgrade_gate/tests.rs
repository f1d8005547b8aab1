//! Tables of the rights that gates need, and of refused and admitted writes.

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

/// A check of each side.
fn spec() -> Value {
    json!({
        "mode": "Enforce",
        "clusterSelector": {"matchLabels": {"cni": "cilium"}},
        "before": "ControlPlane",
        "versions": [{"kubernetes": "1.35", "values": {"chart": "1.18.2", "image": "v1.18.2"}}],
        "checks": [
            {
                "name": "chart",
                "object": {"apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": "cilium"},
                "versionKey": "chart",
            },
            {
                "name": "agent",
                "cluster": "Workload",
                "object": {"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": "kube-system", "name": "cilium"},
                "container": "cilium-agent",
                "versionKey": "image",
            },
        ],
    })
}

/// Returns the spec after an edit: each part is `path = value`, and a null removes the field.
fn edited(edits: &[(&str, Value)]) -> Value {
    let mut spec = spec();
    for (path, value) in edits {
        let (parent, key) = path.rsplit_once('/').unwrap();
        match (spec.pointer_mut(parent).unwrap(), value) {
            (Value::Object(fields), Value::Null) => drop(fields.remove(key)),
            (Value::Object(fields), value) => drop(fields.insert(key.to_owned(), value.clone())),
            (Value::Array(elements), value) => elements.insert(key.parse().unwrap(), value.clone()),
            (other, _) => panic!("{path}: {other}"),
        }
    }
    spec
}

fn author() -> Author {
    Author {
        name: "ada".to_owned(),
        uid: Some("7".to_owned()),
        groups: Some(vec!["ops".to_owned()]),
        extra: Some([("scope".to_owned(), vec!["x".to_owned()])].into()),
    }
}

fn begun(spec: &str, old_spec: Option<&str>) -> Result<GateReview, Verdict> {
    GateReview::of(GateWrite {
        namespace: "team-a",
        name: "cni",
        author: author(),
        spec,
        old_spec,
    })
}

fn created(spec: &Value) -> GateReview {
    begun(&spec.to_string(), None).unwrap()
}

/// Returns the verdict on a write, which depends on no lookup.
fn at_once(spec: &Value, old: Option<&Value>) -> Verdict {
    let old = old.map(Value::to_string);
    begun(&spec.to_string(), old.as_deref()).unwrap_err()
}

/// Returns how an API server serves a kind of these gates.
fn served(kind: &CheckedKind) -> Served {
    let plural = match kind.kind.as_str() {
        "HelmChartProxy" => "helmchartproxies".to_owned(),
        other => format!("{}s", other.to_lowercase()),
    };
    Served::Namespaced { plural }
}

/// Judges with the results of an API server. Also returns the rights that were asked for.
fn judged(
    review: &GateReview,
    served: impl Fn(&CheckedKind) -> Result<Served, String>,
    has: impl Fn(&Right) -> Result<bool, String>,
) -> (GateVerdict, Vec<String>) {
    let mut finished = GateLookups::default();
    loop {
        let NeededLookups { kinds, rights } = match judge(review, &finished) {
            Ok(verdict) => {
                let asked = finished.rights.keys().map(ToString::to_string);
                return (verdict, asked.collect());
            }
            Err(needed) => needed,
        };
        assert!(!kinds.is_empty() || !rights.is_empty());
        for kind in kinds {
            let result = served(&kind);
            assert!(finished.kinds.insert(kind, result).is_none(), "asked again");
        }
        for right in rights {
            let result = has(&right);
            assert!(finished.rights.insert(right, result).is_none(), "asked again");
        }
    }
}

/// Returns the verdict on a gate whose kinds are served.
fn known(review: &GateReview, has: impl Fn(&Right) -> Result<bool, String>) -> Verdict {
    match judged(review, |kind| Ok(served(kind)), has).0 {
        GateVerdict::Known(verdict) => verdict,
        GateVerdict::Unknown(text) => panic!("{text}"),
    }
}

/// Returns the faults of a creation by an author without the rights whose text contains `lacks`.
fn faults(spec: &Value, lacks: &str) -> Vec<String> {
    let verdict = known(&created(spec), |right| Ok(!right.to_string().contains(lacks)));
    verdict.faults.iter().map(ToString::to_string).collect()
}

const OF_CHART: &str = "get helmchartproxies.addons.cluster.x-k8s.io";
const OF_WORKLOADS: &str = "read-workload upgradegates.lifecycle.sluice.dev in namespace \"team-a\"";

#[test]
fn an_author_with_all_rights_is_admitted() {
    let (verdict, asked) = judged(&created(&spec()), |kind| Ok(served(kind)), |_| Ok(true));
    let of_chart = format!("{OF_CHART} \"cilium\" in namespace \"team-a\"");
    assert_eq!(asked, [of_chart.as_str(), OF_WORKLOADS]);
    assert!(
        matches!(&verdict, GateVerdict::Known(verdict) if verdict.faults.is_empty()),
        "{verdict:?}"
    );
}

/// The first round asks for all that is known by then.
#[test]
fn lookups_are_requested_together() {
    let needed = judge(&created(&spec()), &GateLookups::default()).unwrap_err();
    assert_eq!(needed.kinds.len(), 1);
    let rights: Vec<String> = needed.rights.iter().map(ToString::to_string).collect();
    assert_eq!(rights, [OF_WORKLOADS]);
}

#[rstest]
#[case::of_a_name(&[], OF_CHART, &["spec.checks[0].object.name: Invalid value: \"cilium\": user \"ada\" may not get \
    helmchartproxies.addons.cluster.x-k8s.io \"cilium\" in namespace \"team-a\"; add a Role that allows it, or let an account \
    that has this right write the gate"])]
#[case::of_all_names(&[("/checks/0/object/name", json!("cilium-${cluster}"))], OF_CHART, &["spec.checks[0].object.name: Invalid value: \
    \"cilium-${cluster}\": user \"ada\" may not get helmchartproxies.addons.cluster.x-k8s.io in namespace \"team-a\"; add a Role that \
    allows it without resourceNames, because the name has a placeholder, or let an account that has this right write the gate"])]
#[case::of_workloads(&[], "read-workload", &["spec.checks[1].cluster: Invalid value: \"Workload\": user \"ada\" may not read-workload \
    upgradegates.lifecycle.sluice.dev in namespace \"team-a\"; bind ClusterRole sluice-gate-author to the user there, or let an account \
    that has this right write the gate"])]
#[case::of_clusters(&[("/checks/1/cel", json!("cluster.annotations['a'] == version"))], "get clusters", &["spec.checks[1].cel: \
    Invalid value: \"cluster.annotations['a'] == version\": it uses cluster, and user \"ada\" may not get clusters.cluster.x-k8s.io in \
    namespace \"team-a\"; add a Role that allows it without resourceNames, or let an account that has this right write the gate"])]
#[case::without_clusters(&[("/checks/1/cel", json!("object.metadata.name == 'cluster'"))], "get clusters", &[])]
#[case::other_rights(&[], "list", &[])]
fn a_missing_right_is_named_with_its_field(
    #[case] edits: &[(&str, Value)],
    #[case] lacks: &str,
    #[case] expected: &[&str],
) {
    assert_eq!(faults(&edited(edits), lacks), expected);
}

#[test]
fn each_missing_right_is_named_once() {
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "ccm"});
    let mut again = spec()["checks"][1].clone();
    again["name"] = json!("agent-again");
    let spec = edited(&[
        (
            "/checks/2",
            json!({"name": "ccm", "object": object, "healthOnly": true}),
        ),
        ("/checks/3", again),
    ]);
    let faults = faults(&spec, "");
    let fields: Vec<&str> = faults
        .iter()
        .filter_map(|fault| fault.split(": ").next())
        .collect();
    assert_eq!(
        fields,
        [
            "spec.checks[0].object.name",
            "spec.checks[1].cluster",
            "spec.checks[2].object.name"
        ]
    );
}

/// Only the right to all resources of the group covers one with an unknown name.
#[rstest]
#[case::without_the_right(
    "all resources",
    Err(
        "spec.checks[0].object.kind: Invalid value: \"HelmChartProxy\": the API server does not serve \
    HelmChartProxy in addons.cluster.x-k8s.io/v1alpha1, and user \"ada\" may not get all resources of group \
    \"addons.cluster.x-k8s.io\" in namespace \"team-a\"; install its definition first, or let an account that has this right write the gate"
    )
)]
#[case::with_the_right(
    "nothing",
    Ok(
        "spec.checks[0].object: the API server does not serve HelmChartProxy in \
    addons.cluster.x-k8s.io/v1alpha1; the check is not proven before its definition is installed"
    )
)]
fn a_kind_that_is_not_served_needs_the_right_to_its_group(
    #[case] lacks: &str,
    #[case] expected: Result<&str, &str>,
) {
    let has = |right: &Right| Ok(!right.to_string().contains(lacks));
    let (verdict, _) = judged(&created(&spec()), |_| Ok(Served::Nowhere), has);
    let GateVerdict::Known(verdict) = verdict else {
        panic!("{verdict:?}");
    };
    let faults: Vec<String> = verdict.faults.iter().map(ToString::to_string).collect();
    match expected {
        Ok(warning) => {
            assert_eq!(faults, Vec::<String>::new());
            assert!(
                verdict.warnings.contains(&warning.to_owned()),
                "{:?}",
                verdict.warnings
            );
        }
        Err(fault) => assert_eq!(faults, [fault]),
    }
}

/// No right is asked for that may not be granted by a Role.
#[test]
fn a_cluster_scoped_object_is_refused_for_every_author() {
    let (verdict, asked) = judged(&created(&spec()), |_| Ok(Served::ClusterWide), |_| Ok(true));
    assert_eq!(asked, [OF_WORKLOADS]);
    let GateVerdict::Known(verdict) = verdict else {
        panic!("{verdict:?}");
    };
    let says = "spec.checks[0].object.kind: Invalid value: \"HelmChartProxy\": the kind is cluster-scoped; name an object of the \
                namespace of the gate";
    assert_eq!(verdict.faults[0].to_string(), says);
}

#[test]
fn an_unknown_right_is_never_admitted() {
    let late = || "it is late".to_owned();
    let (of_kind, _) = judged(&created(&spec()), |_| Err(late()), |_| Ok(true));
    let (of_right, _) = judged(
        &created(&spec()),
        |kind| Ok(served(kind)),
        |right| {
            if right.to_string() == OF_WORKLOADS {
                Err(late())
            } else {
                Ok(true)
            }
        },
    );
    for (verdict, check) in [(of_kind, 0), (of_right, 1)] {
        let says = format!(
            "spec.checks[{check}]: it is not known whether user \"ada\" may read the object: it is late; try again"
        );
        assert_eq!(verdict, GateVerdict::Unknown(says));
    }
}

/// A repetition would end in the same way.
#[test]
fn a_missing_right_outweighs_an_unknown_one() {
    let verdict = known(&created(&spec()), |right| {
        if right.to_string() == OF_WORKLOADS {
            Ok(false)
        } else {
            Err("it is late".to_owned())
        }
    });
    assert_eq!(verdict.faults.len(), 1);
}

#[test]
fn a_gate_asks_for_at_most_one_right_per_check_and_that_to_clusters() {
    let checks: Vec<Value> = (0..16)
        .map(|number| {
            let mut check = spec()["checks"][usize::from(number == 0)].clone();
            check["name"] = json!(format!("check-{number}"));
            check["cel"] = json!("object.metadata.name == cluster.name");
            check["object"]["name"] = json!(format!("cilium-{number}"));
            check
        })
        .collect();
    let spec = edited(&[("/checks", Value::Array(checks))]);
    let (_, asked) = judged(&created(&spec), |kind| Ok(served(kind)), |_| Ok(true));
    assert_eq!(asked.len(), 17);
}

#[test]
fn a_review_is_about_the_author() {
    let right = Right::get("apps", "deployments", "team-a", "ccm");
    let review = serde_json::to_value(right.review(&author())).unwrap();
    assert_eq!(
        review["spec"],
        json!({
            "user": "ada", "uid": "7", "groups": ["ops"], "extra": {"scope": ["x"]},
            "resourceAttributes": {
                "verb": "get", "group": "apps", "resource": "deployments", "namespace": "team-a", "name": "ccm",
            },
        })
    );
}

#[rstest]
#[case::allowed(&json!({"allowed": true}), Ok(true))]
#[case::not_allowed(&json!({"allowed": false, "evaluationError": "clusterrole \"x\" not found"}), Ok(false))]
#[case::denied(&json!({"allowed": true, "denied": true}), Ok(false))]
#[case::undecided(&Value::Null, Err(()))]
fn only_an_allowed_right_counts(#[case] status: &Value, #[case] expected: Result<bool, ()>) {
    let review = serde_json::from_value(json!({"spec": {}, "status": status})).unwrap();
    assert_eq!(Right::allowed(&review).map_err(drop), expected);
}

#[rstest]
#[case::nothing(&[])]
#[case::a_default(&[("/checks/0/healthOnly", json!(false))])]
#[case::to_audit(&[("/mode", json!("Audit"))])]
fn an_update_without_an_effect_on_reads_needs_no_right(#[case] edits: &[(&str, Value)]) {
    let verdict = at_once(&edited(edits), Some(&spec()));
    assert_eq!(verdict, Verdict::default());
}

#[rstest]
#[case::the_mode(&[("/mode", json!("Audit"))], &[("/mode", json!("Enforce"))])]
#[case::the_mode_and_more(&[], &[("/mode", json!("Audit")), ("/deadline", json!("1h"))])]
#[case::a_version(&[], &[("/versions/0/values/chart", json!("1.18.3"))])]
#[case::a_selector(&[], &[("/clusterSelector", json!({}))])]
#[case::an_object(&[], &[("/checks/0/object/name", json!("other"))])]
fn another_update_is_reviewed(#[case] before: &[(&str, Value)], #[case] after: &[(&str, Value)]) {
    let old = edited(before).to_string();
    assert!(begun(&edited(after).to_string(), Some(&old)).is_ok());
}

/// The webhook may have been switched off when it was stored.
#[test]
fn a_stored_invalid_gate_can_be_labelled_and_set_to_audit() {
    let invalid = edited(&[("/versions/0/values/chart", json!("latest"))]);
    assert_eq!(at_once(&invalid, Some(&invalid)), Verdict::default());
    let unknown = edited(&[("/mode", json!("Later"))]);
    assert_eq!(at_once(&unknown, Some(&unknown)), Verdict::default());

    let mut audited = invalid.clone();
    audited["mode"] = json!("Audit");
    let verdict = at_once(&audited, Some(&invalid));
    assert_eq!(verdict.faults, []);
    assert!(
        verdict.warnings[0].starts_with("spec.versions[0].values.chart: "),
        "{verdict:?}"
    );
}

#[rstest]
#[case::unquoted(&[("/versions/0/kubernetes", json!(1.35))], "spec.versions[0].kubernetes: Invalid value: \"\": invalid type")]
#[case::no_mode(&[("/mode", json!(null))], "spec: Invalid value: \"\": missing field `mode`")]
#[case::range(&[("/versions/0/values/chart", json!("^1.18"))], "spec.versions[0].values.chart: Invalid value: \"^1.18\": a range")]
#[case::latest(&[("/versions/0/values/image", json!("latest"))], "spec.versions[0].values.image: Invalid value: \"latest\": latest names")]
#[case::no_key(&[("/versions/0/values/image", json!(null))], "spec.versions[0].values.image: Invalid value: \"null\": ")]
#[case::no_tie(&[("/checks/0/versionKey", json!(null))], "spec.checks[0].versionKey: Invalid value: \"null\": tie the check")]
#[case::delivery_alone(&[("/checks", json!([spec()["checks"][0]]))], "spec.checks: Invalid value: \"HelmChartProxy\": DeliveryOnly")]
#[case::a_secret(
    &[("/checks/0/object", json!({"apiVersion": "v1", "kind": "Secret", "name": "token"}))],
    "spec.checks[0].object.kind: Invalid value: \"Secret\": a gate reads no Secrets"
)]
#[case::of_another_namespace(
    &[("/checks/0/object/namespace", json!("kube-system"))],
    "spec.checks[0].object.namespace: Invalid value: \"kube-system\": an object of the management cluster is in the namespace of the gate"
)]
#[case::a_field_of_a_later_release(
    &[("/checks/0/object/selector", json!({"matchLabels": {}}))],
    "spec.checks[0].object.selector: Invalid value: \"\": this release of Sluice does not know the field"
)]
fn an_invalid_gate_is_refused_with_its_field(#[case] edits: &[(&str, Value)], #[case] says: &str) {
    for old in [None, Some(spec())] {
        let verdict = at_once(&edited(edits), old.as_ref());
        let [fault] = &verdict.faults[..] else {
            panic!("{verdict:?}");
        };
        assert!(fault.to_string().starts_with(says), "{fault}");
    }
}

/// Each kind of list by itself.
#[rstest]
#[case::rows("/versions", json!({"kubernetes": "1.35", "values": {"chart": "1.18.2", "image": "v1.18.2"}}), 65)]
#[case::checks("/checks", json!({"name": "a", "object": {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "a"}}), 17)]
#[case::requirements("/clusterSelector/matchExpressions", json!({"key": "cni", "operator": "Exists"}), 33)]
fn long_lists_are_refused(#[case] path: &str, #[case] item: Value, #[case] count: usize) {
    let verdict = at_once(&edited(&[(path, Value::Array(vec![item; count]))]), None);
    let text = "spec: Invalid value: \"\": a gate has at most 64 rows, 16 checks and 32 requirements";
    assert!(verdict.faults[0].to_string().starts_with(text), "{verdict:?}");
}

/// A gate that no replica could cache would hold all Clusters of its namespace.
#[test]
fn a_gate_that_cannot_be_cached_is_refused() {
    let verdict = at_once(&edited(&[("/deadline", json!("1".repeat(1024 * 1024)))]), None);
    let text = verdict.faults[0].to_string();
    assert!(text.contains("it takes more than 768 KiB of memory"), "{text}");
}

#[test]
fn empty_and_null_fields_are_known() {
    let spec = edited(&[
        ("/versions", json!([])),
        (
            "/clusterSelector",
            json!({"matchLabels": {}, "matchExpressions": []}),
        ),
        ("/checks/0/versionKey", json!(null)),
        ("/checks/0/healthOnly", json!(true)),
        ("/checks/1/versionKey", json!(null)),
        ("/checks/1/container", json!(null)),
        ("/checks/1/healthOnly", json!(true)),
    ]);
    assert!(begun(&spec.to_string(), None).is_ok());
}
