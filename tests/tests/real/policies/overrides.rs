//! Definition, roles, policy `sluice-overrides` and webhook of UpgradeOverrides, without Sluice: who may create an override, and which
//! writes are refused or reviewed.

use anyhow::{Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use sluice_tests::components::MANAGEMENT_VERSION;
use sluice_tests::requests::apply;
use sluice_tests::scenario::sluice_definitions;
use sluice_tests::stack::StackCore;
use sluice_tests::stack::apiserver::ApiServer;
use sluice_tests::stack::manifests::Base;
use sluice_tests::wait;

use super::gates::{is_answered, refusal};
use super::{IN_EFFECT, SLUICE};

const OVERRIDES: &str = "/apis/lifecycle.sluice.dev/v1alpha1/namespaces/default/upgradeoverrides";

/// Two users with the shipped role.
const ADA: &str = "ada";
const EVE: &str = "eve";

/// What the API server says when it cannot have an override reviewed.
const REVIEWED: &str = "failed calling webhook \"upgradeoverride.mutating.lifecycle.sluice.dev\"";

const OF_USER: &str = "spec.requestedBy must be the user";
const OF_UID: &str = "spec.clusterUID must be set";
const FORBIDDEN: &str = "is forbidden";

#[tokio::test(flavor = "multi_thread")]
async fn an_override_is_of_the_user_who_creates_it() -> Result<()> {
    let core = StackCore::start("override-policies").await?;
    let server = ApiServer::start(&core, "override-policies", MANAGEMENT_VERSION).await?;
    let client = server.admin_client();
    let mut definitions = sluice_definitions()?;
    definitions.retain(|definition| definition["spec"]["names"]["kind"] == "UpgradeOverride");
    apply::apply_crds(&client, &definitions).await?;
    apply::namespace(&client, "default").await?;
    let roles = [
        ("ClusterRole", "sluice-packages"),
        ("ClusterRoleBinding", "sluice-packages"),
        ("ClusterRole", "sluice-upgrade-override"),
    ];
    apply::apply_all(&client, &shipped(&roles)?).await?;
    apply::apply(&client, &may_override()).await?;
    let policy = [
        ("ValidatingAdmissionPolicy", "sluice-overrides"),
        ("ValidatingAdmissionPolicyBinding", "sluice-overrides"),
    ];
    apply::apply_all(&client, &shipped(&policy)?).await?;
    is_in_effect(&client).await?;

    creations(&client).await?;
    let stored = sent(&client, ADA, http::Request::post(OVERRIDES), &complete(ADA)).await?;
    is_answered("ada creates an override", stored.as_deref(), None)?;
    changes(&client).await?;
    policy_is_readable(&client).await?;

    apply::apply(&client, &webhook()?).await?;
    is_called(&client).await?;
    // Nothing else is reviewed.
    changes(&client).await?;
    core.directory().close().await
}

/// Objects of `manifests/base` by kind and name.
fn shipped(named: &[(&str, &str)]) -> Result<Vec<Value>> {
    let base = Base::read()?;
    let is_named = |object: &&Value| {
        named
            .iter()
            .any(|(kind, name)| object["kind"] == *kind && object["metadata"]["name"] == *name)
    };
    let found: Vec<Value> = base.objects().iter().filter(is_named).cloned().collect();
    ensure!(found.len() == named.len(), "manifests/base without {named:?}");
    Ok(found)
}

/// The shipped configuration, without the webhooks of other kinds.
fn webhook() -> Result<Value> {
    let mut found = shipped(&[("MutatingWebhookConfiguration", "addons-sluice-mutating")])?;
    let mut configuration = found.remove(0);
    let webhooks = configuration["webhooks"].as_array_mut();
    let webhooks = webhooks.map(|webhooks| {
        webhooks.retain(|webhook| webhook["name"] == "upgradeoverride.mutating.lifecycle.sluice.dev");
        webhooks.len()
    });
    ensure!(webhooks == Some(1), "{configuration}");
    Ok(configuration)
}

fn may_override() -> Value {
    let subjects =
        [ADA, EVE].map(|user| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}));
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "may-override", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "sluice-upgrade-override"},
        "subjects": subjects,
    })
}

/// An override as a user writes it.
fn written() -> Value {
    json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "UpgradeOverride",
        "metadata": {"name": "metrics", "namespace": "default"},
        "spec": {
            "clusterName": "prod-1",
            "target": {"kubernetesVersion": "v1.36.3", "release": "v1.36.3---a.1"},
            "gate": "ControlPlane",
            "packages": ["metrics"],
            "reason": "CHG-4711: metrics is unused here",
            "expiresAt": "2026-12-01T18:00:00Z",
        },
    })
}

/// The same as the webhook completes it for a user.
fn complete(user: &str) -> Value {
    let mut complete = written();
    complete["spec"]["requestedBy"] = json!(user);
    complete["spec"]["clusterUID"] = json!("0b0c5b1e-6f2e-4a1b-9a49-6f1f3c3f0001");
    complete
}

/// A complete override of ada with another value of a field; without the field for a null.
fn with(field: &str, value: Value) -> Value {
    let mut object = complete(ADA);
    if value.is_null() {
        if let Some(spec) = object["spec"].as_object_mut() {
            spec.remove(field);
        }
    } else {
        object["spec"][field] = value;
    }
    object
}

