//! What a real kube-apiserver refuses of UpgradeGates by their definition, with the field and the remedy.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, Error};
use serde_json::{Map, Value, json};
use sluice_tests::components::KUBERNETES_VERSIONS;
use sluice_tests::requests::apply;
use sluice_tests::scenario::sluice_definitions;
use sluice_tests::stack::StackCore;
use sluice_tests::stack::apiserver::ApiServer;

/// Field of a gate, its value, and texts of the refusal. A null removes the field.
type Case = (&'static str, Value, &'static [&'static str]);

#[tokio::test(flavor = "multi_thread")]
async fn invalid_gates_are_refused_with_field_and_remedy() -> Result<()> {
    let [newest, .., oldest] = KUBERNETES_VERSIONS;
    let core = StackCore::start("gate-definitions").await?;
    let server = ApiServer::start(&core, "gate-definitions", oldest).await?;
    let client = server.admin_client();
    let definitions = sluice_definitions()?;
    apply::apply_crds(&client, &definitions).await?;
    apply::namespace(&client, "default").await?;
    judge(&client).await.context(oldest)?;
    server.swap(newest).await?;
    // It compiles the rules again.
    apply::apply_crds(&client, &definitions).await?;
    judge(&client).await.context(newest)?;
    core.directory().close().await
}

async fn judge(client: &Client) -> Result<()> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/examples/upgradegate.yaml");
    let mut valid = apply::documents(&fs::read_to_string(examples)?)?;
    valid.extend([gate(), largest(), other_kinds()]);
    for gate in &valid {
        let created = create(client, gate).await?;
        ensure!(created.is_ok(), "{gate}: {created:?}");
    }
    judge_versions(client).await?;
    let cases = [
        of_versions(),
        of_checks(),
        of_kinds(),
        of_objects(),
        of_the_rest(),
    ];
    for (path, value, texts) in cases.into_iter().flatten() {
        let mut gate = gate();
        set(&mut gate, path, value.clone())?;
        let Err(refusal) = create(client, &gate).await? else {
            bail!("{path}: {value} is accepted");
        };
        for text in texts {
            ensure!(
                refusal.contains(text),
                "{path}: {value}: no {text:?} in: {refusal}"
            );
        }
    }
    Ok(())
}

/// The definition accepts exactly the versions that Sluice accepts.
async fn judge_versions(client: &Client) -> Result<()> {
    let table =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../extension/core/src/gates/compiled/versions.json");
    let table: Value = serde_json::from_str(&fs::read_to_string(table)?)?;
    for (field, path) in [
        ("chart", "/spec/versions/0/values/chart"),
        ("kubernetes", "/spec/versions/0/kubernetes"),
    ] {
        for (version, is_valid) in table[field].as_object().context("a table")? {
            let mut gate = gate();
            set(&mut gate, path, json!(version))?;
            let created = create(client, &gate).await?;
            ensure!(
                *is_valid == json!(created.is_ok()),
                "{field} {version}: {created:?}"
            );
        }
    }
    Ok(())
}

fn of_versions() -> Vec<Case> {
    let kubernetes = "/spec/versions/0/kubernetes";
    let chart = "/spec/versions/0/values/chart";
    let of_value: &[&str] = &["spec.versions[0].values[chart]", "name the exact version"];
    let mut cases: Vec<Case> = vec![
        (
            kubernetes,
            json!(1.35),
            &["spec.versions[0].kubernetes", "string"],
        ),
        (kubernetes, json!("v1.35"), &["spec.versions[0].kubernetes"]),
        (kubernetes, json!("1.35.4"), &["spec.versions[0].kubernetes"]),
        (
            kubernetes,
            Value::Null,
            &["spec.versions[0].kubernetes: Required"],
        ),
        (chart, json!(""), &["spec.versions[0].values.chart"]),
        (chart, json!("1.18"), &["spec.versions", "name all three"]),
        (
            chart,
            Value::Null,
            &["spec.versions", "add the missing one to values"],
        ),
        (
            "/spec/versions",
            Value::Null,
            &["spec.versions: Required", "add a row"],
        ),
        (
            "/spec/versions",
            json!([]),
            &["spec.versions: Required", "add a row"],
        ),
        ("/spec/versions/0/values", json!({}), &["spec.versions[0].values"]),
        (
            "/spec/versions/0/values/a b",
            json!("1"),
            &["spec.versions[0].values", "letters, digits"],
        ),
    ];
    for range in [
        "latest",
        "*",
        "^1.18.2",
        "~1.18.2",
        ">1.18.1",
        "<1.19",
        "1.17 || 1.18",
        "1.18.x",
        "1.18.X",
        ">=1.18.2, !=1.18.3",
        "1.18.0 - 1.18.4",
    ] {
        cases.push((chart, json!(range), of_value));
    }
    let many: Map<String, Value> = (0..17).map(|key| (format!("k{key}"), json!("1"))).collect();
    cases.push((
        "/spec/versions/0/values",
        Value::Object(many),
        &["spec.versions[0].values", "16"],
    ));
    let rows: Vec<Value> = (0..65).map(|minor| row(&format!("1.{minor}"))).collect();
    cases.push(("/spec/versions", Value::Array(rows), &["spec.versions", "64"]));
    cases
}

fn of_checks() -> Vec<Case> {
    let job = json!({
        "name": "backup", "cluster": "Workload", "healthOnly": true,
        "object": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "backup", "name": "backup-${hop}"},
    });
    let many: Vec<Value> = (0..17)
        .map(|number| {
            let mut check = gate()["spec"]["checks"][1].clone();
            check["name"] = json!(format!("agent-{number}"));
            check
        })
        .collect();
    vec![
        ("/spec/checks", Value::Null, &["spec.checks: Required"]),
        ("/spec/checks", json!([]), &["spec.checks"]),
        ("/spec/checks", Value::Array(many), &["spec.checks", "16"]),
        (
            "/spec/checks/1",
            Value::Null,
            &["spec.checks", "DeliveryOnly", "add a check"],
        ),
        (
            "/spec/checks/1/name",
            json!("chart"),
            &["spec.checks[1]: Duplicate"],
        ),
        ("/spec/checks/1/name", json!("Agent"), &["spec.checks[1].name"]),
        (
            "/spec/checks/0/versionKey",
            Value::Null,
            &[
                "spec.checks[0].versionKey: Required",
                "tie",
                "${hop}",
                "healthOnly",
            ],
        ),
        (
            "/spec/checks/0/versionKey",
            json!("charts"),
            &["spec.versions", "add the missing one to values"],
        ),
        (
            "/spec/checks/1/healthOnly",
            json!(true),
            &[
                "spec.checks[1].healthOnly: Forbidden",
                "remove healthOnly or versionKey",
            ],
        ),
        (
            "/spec/checks/1",
            job,
            &["spec.checks[1].healthOnly: Forbidden", "stays complete"],
        ),
        (
            "/spec/checks/1/container",
            Value::Null,
            &["spec.checks[1].container: Required", "name the container"],
        ),
        (
            "/spec/checks/0/container",
            json!("agent"),
            &["spec.checks[0].container: Forbidden", "remove it"],
        ),
        (
            "/spec/checks/0/cluster",
            json!("Workload"),
            &["spec.checks[0].cluster", "remove cluster"],
        ),
        (
            "/spec/checks/0/cluster",
            json!("Other"),
            &["spec.checks[0].cluster"],
        ),
        (
            "/spec/checks/0/cel",
            json!("a".repeat(2049)),
            &["spec.checks[0].cel", "2048"],
        ),
    ]
}

