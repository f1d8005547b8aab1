use rstest::rstest;
use serde_json::{Value, json};

use super::*;

/// The gate of `generic-addons.md` §2.
fn valid() -> Value {
    json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1",
        "kind": "UpgradeGate",
        "metadata": {"name": "cni", "namespace": "team-a", "uid": "u1", "generation": 3},
        "spec": {
            "mode": "Audit",
            "clusterSelector": {"matchLabels": {"cni": "cilium"}},
            "before": "ControlPlane",
            "deadline": "1h",
            "versions": [
                {"kubernetes": "1.34", "values": {"chart": "1.17.4", "image": "v1.17.4"}},
                {"kubernetes": "1.35", "values": {"chart": "1.18.2", "image": "v1.18.2"}},
            ],
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
        },
    })
}

/// Returns a reference to a definition of the workload cluster.
fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "name": "backends.example.com"})
}

fn compiled(gate: &Value) -> Result<CompiledGate, String> {
    let gate: UpgradeGate = serde_json::from_value(gate.clone()).unwrap();
    compile(&gate).map_err(|hold| {
        assert_eq!(hold.reason, GateReason::GateInvalid);
        hold.message
    })
}

/// Returns the gate after an edit: each part is `path = value`, and a null removes the field.
fn edited(edits: &[(&str, Value)]) -> Value {
    let mut gate = valid();
    for (path, value) in edits {
        let (parent, key) = path.rsplit_once('/').unwrap();
        let parent = gate.pointer_mut(&format!("/spec{parent}")).unwrap();
        match (parent, value) {
            (Value::Object(fields), Value::Null) => {
                fields.remove(key);
            }
            (Value::Object(fields), value) => {
                fields.insert(key.to_owned(), value.clone());
            }
            (Value::Array(elements), value) => elements.insert(key.parse().unwrap(), value.clone()),
            (other, _) => panic!("{path}: {other}"),
        }
    }
    gate
}

/// Returns edits that add so many rows of a minor version which has one already.
fn rows_of_one_minor(added: usize) -> Vec<(&'static str, Value)> {
    let row = |number| {
        let image = format!("v1.18.{number}");
        json!({"kubernetes": "1.35", "values": {"chart": "1.18.3", "image": image}})
    };
    (0..added).map(|number| ("/versions/2", row(number))).collect()
}

/// Returns an expression with so many patterns.
fn with_patterns(patterns: usize) -> String {
    let matches = (0..patterns).map(|number| format!("version.matches('{number}')"));
    matches.collect::<Vec<_>>().join(" || ")
}

#[test]
fn a_valid_gate_is_compiled() {
    let gate = compiled(&valid()).unwrap();
    assert_eq!(
        (gate.name.as_str(), gate.uid.as_str(), gate.generation),
        ("cni", "u1", 3)
    );
    assert_eq!((gate.mode, gate.before), (GateMode::Audit, Before::ControlPlane));
    assert_eq!(gate.deadline, Some(Duration::from_hours(1)));
    assert_eq!(gate.rows.len(), 2);
    assert_eq!(
        gate.checks[1],
        CompiledCheck {
            name: "agent".to_owned(),
            server: Server::Workload,
            kind: JudgedKind::DaemonSet,
            api_version: "apps/v1".to_owned(),
            kind_name: "DaemonSet".to_owned(),
            namespace: Some("kube-system".to_owned()),
            name_template: "cilium".to_owned(),
            container: Some("cilium-agent".to_owned()),
            version_key: Some("image".to_owned()),
            health_only: false,
            cel: None,
        }
    );
    let chart = &gate.checks[0];
    assert_eq!(
        (chart.server, chart.kind, chart.namespace.as_deref()),
        (Server::Management, JudgedKind::HelmChartProxy, None)
    );
}

