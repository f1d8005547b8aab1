//! The webhooks of `manifests/base` on the real API server, by URL, for namespaces of one scenario.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::{Api, Client, api::DeleteParams};
use serde_json::{Value, json};

use crate::requests::apply;
use crate::stack::SYSTEM_NAMESPACE;
use crate::stack::manifests::Base;
use crate::wait;

/// Templates are in one namespace, which all scenarios share: reviewed are those whose names begin so.
pub const TEMPLATES: &str = "admission-";

/// Configurations of the webhooks of packages.
const OF_PACKAGES: [&str; 2] = ["addons-sluice-mutating", "sluice-validating"];

/// Configuration of the webhook of UpgradeGates, and the name of that webhook.
const OF_GATES: (&str, &str) = ("sluice-gates", "upgradegate.validating.lifecycle.sluice.dev");

/// Registers the webhooks of packages under `name`, and waits until the API server calls them.
pub(crate) async fn register(
    client: &Client,
    name: &str,
    url: &str,
    ca_bundle: &str,
    namespaces: &[&str],
) -> Result<()> {
    for configuration in configurations(&OF_PACKAGES, name, url, ca_bundle, namespaces)? {
        apply::apply(client, &configuration).await?;
    }
    let what = format!("the API server to ask the webhooks {name}");
    wait::until(what, Duration::from_secs(30), || async {
        if is_asked(client).await? {
            Ok(())
        } else {
            wait::not_yet("a template without packages is admitted")
        }
    })
    .await?;
    Ok(())
}

/// Registers the webhook of UpgradeGates under `name` for one namespace, and waits until the API server calls it.
pub(crate) async fn register_gates(
    client: &Client,
    name: &str,
    url: &str,
    ca_bundle: &str,
    namespace: &str,
) -> Result<()> {
    for configuration in configurations(&[OF_GATES.0], name, url, ca_bundle, &[namespace])? {
        apply::apply(client, &configuration).await?;
    }
    let what = format!("the API server to ask the webhook {name} about UpgradeGates");
    wait::until(what, Duration::from_secs(30), || async {
        match refusal(client, namespace).await? {
            Some(message) if message.contains(&format!("{:?} denied", OF_GATES.1)) => Ok(()),
            other => wait::not_yet(format!(
                "an expression that does not compile is answered {other:?}"
            )),
        }
    })
    .await?;
    Ok(())
}

/// Registers the webhook of upgrades of Clusters under `name`. The API server calls it only some time later.
pub(crate) async fn register_upgrades(
    client: &Client,
    name: &str,
    url: &str,
    ca_bundle: &str,
    namespaces: &[&str],
) -> Result<()> {
    let reviews_clusters = |webhook: &Value| webhook["rules"][0]["resources"][0] == "clusters";
    let base = Base::read()?;
    let of_upgrades = |object: &&Value| {
        let mut webhooks = object["webhooks"].as_array().into_iter().flatten();
        object["kind"] == "ValidatingWebhookConfiguration" && webhooks.any(reviews_clusters)
    };
    let shipped: Vec<&str> = base
        .objects()
        .iter()
        .filter(of_upgrades)
        .filter_map(|object| object["metadata"]["name"].as_str())
        .collect();
    ensure!(
        shipped.len() == 1,
        "validating webhooks of Clusters in {shipped:?}, not in one configuration"
    );
    for mut configuration in configurations(&shipped, name, url, ca_bundle, namespaces)? {
        if let Some(webhooks) = configuration["webhooks"].as_array_mut() {
            webhooks.retain(reviews_clusters);
        }
        apply::apply(client, &configuration).await?;
    }
    Ok(())
}

/// Registers the webhooks of UpgradeOverrides under `name` for one namespace, and waits until the API server asks them about overrides of a
/// Cluster there.
pub(crate) async fn register_overrides(
    client: &Client,
    name: &str,
    url: &str,
    ca_bundle: &str,
    (namespace, cluster): (&str, &str),
) -> Result<()> {
    let base = Base::read()?;
    let has_one = |object: &&Value| {
        let mut webhooks = object["webhooks"].as_array().into_iter().flatten();
        webhooks.any(reviews_overrides)
    };
    let shipped: Vec<&str> = base
        .objects()
        .iter()
        .filter(has_one)
        .filter_map(|object| object["metadata"]["name"].as_str())
        .collect();
    ensure!(
        !shipped.is_empty(),
        "manifests/base without webhooks of UpgradeOverrides"
    );
    for mut configuration in configurations(&shipped, name, url, ca_bundle, &[namespace])? {
        if let Some(webhooks) = configuration["webhooks"].as_array_mut() {
            webhooks.retain(reviews_overrides);
        }
        apply::apply(client, &configuration).await?;
    }
    let what = format!("the API server to ask the webhook {name} about UpgradeOverrides");
    wait::until(what, Duration::from_secs(30), || async {
        let user = completed(client, namespace, cluster).await?;
        if user.is_string() {
            Ok(())
        } else {
            wait::not_yet("an override without user is refused, or stays without")
        }
    })
    .await?;
    Ok(())
}

