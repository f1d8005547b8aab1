//! The webhooks of `manifests/base` on the real API server, by URL, for namespaces of one scenario.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
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

/// Registers the webhooks under `name`, and waits until the API server calls them.
pub(crate) async fn register(
    client: &Client,
    name: &str,
    url: &str,
    ca_bundle: &str,
    namespaces: &[&str],
) -> Result<()> {
    for configuration in configurations(name, url, ca_bundle, namespaces)? {
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

/// Takes the webhooks back.
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
fn configurations(name: &str, url: &str, ca_bundle: &str, namespaces: &[&str]) -> Result<Vec<Value>> {
    let base = Base::read()?;
    let kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
    let shipped = base.objects().iter();
    let mut configurations: Vec<Value> = shipped
        .filter(|object| kinds.iter().any(|kind| object["kind"] == *kind))
        .cloned()
        .collect();
    ensure!(
        configurations.len() == kinds.len(),
        "manifests/base without webhooks"
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