#[rstest]
#[case::without_deadline(&[("/deadline", json!(null))])]
#[case::several_rows_of_one_minor(&[("/versions/2", json!({"kubernetes": "1.35", "values": {"chart": "1.18.3", "image": "v1.18.3"}}))])]
#[case::eight_rows_of_one_minor(&rows_of_one_minor(7))]
#[case::eight_patterns(&[("/checks/0/cel", json!(with_patterns(4))), ("/checks/1/cel", json!(with_patterns(4)))])]
#[case::chart_with_a_v(&[("/versions/0/values/chart", json!("v1.17.4"))])]
#[case::chart_with_build_metadata(&[("/versions/0/values/chart", json!("1.17.4+build.1"))])]
#[case::digest(&[("/versions/0/values/image", json!("sha256:aa"))])]
#[case::unused_key(&[("/versions/0/values/other", json!("1"))])]
#[case::health_without_rows(&[
    ("/versions", json!(null)), ("/checks/0/versionKey", json!(null)), ("/checks/0/healthOnly", json!(true)),
    ("/checks/1/versionKey", json!(null)), ("/checks/1/container", json!(null)), ("/checks/1/healthOnly", json!(true)),
])]
#[case::hop_in_the_name(&[
    ("/checks/1/versionKey", json!(null)), ("/checks/1/container", json!(null)), ("/checks/1/object/name", json!("cilium-${hop}")),
])]
#[case::job_of_the_hop(&[
    ("/checks/1/versionKey", json!(null)), ("/checks/1/container", json!(null)),
    ("/checks/1/object", json!({"apiVersion": "batch/v1", "kind": "Job", "namespace": "default", "name": "${cluster}-backup-${hop}"})),
])]
#[case::workload_kind_of_the_management_cluster(&[
    ("/checks/1/cluster", json!(null)), ("/checks/1/object/namespace", json!(null)), ("/checks/1/object/name", json!("${cluster}-ccm")),
])]
#[case::expression_beside_a_judge(&[("/checks/1/cel", json!("object.status.numberReady >= 3 && version != ''"))])]
#[case::other_kind(&[
    ("/checks/1/object", json!({"apiVersion": "example.com/v1", "kind": "Backend", "namespace": "kube-system", "name": "main"})),
    ("/checks/1/container", json!(null)), ("/checks/1/cel", json!("object.status.version == version && object.status.ready")),
])]
#[case::other_kind_without_namespace(&[
    ("/checks/1/object", json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "ClusterInformation", "name": "default"})),
    ("/checks/1/container", json!(null)), ("/checks/1/cel", json!("object.spec.calicoVersion == version")),
])]
#[case::other_kind_for_its_health(&[
    ("/checks/1/object", json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "namespace": "kube-system", "name": "a"})),
    ("/checks/1/container", json!(null)), ("/checks/1/versionKey", json!(null)), ("/checks/1/healthOnly", json!(true)),
    ("/checks/1/cel", json!("object.status.disruptionsAllowed > 0")),
])]
#[case::other_version_of_a_kind(&[
    ("/checks/1/object/apiVersion", json!("apps/v1beta2")), ("/checks/1/container", json!(null)), ("/checks/1/cel", json!("version == object.a")),
])]
#[case::release(&[("/checks/0/object", json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "cilium"}))])]
#[case::release_of_the_workload(&[
    ("/checks/0/object", json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "namespace": "flux-system", "name": "cilium"})),
    ("/checks/0/cluster", json!("Workload")),
])]
#[case::kustomization_at_a_tag(&[
    ("/checks/0/object", json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "cilium"})),
    ("/versions/0/values/chart", json!("v1.18")),
])]
#[case::definition(&[
    ("/checks/1/object", definition()), ("/checks/1/container", json!(null)), ("/versions/0/values/image", json!("v1")),
    ("/versions/1/values/image", json!("v2alpha1")),
])]
#[case::selector_with_expressions(&[("/clusterSelector", json!({"matchExpressions": [{"key": "cni", "operator": "Exists"}]}))])]
fn another_valid_gate_is_compiled(#[case] edits: &[(&str, Value)]) {
    assert_eq!(compiled(&edited(edits)).map(|_| ()), Ok(()));
}