fn reviews_overrides(webhook: &Value) -> bool {
    webhook["rules"][0]["resources"][0] == "upgradeoverrides"
}

/// `requestedBy` of an override that is created without it; null if it is refused. It is not stored in any case.
async fn completed(client: &Client, namespace: &str, cluster: &str) -> Result<Value> {
    let expires = Timestamp::now() + SignedDuration::from_hours(1);
    let object = json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1",
        "kind": "UpgradeOverride",
        "metadata": {"name": "admission-probe", "namespace": namespace},
        "spec": {
            "clusterName": cluster,
            "target": {"kubernetesVersion": "v1.0.0", "release": "none"},
            "gate": "Workers",
            "packages": ["*"],
            "reason": "probe",
            "expiresAt": expires.to_string(),
        },
    });
    let path =
        format!("/apis/lifecycle.sluice.dev/v1alpha1/namespaces/{namespace}/upgradeoverrides?dryRun=All");
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&object)?)?;
    match client.request::<Value>(request).await {
        Ok(mut created) => Ok(created["spec"]["requestedBy"].take()),
        Err(kube::Error::Api(_)) => Ok(Value::Null),
        Err(error) => Err(error.into()),
    }
}

/// Takes the webhooks of packages back.
pub async fn unregister(client: &Client, name: &str) -> Result<()> {
    let parameters = DeleteParams::default();
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    validating
        .delete(name, &parameters)
        .await
        .map(drop)
        .with_context(|| format!("delete the webhooks {name}"))?;
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone());
    mutating
        .delete(name, &parameters)
        .await
        .map(drop)
        .with_context(|| format!("delete the webhooks {name}"))
}

/// What is shipped, with an address on loopback and with fewer namespaces.
fn configurations(
    shipped: &[&str],
    name: &str,
    url: &str,
    ca_bundle: &str,
    namespaces: &[&str],
) -> Result<Vec<Value>> {
    let base = Base::read()?;
    let is_one = |object: &&Value| {
        let kind = object["kind"].as_str().unwrap_or_default();
        kind.ends_with("WebhookConfiguration")
            && shipped.iter().any(|name| object["metadata"]["name"] == *name)
    };
    let mut configurations: Vec<Value> = base.objects().iter().filter(is_one).cloned().collect();
    ensure!(
        configurations.len() == shipped.len(),
        "manifests/base without webhooks {shipped:?}"
    );
    for configuration in &mut configurations {
        configuration["metadata"] = json!({"name": name});
        for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
            let path = webhook["clientConfig"]["service"]["path"].as_str();
            let path = path.context("a webhook without path")?.to_owned();
            webhook["clientConfig"] = json!({"url": format!("{url}{path}"), "caBundle": ca_bundle});
            let mut among = namespaces.to_vec();
            if path.ends_with("template") {
                among.push(SYSTEM_NAMESPACE);
                let own = format!("object.metadata.name.startsWith('{TEMPLATES}')");
                let conditions = webhook["matchConditions"].as_array_mut();
                conditions
                    .context("a webhook without matchConditions")?
                    .push(json!({"name": "of-a-scenario", "expression": own}));
            }
            webhook["namespaceSelector"] = json!({
                "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": among}],
            });
        }
    }
    Ok(configurations)
}

/// Whether a template that has to be refused is. It is not stored in any case.
async fn is_asked(client: &Client) -> Result<bool> {
    let template = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3",
        "kind": "ClusterBootstrapTemplate",
        "metadata": {"name": format!("{TEMPLATES}probe"), "namespace": SYSTEM_NAMESPACE},
        "spec": {},
    });
    let path = format!(
        "/apis/run.tanzu.vmware.com/v1alpha3/namespaces/{SYSTEM_NAMESPACE}/clusterbootstraptemplates?dryRun=All"
    );
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&template)?)?;
    match client.request::<Value>(request).await {
        Ok(_) => Ok(false),
        Err(kube::Error::Api(status)) if status.message.contains("package can't be nil") => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The message with which the API server refuses a gate whose expression does not compile. It is not stored in any case.
async fn refusal(client: &Client, namespace: &str) -> Result<Option<String>> {
    let gate = json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1",
        "kind": "UpgradeGate",
        "metadata": {"name": "admission-probe", "namespace": namespace},
        "spec": {
            "mode": "Audit",
            "clusterSelector": {},
            "before": "ControlPlane",
            "checks": [{
                "name": "probe",
                "cluster": "Workload",
                "object": {"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": "kube-system", "name": "probe"},
                "healthOnly": true,
                "cel": "object.",
            }],
        },
    });
    let path = format!("/apis/lifecycle.sluice.dev/v1alpha1/namespaces/{namespace}/upgradegates?dryRun=All");
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&gate)?)?;
    match client.request::<Value>(request).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}