fn of_kinds() -> Vec<Case> {
    vec![
        (
            "/spec/checks/1/object/kind",
            json!("ReplicaSet"),
            &["spec.checks[1].cel: Required", "no judge knows this kind"],
        ),
        (
            "/spec/checks/1/object/apiVersion",
            json!("apps/v1beta2"),
            &["spec.checks[1].cel: Required", "this version of it"],
        ),
        (
            "/spec/checks/0",
            json!({
                "name": "chart", "cluster": "Workload", "versionKey": "chart",
                "object": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "cilium"},
            }),
            &["spec.checks[0].object.namespace: Required"],
        ),
        (
            "/spec/checks/0",
            json!({
                "name": "definition", "versionKey": "image",
                "object": {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "name": "a.example.com"},
            }),
            &["spec.checks[0].object", "set cluster: Workload"],
        ),
        (
            "/spec/checks/1/object",
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "namespace": "a", "name": "a.example.com",
            }),
            &["spec.checks[1].object", "remove object.namespace"],
        ),
    ]
}

fn of_objects() -> Vec<Case> {
    let name = "/spec/checks/1/object/name";
    let mut cases: Vec<Case> = vec![
        (
            "/spec/checks/0/object/namespace",
            json!("kube-system"),
            &[
                "spec.checks[0].object.namespace: Forbidden",
                "set cluster: Workload",
            ],
        ),
        (
            "/spec/checks/1/object/namespace",
            Value::Null,
            &["spec.checks[1].object.namespace: Required"],
        ),
        (
            "/spec/checks/1/object/namespace",
            json!("${cluster}"),
            &["spec.checks[1].object.namespace"],
        ),
        (
            "/spec/checks/1/object/apiVersion",
            json!("apps/v1/secrets"),
            &["spec.checks[1].object.apiVersion"],
        ),
    ];
    for (cluster, namespace) in [("Workload", json!("kube-system")), ("Management", Value::Null)] {
        let mut secret = json!({
            "name": "secret", "cluster": cluster, "healthOnly": true,
            "object": {"apiVersion": "v1", "kind": "Secret", "name": "token"},
        });
        if !namespace.is_null() {
            secret["object"]["namespace"] = namespace;
        }
        cases.push((
            "/spec/checks/1",
            secret,
            &["spec.checks[1].object.kind: Forbidden", "reads no Secrets"],
        ));
    }
    for group in ["authentication.k8s.io", "authorization.k8s.io"] {
        cases.push((
            "/spec/checks/1",
            json!({
                "name": "review", "cluster": "Workload", "healthOnly": true,
                "object": {"apiVersion": format!("{group}/v1"), "kind": "TokenReview", "name": "one"},
            }),
            &["spec.checks[1].object.apiVersion: Forbidden", "another group"],
        ));
    }
    for wrong in ["", "..", "a/b", "a b", "${version}", "a$b", "a%2fb"] {
        cases.push((name, json!(wrong), &["spec.checks[1].object.name"]));
    }
    cases
}