/// Waits until the API server applies the policy, and until the users have their rights.
async fn is_in_effect(client: &Client) -> Result<()> {
    wait::until("policy sluice-overrides to be in effect", IN_EFFECT, || async {
        match created(client, ADA, &written()).await? {
            Some(message) if message.contains(OF_USER) => Ok(()),
            other => wait::not_yet(format!("{other:?}")),
        }
    })
    .await?;
    Ok(())
}

/// Overrides by a user, and the message of a refusal.
fn created_by() -> [(&'static str, Value, Option<&'static str>); 15] {
    [
        (ADA, complete(ADA), None),
        (ADA, complete(EVE), Some(OF_USER)),
        (EVE, complete(ADA), Some(OF_USER)),
        (ADA, with("requestedBy", Value::Null), Some(OF_USER)),
        (ADA, with("clusterUID", Value::Null), Some(OF_UID)),
        // Sluice only reads overrides.
        (SLUICE, complete(SLUICE), Some(FORBIDDEN)),
        ("nobody", complete("nobody"), Some(FORBIDDEN)),
        // The definition.
        (ADA, with("packages", json!(["*"])), None),
        (
            ADA,
            with("packages", json!(["*", "metrics"])),
            Some("names every package"),
        ),
        (ADA, with("packages", json!([])), Some("spec.packages")),
        (ADA, with("packages", json!(["a", "a"])), Some("Duplicate value")),
        (ADA, with("reason", json!("  ")), Some("spec.reason")),
        (ADA, with("reason", json!("\u{1b}[2J")), Some("spec.reason")),
        (ADA, with("reason", json!("x".repeat(1025))), Some("spec.reason")),
        (ADA, with("gate", json!("Everything")), Some("spec.gate")),
    ]
}

async fn creations(client: &Client) -> Result<()> {
    for (user, object, says) in created_by() {
        let answered = created(client, user, &object).await?;
        is_answered(
            &format!("{user} creates {}", object["spec"]),
            answered.as_deref(),
            says,
        )?;
    }
    Ok(())
}

/// Changes of the stored override of ada by a user: path, content and the message of a refusal.
async fn changes(client: &Client) -> Result<()> {
    let condition = json!({
        "type": "Used", "status": "False", "reason": "NotUsed", "message": "", "lastTransitionTime": "2026-11-29T10:00:00Z",
    });
    let status = json!({"status": {"conditions": [condition]}});
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let longer = json!({"spec": {"expiresAt": "2026-12-02T18:00:00Z"}});
    for (user, subresource, change, says) in [
        (Some(SLUICE), "/status", &status, None),
        (Some(SLUICE), "", &labels, Some(FORBIDDEN)),
        (Some(ADA), "/status", &status, Some(FORBIDDEN)),
        (Some(ADA), "", &longer, Some(FORBIDDEN)),
        // The administrator has all rights.
        (None, "", &labels, None),
        (None, "", &longer, Some("an override cannot be changed")),
        (
            None,
            "",
            &json!({"spec": {"requestedBy": EVE}}),
            Some("an override cannot be changed"),
        ),
    ] {
        let path = format!("{OVERRIDES}/metrics{subresource}?dryRun=All");
        let mut request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        if let Some(user) = user {
            request = request.header("impersonate-user", user);
        }
        let answered = refusal(client, request.body(change.to_string().into_bytes())?).await?;
        let user = user.unwrap_or("the administrator");
        is_answered(&format!("{user} writes {change}"), answered.as_deref(), says)?;
    }
    for (user, says) in [(EVE, None), (SLUICE, Some(FORBIDDEN))] {
        let delete = http::Request::delete(format!("{OVERRIDES}/metrics?dryRun=All"));
        let answered = sent(client, user, delete, &Value::Null).await?;
        is_answered(&format!("{user} deletes the override"), answered.as_deref(), says)?;
    }
    Ok(())
}

/// Sluice reads this policy and its binding, and no others.
async fn policy_is_readable(client: &Client) -> Result<()> {
    for kind in ["validatingadmissionpolicies", "validatingadmissionpolicybindings"] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}");
        for (path, says) in [
            (format!("{path}/sluice-overrides"), None),
            (format!("{path}/other"), Some(FORBIDDEN)),
            (path, Some(FORBIDDEN)),
        ] {
            let get = http::Request::get(path.as_str());
            let answered = sent(client, SLUICE, get, &Value::Null).await?;
            is_answered(&path, answered.as_deref(), says)?;
        }
    }
    Ok(())
}

/// Waits until the API server calls the webhook.
async fn is_called(client: &Client) -> Result<()> {
    wait::until("the webhook of overrides to be called", IN_EFFECT, || async {
        match created(client, ADA, &complete(ADA)).await? {
            Some(message) if message.contains(REVIEWED) => Ok(()),
            other => wait::not_yet(format!("{other:?}")),
        }
    })
    .await?;
    Ok(())
}

/// The message with which the API server refuses a new override of a user. It is not stored in any case.
async fn created(client: &Client, user: &str, object: &Value) -> Result<Option<String>> {
    let mut object = object.clone();
    object["metadata"] = json!({"generateName": "new-", "namespace": "default"});
    let create = http::Request::post(format!("{OVERRIDES}?dryRun=All"));
    sent(client, user, create, &object).await
}

/// The message with which the API server refuses a request of a user. A null is no body.
async fn sent(
    client: &Client,
    user: &str,
    request: http::request::Builder,
    body: &Value,
) -> Result<Option<String>> {
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = request
        .header("impersonate-user", user)
        .header("content-type", "application/json")
        .body(body)?;
    refusal(client, request).await
}
