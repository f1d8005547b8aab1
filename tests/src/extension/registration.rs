//! ExtensionConfigs: the extension that Cluster API calls, and its namespaces.

use std::time::Duration;

use anyhow::Result;
use kube::Client;
use serde_json::{Value, json};

use crate::requests::{apply, edit};
use crate::wait;

/// Namespaces for which Cluster API calls an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All.
    Everywhere,
    /// The ones named.
    Namespaces(Vec<String>),
}

/// Registers the extension at `url` under `name` and waits until its hooks are discovered.
pub(crate) async fn register(
    client: &Client,
    name: &str,
    url: &str,
    ca_bundle: &str,
    scope: &Scope,
) -> Result<()> {
    apply::apply(client, &extension_config(name, url, ca_bundle, scope)).await?;
    discovered_is(client, name, "True", "").await
}

/// Waits until condition `Discovered` of an ExtensionConfig is `True` or `False`, with a text in its message.
pub(crate) async fn discovered_is(client: &Client, name: &str, status: &str, text: &str) -> Result<()> {
    wait::until(
        format!("Discovered of ExtensionConfig {name} to be {status} with {text:?}"),
        Duration::from_mins(2),
        || async {
            let config = edit::get(client, &path(name)).await?.unwrap_or_default();
            let conditions = config["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            match conditions.find(|condition| condition["type"] == "Discovered") {
                Some(condition)
                    if condition["status"] == status && condition["message"].to_string().contains(text) =>
                {
                    Ok(())
                }
                Some(condition) => wait::not_yet(condition),
                None => wait::not_yet("no condition Discovered"),
            }
        },
    )
    .await?;
    Ok(())
}

/// Takes the registration back.
pub(crate) async fn unregister(client: &Client, name: &str) -> Result<()> {
    client
        .request_text(http::Request::delete(path(name)).body(Vec::new())?)
        .await
        .map(drop)?;
    Ok(())
}

pub(crate) fn path(name: &str) -> String {
    format!("/apis/runtime.cluster.x-k8s.io/v1beta2/extensionconfigs/{name}")
}

pub(crate) fn extension_config(name: &str, url: &str, ca_bundle: &str, scope: &Scope) -> Value {
    let namespaces = match scope {
        Scope::Everywhere => json!({}),
        Scope::Namespaces(names) => json!({
            "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": names}],
        }),
    };
    json!({
        "apiVersion": "runtime.cluster.x-k8s.io/v1beta2",
        "kind": "ExtensionConfig",
        "metadata": {"name": name},
        "spec": {
            "clientConfig": {"url": url, "caBundle": ca_bundle},
            "namespaceSelector": namespaces,
        },
    })
}