fn of_the_rest() -> Vec<Case> {
    let requirement = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "cni", "operator": operator, "values": values}]});
    let selector = "/spec/clusterSelector";
    let of_values: &[&str] = &["spec.clusterSelector.matchExpressions[0].values", "need values"];
    vec![
        ("/spec/mode", Value::Null, &["spec.mode: Required"]),
        ("/spec/mode", json!("Off"), &["spec.mode", "Audit", "Enforce"]),
        ("/spec/before", Value::Null, &["spec.before: Required"]),
        (
            "/spec/before",
            json!("Machines"),
            &["spec.before", "ControlPlane", "Workers"],
        ),
        (selector, Value::Null, &["spec.clusterSelector: Required"]),
        (selector, requirement("In", json!([])), of_values),
        (selector, requirement("Exists", json!(["cilium"])), of_values),
        (
            selector,
            requirement("Equals", json!(["cilium"])),
            &["spec.clusterSelector.matchExpressions[0].operator"],
        ),
        ("/spec/deadline", json!("1d"), &["spec.deadline"]),
    ]
}

fn gate() -> Value {
    json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1",
        "kind": "UpgradeGate",
        "metadata": {"name": "one", "namespace": "default"},
        "spec": {
            "mode": "Audit",
            "clusterSelector": {},
            "before": "ControlPlane",
            "versions": [row("1.35"), row("1.36")],
            "checks": [
                {
                    "name": "chart",
                    "object": {
                        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": "cilium",
                    },
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

/// A gate on kinds of Flux, on a definition, and on kinds without a judge.
fn other_kinds() -> Value {
    let mut gate = gate();
    gate["spec"]["checks"] = json!([
        {
            "name": "release", "versionKey": "chart",
            "object": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "cilium"},
        },
        {
            "name": "apply", "cluster": "Workload", "versionKey": "image",
            "object": {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "namespace": "flux-system", "name": "a"},
        },
        {
            "name": "definition", "cluster": "Workload", "healthOnly": true,
            "object": {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "name": "a.example.com"},
        },
        {
            "name": "calico", "cluster": "Workload", "versionKey": "image", "cel": "object.spec.calicoVersion == version",
            "object": {"apiVersion": "crd.projectcalico.org/v1", "kind": "ClusterInformation", "name": "default"},
        },
        {
            "name": "old", "cluster": "Workload", "versionKey": "image", "cel": "object.status.version == version",
            "object": {"apiVersion": "apps/v1beta2", "kind": "DaemonSet", "namespace": "a", "name": "a"},
        },
    ]);
    gate
}

fn row(kubernetes: &str) -> Value {
    json!({"kubernetes": kubernetes, "values": {"chart": "1.18.2", "image": "v1.18.2"}})
}

/// The largest gate, whose rules the API server evaluates within its budget.
fn largest() -> Value {
    let values: Map<String, Value> = (0..16)
        .map(|key| (format!("{}{key}", "k".repeat(60)), json!("1.18.2-".repeat(36))))
        .collect();
    let keys: Vec<String> = values.keys().cloned().collect();
    let rows = (0..64).map(|minor| json!({"kubernetes": format!("1.{minor}"), "values": values}));
    let checks = keys.iter().enumerate().map(|(number, key)| {
        let is_chart = number < 15;
        let mut check = json!({
            "name": format!("check-{number}"),
            "cluster": if is_chart { "Management" } else { "Workload" },
            "object": {
                "apiVersion": if is_chart { "addons.cluster.x-k8s.io/v1alpha1" } else { "apps/v1" },
                "kind": if is_chart { "HelmChartProxy" } else { "DaemonSet" },
                "name": format!("{}${{cluster}}-${{hop}}", "n".repeat(200)),
            },
            "versionKey": key,
        });
        if !is_chart {
            check["object"]["namespace"] = json!("kube-system");
            check["container"] = json!("agent");
        }
        check
    });
    let mut gate = gate();
    gate["spec"]["versions"] = rows.collect();
    gate["spec"]["checks"] = checks.collect();
    gate
}

/// Sets a field; a null removes it.
fn set(object: &mut Value, path: &str, value: Value) -> Result<()> {
    let (parent, name) = path.rsplit_once('/').context("a path")?;
    match object
        .pointer_mut(parent)
        .with_context(|| format!("no {parent}"))?
    {
        Value::Object(fields) if value.is_null() => {
            fields.remove(name).with_context(|| format!("no {path}"))?;
        }
        Value::Object(fields) => {
            fields.insert(name.to_owned(), value);
        }
        Value::Array(items) if value.is_null() => {
            items.remove(name.parse()?);
        }
        Value::Array(items) => items[name.parse::<usize>()?] = value,
        other => bail!("{parent} is {other}"),
    }
    Ok(())
}

/// Creates a gate as a dry run, and returns the message of a refusal.
async fn create(client: &Client, gate: &Value) -> Result<Result<(), String>> {
    let kind = GroupVersionKind::gvk("lifecycle.sluice.dev", "v1alpha1", "UpgradeGate");
    let resource = ApiResource::from_gvk_with_plural(&kind, "upgradegates");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match api
        .create(&parameters, &serde_json::from_value(gate.clone())?)
        .await
    {
        Ok(_) => Ok(Ok(())),
        Err(Error::Api(status)) => Ok(Err(status.message)),
        Err(error) => Err(error).context("create an UpgradeGate"),
    }
}
