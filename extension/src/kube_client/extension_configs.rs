//! Reads of the ExtensionConfigs of Sluice, and of the namespaces that they select.

use kube::{
    Client,
    api::ListParams,
    core::{Request, Selector},
};
use serde_json::Value;
use sluice_core::installation::{
    gate_in_force::ReadConfig,
    registration::{Selected, selected},
};
use sluice_hooks::{Hook, Profile};

const CONFIGS: &str = "/apis/runtime.cluster.x-k8s.io/v1beta2/extensionconfigs";

/// Reads an ExtensionConfig.
pub(crate) async fn read(client: &Client, name: &str) -> ReadConfig {
    let config = get(client, name).await.map_err(|error| error.to_string());
    let offered = offered(config.as_ref().ok().and_then(Option::as_ref));
    ReadConfig {
        name: name.to_owned(),
        config,
        offered,
    }
}

async fn get(client: &Client, name: &str) -> kube::Result<Option<Value>> {
    let request = http::Request::get(format!("{CONFIGS}/{name}")).body(Vec::new());
    match client.request(request.map_err(kube::Error::HttpError)?).await {
        Ok(config) => Ok(Some(config)),
        // Covers a missing kind as well, whose response is not a Status.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the hooks that Sluice offers at the path of an ExtensionConfig. A server in front of Sluice may map the path of a URL to any path of
/// Sluice, so of a URL these are the hooks that each path offers.
fn offered(config: Option<&Value>) -> Vec<Hook> {
    let client = config.map_or(&Value::Null, |config| &config["spec"]["clientConfig"]);
    let profile = match client["url"].as_str() {
        Some(_) => Profile::Before1_12,
        None => Profile::of_path(client["service"]["path"].as_str().unwrap_or_default()),
    };
    profile.hooks().collect()
}

/// Whether an ExtensionConfig selects a namespace, by its labels at the API server.
///
/// # Errors
/// The selector is invalid, or the namespace cannot be read.
pub(crate) async fn selects(client: &Client, config: &Value, namespace: &str) -> Result<bool, String> {
    match selected(config)? {
        Selected::NoNamespace => Ok(false),
        Selected::AllNamespaces => Ok(true),
        Selected::Matching(selector) => is_matched(client, &selector, namespace)
            .await
            .map_err(|error| error.to_string()),
    }
}

/// Lists the namespace by name and selector, which needs no other verb than the lists of the leader.
async fn is_matched(client: &Client, selector: &Selector, namespace: &str) -> kube::Result<bool> {
    let params = ListParams::default()
        .labels_from(selector)
        .fields(&format!("metadata.name={namespace}"))
        .limit(1);
    let request = Request::new("/api/v1/namespaces").list_metadata(&params);
    let page: Value = client
        .request(request.map_err(kube::Error::BuildRequest)?)
        .await?;
    Ok(page["items"].as_array().is_some_and(|items| !items.is_empty()))
}
