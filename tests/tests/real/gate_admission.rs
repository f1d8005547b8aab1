//! The webhook of UpgradeGates on a real kube-apiserver with RBAC, by the shipped manifests: what an author needs, and what is refused for
//! everyone.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http::request::Builder;
use kube::Client;
use serde_json::{Value, json};
use sluice_tests::components::MANAGEMENT_VERSION;
use sluice_tests::extension::{Replica, Settings};
use sluice_tests::objects::definition;
use sluice_tests::requests::apply;
use sluice_tests::stack::StackCore;
use sluice_tests::stack::apiserver::ApiServer;
use sluice_tests::stack::manifests::Base;
use sluice_tests::wait;

const NAMESPACE: &str = "team-a";

const GATES: &str = "/apis/lifecycle.sluice.dev/v1alpha1/namespaces/team-a/upgradegates";

/// Until the API server calls a webhook that was registered.
const CALLED: Duration = Duration::from_secs(30);

/// May write gates, and nothing else.
const WRITER: &str = "writer";

/// May write gates, and read all HelmChartProxies of the namespace.
const READER: &str = "reader";

/// Has the shipped role, and may read HelmChartProxy `cilium`.
const AUTHOR: &str = "author";

const ADMIN: &str = "admin";

#[tokio::test(flavor = "multi_thread")]
async fn authors_need_the_rights_that_their_gates_use() -> Result<()> {
    let core = StackCore::start("gate-admission").await?;
    let server = ApiServer::start(&core, "gate-admission", MANAGEMENT_VERSION).await?;
    let client = server.admin_client();
    // Its plural is `helmchartproxys`, which no rule of English gives.
    let proxies = definition::open(
        "addons.cluster.x-k8s.io",
        "HelmChartProxy",
        "v1alpha1",
        &json!({}),
    );
    apply::apply_crds(&client, &[proxies]).await?;
    apply::namespace(&client, NAMESPACE).await?;
    let settings = Settings {
        packages: false,
        ..Settings::new("sluice")
    };
    let replica = Replica::start_alone(&core, &server, settings).await?;
    apply::apply_all(&client, &accounts()).await?;
    apply::apply(&client, &webhook(&server, &replica).await?).await?;
    is_called(&client).await?;

    for (what, user, edits, expected) in creations() {
        let answer = create(&client, user, &edits).await?;
        answer.is(&expected).with_context(|| what.to_owned())?;
    }
    updates(&client).await?;

    // The webhook fails closed, and the way out of a hold does not need it.
    replica.kill().await?;
    let answer = create(&client, ADMIN, &[]).await?;
    answer.is(&Expected::Refused(&["failed calling webhook"]))?;
    for change in [labels(), audit()] {
        let answer = patch(&client, WRITER, &change).await?;
        answer.is(&Expected::Admitted)?;
    }
    core.directory().close().await
}

/// Result of a write.
enum Expected {
    Admitted,
    /// With a warning that contains this text.
    Warned(&'static str),
    /// With a message that contains these texts.
    Refused(&'static [&'static str]),
}