#[rstest]
#[case::deadline(&[("/deadline", json!("1d"))], r#"spec.deadline is "1d": write hours"#)]
#[case::selector(
    &[("/clusterSelector", json!({"matchExpressions": [{"key": "cni", "operator": "Gt", "values": ["1"]}]}))],
    r#"spec.clusterSelector.matchExpressions[0].operator is "Gt": use In, NotIn, Exists or DoesNotExist"#
)]
#[case::patch_version(&[("/versions/1/kubernetes", json!("1.35.4"))], r#"spec.versions[1].kubernetes is "1.35.4": write one minor"#)]
#[case::minor_with_a_v(&[("/versions/1/kubernetes", json!("v1.35"))], r#"spec.versions[1].kubernetes is "v1.35""#)]
#[case::minor_with_a_zero(&[("/versions/1/kubernetes", json!("1.035"))], r#"spec.versions[1].kubernetes is "1.035""#)]
#[case::minor_with_a_sign(&[("/versions/1/kubernetes", json!("1.+35"))], r#"spec.versions[1].kubernetes is "1.+35""#)]
#[case::minor_range(&[("/versions/1/kubernetes", json!(">=1.35"))], r#"spec.versions[1].kubernetes is ">=1.35""#)]
#[case::minor_of_one_number(&[("/versions/1/kubernetes", json!("1"))], r#"spec.versions[1].kubernetes is "1""#)]
#[case::many_rows_of_one_minor(&rows_of_one_minor(8), r#"spec.versions[9].kubernetes is "1.35": a gate has at most 8 rows of one minor"#)]
#[case::no_values(&[("/versions/1/values", json!({}))], r#"spec.versions[1].values is "0": a row has 1 to 16 values"#)]
#[case::key(&[("/versions/1/values/a b", json!("1"))], r#"spec.versions[1].values is "a b": use at most 63"#)]
#[case::empty_value(&[("/versions/1/values/image", json!(""))], r#"spec.versions[1].values.image is "": write a version"#)]
#[case::latest(&[("/versions/1/values/image", json!("latest"))], r#"spec.versions[1].values.image is "latest": latest names no version"#)]
#[case::any(&[("/versions/1/values/image", json!("*"))], r#"spec.versions[1].values.image is "*": a range"#)]
#[case::caret(&[("/versions/1/values/chart", json!("^1.18.2"))], r#"spec.versions[1].values.chart is "^1.18.2": a range"#)]
#[case::tilde(&[("/versions/1/values/chart", json!("~1.18.2"))], r#"spec.versions[1].values.chart is "~1.18.2": a range"#)]
#[case::less(&[("/versions/1/values/chart", json!("<1.18.2"))], r#"spec.versions[1].values.chart is "<1.18.2": a range"#)]
#[case::more(&[("/versions/1/values/chart", json!(">1.18.2"))], r#"spec.versions[1].values.chart is ">1.18.2": a range"#)]
#[case::either(&[("/versions/1/values/chart", json!("1.18.2||1.18.3"))], r#"spec.versions[1].values.chart is "1.18.2||1.18.3": a range"#)]
#[case::between(&[("/versions/1/values/chart", json!("1.18.2 - 1.18.3"))], r#"spec.versions[1].values.chart is "1.18.2 - 1.18.3": a range"#)]
#[case::wildcard(&[("/versions/1/values/chart", json!("1.18.x"))], r#"spec.versions[1].values.chart is "1.18.x": a range"#)]
#[case::chart_minor(&[("/versions/1/values/chart", json!("1.18"))], r#"spec.versions[1].values.chart is "1.18": Helm reads it as a range"#)]
#[case::chart_equal(&[("/versions/1/values/chart", json!("=1.18"))], r#"spec.versions[1].values.chart is "=1.18": Helm reads it as a range"#)]
#[case::missing_key(&[("/versions/1/values/image", json!(null))], "spec.versions[1].values.image is missing: spec.checks[1] has this versionKey, add it")]
#[case::no_rows(&[("/versions", json!(null))], "spec.versions is missing: spec.checks[0] has versionKey chart, add a row")]
#[case::no_checks(&[("/checks", json!([]))], r#"spec.checks is "0": a gate has 1 to 16 checks"#)]
#[case::check_name(&[("/checks/1/name", json!("Agent"))], r#"spec.checks[1].name is "Agent": use at most 63"#)]
#[case::duplicate_name(&[("/checks/1/name", json!("chart"))], r#"spec.checks[1].name is "chart": another check"#)]
#[case::delivery_only(&[("/checks", json!([valid()["spec"]["checks"][0]]))], r#"spec.checks is "HelmChartProxy": DeliveryOnly: "#)]
#[case::no_tie(
    &[("/checks/1/versionKey", json!(null)), ("/checks/1/container", json!(null))],
    "spec.checks[1].versionKey is missing: tie the check to the Kubernetes version by a versionKey or by ${hop}"
)]
#[case::two_ties(&[("/checks/1/healthOnly", json!(true))], r#"spec.checks[1].healthOnly is "true": a check with a versionKey"#)]
#[case::health_of_a_job(
    &[
        ("/checks/1/versionKey", json!(null)), ("/checks/1/container", json!(null)), ("/checks/1/healthOnly", json!(true)),
        ("/checks/1/object", json!({"apiVersion": "batch/v1", "kind": "Job", "namespace": "default", "name": "backup"})),
    ],
    r#"spec.checks[1].healthOnly is "true": a Job of an earlier upgrade"#
)]
#[case::secret(
    &[("/checks/1/object", json!({"apiVersion": "v1", "kind": "Secret", "namespace": "kube-system", "name": "a"}))],
    r#"spec.checks[1].object.kind is "Secret": a gate reads no Secrets"#
)]
#[case::secret_of_the_management_cluster(
    &[("/checks/0/object", json!({"apiVersion": "v1", "kind": "Secret", "name": "a"}))],
    r#"spec.checks[0].object.kind is "Secret": a gate reads no Secrets"#
)]
#[case::authentication(
    &[("/checks/1/object", json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "name": "a"}))],
    r#"spec.checks[1].object.apiVersion is "authentication.k8s.io/v1": a gate reads no objects about identities"#
)]
#[case::authorization(
    &[("/checks/1/object", json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "name": "a"}))],
    r#"spec.checks[1].object.apiVersion is "authorization.k8s.io/v1": a gate reads no objects about identities"#
)]
#[case::expression_of_another_variable(&[("/checks/1/cel", json!("self.status.ready"))], r#"spec.checks[1].cel is "self.status.ready": uses self; the variables are"#)]
#[case::patterns_of_two_expressions(
    &[("/checks/0/cel", json!(with_patterns(4))), ("/checks/1/cel", json!(with_patterns(5)))],
    r#"spec.checks[1].cel is "version.matches('0') || version.matches('1')"#
)]
#[case::expression_that_does_not_compile(
    &[("/checks/1/cel", json!("object.status =="))],
    r#"spec.checks[1].cel is "object.status ==": does not compile: line 1, column 17: "#
)]
#[case::long_expression(
    &[("/checks/1/cel", json!(vec!["version == ''"; 120].join(" && ")))],
    r#"spec.checks[1].cel is "version == '' && version == ''"#
)]
#[case::expression_without_version(
    &[("/checks/1/object/kind", json!("Backend")), ("/checks/1/container", json!(null)), ("/checks/1/cel", json!("object.status.ready"))],
    r#"spec.checks[1].cel is "object.status.ready": the check has a versionKey, compare version with the field"#
)]
#[case::container_of_another_kind(
    &[("/checks/1/object/kind", json!("Backend")), ("/checks/1/cel", json!("object.status.version == version"))],
    r#"spec.checks[1].container is "cilium-agent": Backend has no containers, remove it"#
)]
#[case::other_kind_without_tie(
    &[
        ("/checks/1/object/kind", json!("Backend")), ("/checks/1/container", json!(null)), ("/checks/1/versionKey", json!(null)),
        ("/checks/1/cel", json!("object.status.ready")),
    ],
    "spec.checks[1].versionKey is missing: tie the check"
)]
#[case::secret_by_expression(
    &[("/checks/1/object", json!({"apiVersion": "v1", "kind": "Secret", "namespace": "kube-system", "name": "a"})), ("/checks/1/cel", json!("true"))],
    r#"spec.checks[1].object.kind is "Secret": a gate reads no Secrets"#
)]
#[case::unknown_kind(
    &[("/checks/1/object/kind", json!("ReplicaSet"))],
    r#"spec.checks[1].object is "ReplicaSet of apps/v1": kinds other than HelmChartProxy of addons.cluster.x-k8s.io/v1alpha1, "#
)]
#[case::flux_only(
    &[("/checks", json!([
        {"name": "release", "versionKey": "chart", "object": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "cilium"}},
        {"name": "apply", "versionKey": "image", "object": {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "cilium"}},
    ]))],
    r#"spec.checks is "HelmRelease, Kustomization": DeliveryOnly: "#
)]
#[case::old_flux_only(
    &[("/checks", json!([{
        "name": "release", "versionKey": "chart", "cel": "object.status.lastAppliedRevision == version",
        "object": {"apiVersion": "helm.toolkit.fluxcd.io/v2beta2", "kind": "HelmRelease", "name": "cilium"},
    }]))],
    r#"spec.checks is "HelmRelease": DeliveryOnly: "#
)]
#[case::release_without_namespace(
    &[("/checks/0/object", json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "cilium"})), ("/checks/0/cluster", json!("Workload"))],
    "spec.checks[0].object.namespace is missing: name the namespace"
)]
#[case::chart_of_a_release(
    &[
        ("/checks/0/object", json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "cilium"})),
        ("/versions/0/values/chart", json!("1.18")),
    ],
    r#"spec.versions[0].values.chart is "1.18": Helm reads it as a range"#
)]
#[case::revision(
    &[
        ("/checks/0/object", json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "cilium"})),
        ("/versions/0/values/chart", json!("v1.18.2@sha1:0a1b")),
    ],
    r#"spec.versions[0].values.chart is "v1.18.2@sha1:0a1b": write the part of the revision of the source before @"#
)]
#[case::served_version(
    &[("/checks/1/object", definition()), ("/checks/1/container", json!(null)), ("/versions/0/values/image", json!("v1.18.2"))],
    r#"spec.versions[0].values.image is "v1.18.2": write a version that the definition serves, such as v1"#
)]
#[case::container_of_a_definition(
    &[("/checks/1/object", definition()), ("/versions/0/values/image", json!("v1")), ("/versions/1/values/image", json!("v1"))],
    r#"spec.checks[1].container is "cilium-agent": CustomResourceDefinition has no containers"#
)]
#[case::namespace_of_a_definition(
    &[("/checks/1/object", definition()), ("/checks/1/object/namespace", json!("kube-system"))],
    r#"spec.checks[1].object.namespace is "kube-system": a definition has no namespace, remove it"#
)]
#[case::definition_of_the_management_cluster(
    &[("/checks/1/object", definition()), ("/checks/1/cluster", json!("Management"))],
    r#"spec.checks[1].cluster is "Management": a definition has no namespace, and a gate reads only"#
)]
#[case::unknown_version(&[("/checks/1/object/apiVersion", json!("apps/v1beta2"))], r#"spec.checks[1].object is "DaemonSet of apps/v1beta2""#)]
#[case::cluster_resource_set(
    &[("/checks/0/object", json!({"apiVersion": "addons.cluster.x-k8s.io/v1beta2", "kind": "ClusterResourceSet", "name": "a"}))],
    r#"spec.checks[0].object is "ClusterResourceSet of addons"#
)]
#[case::other_namespace(
    &[("/checks/0/object/namespace", json!("team-b"))],
    r#"spec.checks[0].object.namespace is "team-b": an object of the management cluster is in the namespace of the gate"#
)]
#[case::no_namespace(&[("/checks/1/object/namespace", json!(null))], "spec.checks[1].object.namespace is missing: name the namespace")]
#[case::namespace(&[("/checks/1/object/namespace", json!("a/b"))], r#"spec.checks[1].object.namespace is "a/b": use at most 63"#)]
#[case::delivery_on_the_workload(&[("/checks/0/cluster", json!("Workload"))], r#"spec.checks[0].cluster is "Workload": the kind belongs to"#)]
#[case::object_name(&[("/checks/1/object/name", json!(""))], r#"spec.checks[1].object.name is "": write the name of one object"#)]
#[case::object_path(&[("/checks/1/object/name", json!("../cilium"))], r#"spec.checks[1].object.name is "../cilium": write the name"#)]
#[case::placeholder(&[("/checks/1/object/name", json!("cilium-${namespace}"))], r#"spec.checks[1].object.name is "cilium-${namespace}""#)]
#[case::long_name(&[("/checks/1/object/name", json!("a".repeat(254)))], r#"spec.checks[1].object.name is "aaaa"#)]
#[case::no_container(&[("/checks/1/container", json!(null))], "spec.checks[1].container is missing: name the container")]
#[case::container_name(&[("/checks/1/container", json!("cilium agent"))], r#"spec.checks[1].container is "cilium agent": use at most 63"#)]
#[case::container_of_a_chart(&[("/checks/0/container", json!("agent"))], r#"spec.checks[0].container is "agent": HelmChartProxy has no containers"#)]
#[case::control_characters(&[("/deadline", json!("\u{1b}[31m\n1d"))], r#"spec.deadline is "\\u{1b}[31m 1d""#)]
fn an_invalid_gate_names_field_value_and_remedy(#[case] edits: &[(&str, Value)], #[case] expected: &str) {
    let message = compiled(&edited(edits)).map(|_| ()).unwrap_err();
    assert!(message.starts_with(&format!("cni: {expected}")), "{message}");
    assert!(message.contains(": ") && !message.contains('\n'), "{message}");
}

