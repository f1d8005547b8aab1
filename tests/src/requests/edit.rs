//! Single requests on objects as JSON.

use anyhow::{Context as _, Result};
use kube::Client;
use serde_json::{Value, json};

use crate::observer::Revision;

/// Revision of the last write of an object.
pub(crate) fn revision(object: &Value) -> Result<Revision> {
    let revision = object["metadata"]["resourceVersion"].as_str();
    revision
        .and_then(|revision| revision.parse().ok())
        .with_context(|| {
            format!(
                "an object without resourceVersion: {}",
                object["metadata"]["name"]
            )
        })
}

/// GETs an object; none if it does not exist.
pub(crate) async fn get(client: &Client, path: &str) -> Result<Option<Value>> {
    existing(client.request(http::Request::get(path).body(Vec::new())?).await)
}

/// Merges a patch into an object; none if it does not exist.
pub(crate) async fn merge(client: &Client, path: &str, change: &Value) -> Result<Option<Value>> {
    let request = http::Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(change.to_string().into_bytes())?;
    existing(client.request(request).await)
}

/// Deletes an object regardless of its finalizers; none if it does not exist.
pub(crate) async fn delete_by_force(client: &Client, path: &str) -> Result<Option<()>> {
    let found = merge(client, path, &json!({"metadata": {"finalizers": null}})).await?;
    existing(
        client
            .request::<Value>(http::Request::delete(path).body(Vec::new())?)
            .await,
    )?;
    Ok(found.map(drop))
}

fn existing(answer: kube::Result<Value>) -> Result<Option<Value>> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