/// A case, its user, edits of the gate, and the result of its creation. A null removes a field.
type Creation = (&'static str, &'static str, Vec<(&'static str, Value)>, Expected);

fn creations() -> Vec<Creation> {
    let name = "/spec/checks/0/object/name";
    let chart = "/spec/versions/0/values/chart";
    let object = "/spec/checks/1/object";
    let unserved = || {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Backend", "name": "main"});
        let check =
            json!({"name": "backend", "object": object, "healthOnly": true, "cel": "object.status.ready"});
        vec![("/spec/checks/0", check)]
    };
    let mut all = rights(name, unserved);
    all.extend([
        (
            "an unquoted minor version",
            ADMIN,
            vec![("/spec/versions/0/kubernetes", json!(1.35))],
            Expected::Refused(&["spec.versions[0].kubernetes"]),
        ),
        (
            "a range",
            ADMIN,
            vec![(chart, json!("^1.18.2"))],
            Expected::Refused(&["spec.versions[0].values", "name the exact version"]),
        ),
        (
            "a Secret of the workload cluster",
            ADMIN,
            vec![(
                object,
                json!({"apiVersion": "v1", "kind": "Secret", "namespace": "default", "name": "token"}),
            )],
            Expected::Refused(&["spec.checks[1].object.kind", "reads no Secrets"]),
        ),
        (
            "an expression that does not compile",
            ADMIN,
            vec![("/spec/checks/1/cel", json!("object."))],
            Expected::Refused(&["spec.checks[1].cel", "denied the request"]),
        ),
        (
            "an expression that ignores the object",
            ADMIN,
            vec![("/spec/checks/1/cel", json!("version == 'v1.18.2'"))],
            Expected::Warned("object"),
        ),
        (
            "a cluster-scoped object",
            ADMIN,
            vec![(
                "/spec/checks/0",
                json!({
                    "name": "namespace", "object": {"apiVersion": "v1", "kind": "Namespace", "name": "default"},
                    "healthOnly": true, "cel": "object.metadata.name == 'default'",
                }),
            )],
            Expected::Refused(&["spec.checks[0].object.kind", "cluster-scoped"]),
        ),
    ]);
    all
}

/// Creations that differ by the rights of their authors.
fn rights(name: &'static str, unserved: impl Fn() -> Vec<(&'static str, Value)>) -> Vec<Creation> {
    vec![
        (
            "no right",
            WRITER,
            vec![],
            Expected::Refused(&[
                "spec.checks[0].object.name",
                "user \"writer\" may not get helmchartproxys.addons.cluster.x-k8s.io \"cilium\" in namespace \"team-a\"",
                "spec.checks[1].cluster",
                "user \"writer\" may not read-workload upgradegates.lifecycle.sluice.dev in namespace \"team-a\"",
            ]),
        ),
        (
            "no right to workload clusters",
            READER,
            vec![],
            Expected::Refused(&[
                "is invalid: spec.checks[1].cluster",
                "may not read-workload",
                "bind ClusterRole sluice-gate-author",
            ]),
        ),
        ("all rights", AUTHOR, vec![], Expected::Admitted),
        (
            "another object",
            AUTHOR,
            vec![(name, json!("other"))],
            Expected::Refused(&["is invalid: spec.checks[0].object.name", "\"other\" in namespace"]),
        ),
        (
            "a right to one name",
            AUTHOR,
            vec![(name, json!("cilium-${cluster}"))],
            Expected::Refused(&["is invalid: spec.checks[0].object.name", "without resourceNames"]),
        ),
        (
            "annotations of Clusters",
            AUTHOR,
            vec![("/spec/checks/1/cel", json!("cluster.annotations['a'] == 'b'"))],
            Expected::Refused(&[
                "is invalid: spec.checks[1].cel",
                "user \"author\" may not get clusters.cluster.x-k8s.io in namespace \"team-a\"",
            ]),
        ),
        ("a cluster admin", ADMIN, vec![], Expected::Admitted),
        (
            "a placeholder of a cluster admin",
            ADMIN,
            vec![(name, json!("cilium-${cluster}"))],
            Expected::Admitted,
        ),
        (
            "a kind that is not served",
            AUTHOR,
            unserved(),
            Expected::Refused(&[
                "does not serve Backend in example.com/v1",
                "may not get all resources of group \"example.com\"",
            ]),
        ),
        (
            "a kind that is not served, by a cluster admin",
            ADMIN,
            unserved(),
            Expected::Warned("does not serve Backend in example.com/v1"),
        ),
    ]
}

/// Updates of a stored gate.
async fn updates(client: &Client) -> Result<()> {
    let request = http::Request::post(GATES);
    let created = sent(client, AUTHOR, request, "application/json", &gate()).await?;
    created.is(&Expected::Admitted)?;
    let deadline = json!({"spec": {"deadline": "1h"}});
    for (user, change, expected) in [
        (WRITER, labels(), Expected::Admitted),
        (WRITER, audit(), Expected::Admitted),
        (
            WRITER,
            deadline.clone(),
            Expected::Refused(&["user \"writer\" may not"]),
        ),
        (AUTHOR, deadline, Expected::Admitted),
    ] {
        let answer = patch(client, user, &change).await?;
        answer
            .is(&expected)
            .with_context(|| format!("{user} writes {change}"))?;
    }
    Ok(())
}

fn labels() -> Value {
    json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["harness.test/stays"]}})
}

fn audit() -> Value {
    json!({"spec": {"mode": "Audit"}})
}

/// The accounts with their rights.
fn accounts() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    let role = |name: &str, rule: Value| {
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": {"name": name, "namespace": NAMESPACE},
            "rules": [rule],
        })
    };
    let binding = |user: &str, kind: &str, role: &str| {
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
            "metadata": {"name": format!("{user}-{role}"), "namespace": NAMESPACE},
            "roleRef": {"apiGroup": rbac, "kind": kind, "name": role},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
        })
    };
    let gates = json!({
        "apiGroups": ["lifecycle.sluice.dev"], "resources": ["upgradegates"], "verbs": ["get", "create", "update", "patch"],
    });
    let proxies =
        json!({"apiGroups": ["addons.cluster.x-k8s.io"], "resources": ["helmchartproxys"], "verbs": ["get"]});
    let mut cilium = proxies.clone();
    cilium["resourceNames"] = json!(["cilium"]);
    let admin = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "admin"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": ADMIN}],
    });
    vec![
        role("gates", gates),
        role("proxies", proxies),
        role("cilium", cilium),
        binding(WRITER, "Role", "gates"),
        binding(READER, "Role", "gates"),
        binding(READER, "Role", "proxies"),
        binding(AUTHOR, "ClusterRole", "sluice-gate-author"),
        binding(AUTHOR, "Role", "cilium"),
        admin,
    ]
}