/// `tests/tests/real/gate_definitions.rs` sends the same versions to an API server.
#[rstest]
#[case::charts("chart", "/versions/0/values/chart")]
#[case::minors("kubernetes", "/versions/0/kubernetes")]
fn versions_are_those_of_the_definition(#[case] field: &str, #[case] path: &str) {
    let table: Value = serde_json::from_str(include_str!("versions.json")).unwrap();
    for (version, is_valid) in table[field].as_object().unwrap() {
        let compiled = compiled(&edited(&[(path, json!(version))]));
        assert_eq!(json!(compiled.is_ok()), *is_valid, "{version}");
    }
}

#[test]
fn bounds_are_those_of_the_definition() {
    let row =
        |at: usize| json!({"kubernetes": format!("1.{at}"), "values": {"chart": "1.0.0", "image": "v1"}});
    let rows = |number: usize| edited(&[("/versions", (0..number).map(row).collect())]);
    assert!(compiled(&rows(64)).is_ok());
    let message = compiled(&rows(65)).map(|_| ()).unwrap_err();
    assert!(
        message.starts_with(r#"cni: spec.versions is "65": a gate has at most 64 rows"#),
        "{message}"
    );

    let values = |number: usize| {
        let mut gate = valid();
        let values = gate.pointer_mut("/spec/versions/0/values").unwrap();
        for at in 2..number {
            values[format!("key{at}")] = json!("v1");
        }
        gate
    };
    assert!(compiled(&values(16)).is_ok());
    let message = compiled(&values(17)).map(|_| ()).unwrap_err();
    assert!(
        message.starts_with(r#"cni: spec.versions[0].values is "17": a row has 1 to 16 values"#),
        "{message}"
    );

    let checks = |number: usize| {
        let mut gate = valid();
        let checks = gate.pointer_mut("/spec/checks").unwrap().as_array_mut().unwrap();
        for at in 2..number {
            let mut check = checks[1].clone();
            check["name"] = json!(format!("agent-{at}"));
            checks.push(check);
        }
        gate
    };
    assert!(compiled(&checks(16)).is_ok());
    let message = compiled(&checks(17)).map(|_| ()).unwrap_err();
    assert!(
        message.starts_with(r#"cni: spec.checks is "17": a gate has 1 to 16 checks"#),
        "{message}"
    );

    let version = |length: usize| edited(&[("/versions/0/values/image", json!("v".repeat(length)))]);
    assert!(compiled(&version(256)).is_ok());
    assert!(compiled(&version(257)).is_err());
}

#[rstest]
#[case("v1.35.4", &[0, 2])]
#[case("v1.35.0+vmware.1-tkg.1", &[0, 2])]
#[case("1.35.4", &[0, 2])]
#[case("v1.34.9", &[1])]
#[case("v1.3.5", &[])]
#[case("v1.350.0", &[])]
#[case("v1.36.0", &[])]
#[case("v2.35.0", &[])]
#[case("", &[])]
fn the_rows_of_a_hop_are_those_of_its_minor_version(#[case] hop: &str, #[case] expected: &[usize]) {
    let minors = ["1.35", "1.34", "1.35"];
    let rows: Vec<Value> = minors
        .iter()
        .enumerate()
        .map(|(at, minor)| json!({"kubernetes": minor, "values": {"chart": format!("1.{at}.0"), "image": "v1"}}))
        .collect();
    let gate = compiled(&edited(&[("/versions", json!(rows))])).unwrap();
    let found: Vec<String> = gate
        .rows_for(hop)
        .iter()
        .map(|row| row.values["chart"].clone())
        .collect();
    let expected: Vec<String> = expected.iter().map(|at| format!("1.{at}.0")).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_hop_without_a_row_has_a_hold() {
    let gate = compiled(&valid()).unwrap();
    assert!(gate.needs_row());
    assert_eq!(
        gate.no_row("v1.36.3").to_string(),
        "NoVersionForHop: cni: no row for Kubernetes 1.36"
    );
    let health = edited(&[
        ("/checks/0/versionKey", json!(null)),
        ("/checks/0/healthOnly", json!(true)),
        ("/checks/1/versionKey", json!(null)),
        ("/checks/1/container", json!(null)),
        ("/checks/1/healthOnly", json!(true)),
    ]);
    assert!(!compiled(&health).unwrap().needs_row());
}

#[test]
fn placeholders_of_names_are_replaced() {
    let named = |name: &str| {
        let gate = compiled(&edited(&[("/checks/1/object/name", json!(name))])).unwrap();
        gate.checks[1].clone()
    };
    let check = named("${cluster}-backup-${hop}");
    assert!(check.has_hop());
    assert_eq!(
        check.object_name("prod-1", "v1.35.4+vmware.1"),
        "prod-1-backup-v1.35.4---vmware.1"
    );
    let check = named("${cluster}-${cluster}");
    assert!(!check.has_hop());
    assert_eq!(check.object_name("prod-1", "v1.35.4"), "prod-1-prod-1");
    assert_eq!(named("cilium").object_name("prod-1", "v1.35.4"), "cilium");
}

#[rstest]
#[case::none(&[], &[])]
#[case::all_variables(&[("/checks/1/cel", json!("object.a == version"))], &[])]
#[case::no_object(
    &[("/checks/1/cel", json!("version == 'v1.18.2'"))],
    &[r#"spec.checks[1].cel is "version == 'v1.18.2'": it does not use object, "#]
)]
#[case::no_version(&[("/checks/1/cel", json!("object.a"))], &[r#"spec.checks[1].cel is "object.a": it does not use version, "#])]
#[case::neither(
    &[("/checks/1/cel", json!("true"))],
    &[r#"spec.checks[1].cel is "true": it does not use object, "#, r#"spec.checks[1].cel is "true": it does not use version, "#]
)]
#[case::empty_version(
    &[
        ("/checks/1/cel", json!("object.a == version")), ("/checks/1/versionKey", json!(null)), ("/checks/1/container", json!(null)),
        ("/checks/1/healthOnly", json!(true)),
    ],
    &[r#"spec.checks[1].cel is "object.a == version": it uses version, which is empty without a versionKey"#]
)]
fn an_expression_that_ignores_its_variables_has_a_warning(
    #[case] edits: &[(&str, Value)],
    #[case] expected: &[&str],
) {
    let warnings = compiled(&edited(edits)).unwrap().warnings();
    assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
    for (warning, expected) in warnings.iter().zip(expected) {
        assert!(warning.starts_with(expected), "{warning}");
    }
}

/// The definition asks for an expression of every other kind.
#[test]
fn kinds_with_a_judge_are_those_of_the_definition() {
    let definitions = serde_json::to_string(&sluice_crds::crds()).unwrap();
    for kind in JudgedKind::ALL {
        let (api_version, kind) = (kind.api_version(), kind.as_str());
        assert!(
            definitions.contains(&format!("'{api_version}/{kind}'")),
            "{kind} of {api_version}"
        );
    }
}