/// The shipped webhook, at the address of a replica.
async fn webhook(server: &ApiServer, replica: &Replica) -> Result<Value> {
    let manifests = Base::gates_only().await?;
    let mut found = manifests
        .objects()
        .iter()
        .filter(|object| object["kind"] == "ValidatingWebhookConfiguration");
    let mut configuration = found.next().cloned().context("no webhook is shipped")?;
    ensure!(found.next().is_none(), "several configurations are shipped");
    configuration["metadata"] = json!({"name": configuration["metadata"]["name"]});
    for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
        let path = webhook["clientConfig"]["service"]["path"].as_str();
        let url = format!(
            "{}{}",
            replica.admission_url(),
            path.context("a webhook without path")?
        );
        webhook["clientConfig"] = json!({"url": url, "caBundle": server.pki().ca_bundle()});
    }
    Ok(configuration)
}

/// Waits until the API server calls the webhook, and has observed the rights of all accounts.
async fn is_called(client: &Client) -> Result<()> {
    wait::until("the webhook of UpgradeGates to be called", CALLED, || async {
        for (user, expected) in [
            (WRITER, Expected::Refused(&["user \"writer\" may not"])),
            (
                READER,
                Expected::Refused(&["user \"reader\" may not read-workload"]),
            ),
            (AUTHOR, Expected::Admitted),
            (ADMIN, Expected::Admitted),
        ] {
            create(client, user, &[]).await?.is(&expected)?;
        }
        Ok(())
    })
    .await?;
    Ok(())
}

fn gate() -> Value {
    json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1",
        "kind": "UpgradeGate",
        "metadata": {"name": "cni", "namespace": NAMESPACE},
        "spec": {
            "mode": "Enforce",
            "clusterSelector": {},
            "before": "ControlPlane",
            "versions": [{"kubernetes": "1.35", "values": {"chart": "1.18.2", "image": "v1.18.2"}}],
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

/// Creates a gate with these edits, as a dry run.
async fn create(client: &Client, user: &str, edits: &[(&str, Value)]) -> Result<Answer> {
    let mut gate = gate();
    for (path, value) in edits {
        let (parent, name) = path.rsplit_once('/').context("a path")?;
        let parent = gate.pointer_mut(parent).with_context(|| format!("no {parent}"))?;
        match parent {
            Value::Object(fields) => drop(fields.insert(name.to_owned(), value.clone())),
            Value::Array(items) => items[name.parse::<usize>()?] = value.clone(),
            other => bail!("{path} is in {other}"),
        }
    }
    let request = http::Request::post(format!("{GATES}?dryRun=All"));
    sent(client, user, request, "application/json", &gate).await
}

/// Changes the stored gate, as a dry run.
async fn patch(client: &Client, user: &str, change: &Value) -> Result<Answer> {
    let request = http::Request::patch(format!("{GATES}/cni?dryRun=All"));
    sent(client, user, request, "application/merge-patch+json", change).await
}

/// Answer of the API server to a write.
#[derive(Debug)]
struct Answer {
    /// Message of a refusal.
    refusal: Option<String>,
    warnings: String,
}

impl Answer {
    fn is(&self, expected: &Expected) -> Result<()> {
        let refusal = self.refusal.as_deref();
        let is_expected = match expected {
            Expected::Admitted => refusal.is_none(),
            Expected::Warned(text) => refusal.is_none() && self.warnings.contains(text),
            Expected::Refused(texts) => {
                refusal.is_some_and(|message| texts.iter().all(|text| message.contains(text)))
            }
        };
        let texts: &[&str] = match expected {
            Expected::Admitted => &["admitted"],
            Expected::Warned(text) => std::slice::from_ref(text),
            Expected::Refused(texts) => texts,
        };
        ensure!(is_expected, "{self:?} is not {texts:?}");
        Ok(())
    }
}

async fn sent(client: &Client, user: &str, request: Builder, content: &str, body: &Value) -> Result<Answer> {
    let request = request
        .header("content-type", content)
        .header("impersonate-user", user)
        .body(body.to_string().into_bytes().into())?;
    let answer = client.send(request).await?;
    let is_success = answer.status().is_success();
    let warnings = answer.headers().get_all("warning").iter();
    let warnings: Vec<String> = warnings
        .map(|warning| String::from_utf8_lossy(warning.as_bytes()).into_owned())
        .collect();
    let body = axum::body::to_bytes(axum::body::Body::new(answer.into_body()), usize::MAX).await?;
    let status: Value = serde_json::from_slice(&body).context("read the answer of the API server")?;
    let message = status["message"].as_str().unwrap_or_default().to_owned();
    Ok(Answer {
        refusal: (!is_success).then_some(message),
        warnings: warnings.join("; "),
    })
}
