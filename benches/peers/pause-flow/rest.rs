//! Objects of an API server as JSON, by their paths.

use std::time::Duration;

use anyhow::{Context as _, Result};
use http::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Request, Response};
use kube::client::Body;
use kube::{Client, Config};
use serde_json::Value;

/// How requests are told apart from those of other programs.
const NAME: &str = "pause-flow";

/// How long one request may take, as the addons-manager has it for workload clusters.
const TIMEOUT: Duration = Duration::from_secs(10);

/// One API server.
pub(crate) struct Rest(Client);

impl Rest {
    /// Asks the server of `config`.
    pub(crate) fn of(mut config: Config) -> Result<Self> {
        config.headers.push((USER_AGENT, HeaderValue::from_static(NAME)));
        config.connect_timeout = Some(TIMEOUT);
        config.proxy_url = None;
        Ok(Self(Client::try_from(config)?))
    }

    /// The client itself, for watches.
    pub(crate) fn client(&self) -> Client {
        self.0.clone()
    }

    /// The object; none if there is none.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Value>> {
        let request = Request::get(path).body(Vec::new())?;
        match within(self.0.request::<Value>(request)).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("get {path}")),
        }
    }

    /// Creates an object below the path of its collection; one that is there already is left alone.
    pub(crate) async fn create(&self, collection: &str, object: &Value) -> Result<()> {
        let request = Request::post(collection)
            .header(CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(object)?)?;
        match within(self.0.request::<Value>(request)).await {
            Ok(_) => Ok(()),
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("create {collection}")),
        }
    }

    /// Merges a patch into an object.
    pub(crate) async fn merge(&self, path: &str, change: &Value) -> Result<()> {
        let request = Request::patch(path)
            .header(CONTENT_TYPE, "application/merge-patch+json")
            .body(serde_json::to_vec(change)?)?;
        within(self.0.request::<Value>(request))
            .await
            .with_context(|| format!("patch {path}"))?;
        Ok(())
    }

    /// Has the object in `collection` be as `wanted`: reads it, then creates it, or patches it where it differs.
    pub(crate) async fn create_or_patch(&self, collection: &str, wanted: &Value) -> Result<()> {
        let path = one(collection, wanted);
        match self.get(&path).await? {
            None => self.create(collection, wanted).await,
            Some(found) if holds(&found, wanted) => Ok(()),
            Some(_) => self.merge(&path, wanted).await,
        }
    }

    /// Asks for all groups, and for the kinds of each of their versions, as a client of controller-runtime does when it is made.
    pub(crate) async fn discover(&self) -> Result<()> {
        let answer = |path: String| async move { self.get(&path).await.map(Option::unwrap_or_default) };
        answer("/api".to_owned()).await?;
        let groups = answer("/apis".to_owned()).await?;
        answer("/api/v1".to_owned()).await?;
        let groups = groups["groups"].as_array().into_iter().flatten();
        for version in groups.flat_map(|group| group["versions"].as_array().into_iter().flatten()) {
            let version = version["groupVersion"].as_str().unwrap_or_default();
            // A group whose server is away is skipped.
            let request = Request::get(format!("/apis/{version}")).body(Body::empty())?;
            let _answered: Result<Response<Body>> = within(self.0.send(request)).await;
        }
        Ok(())
    }
}

/// The path of an object in a collection.
pub(crate) fn one(collection: &str, object: &Value) -> String {
    format!(
        "{collection}/{}",
        object["metadata"]["name"].as_str().unwrap_or_default()
    )
}

async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T> {
    let answered = tokio::time::timeout(TIMEOUT, request).await;
    Ok(answered.with_context(|| format!("no answer within {TIMEOUT:?}"))??)
}

fn code(error: &anyhow::Error) -> Option<u16> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

fn is_not_found(error: &anyhow::Error) -> bool {
    code(error) == Some(404)
}

fn is_conflict(error: &anyhow::Error) -> bool {
    code(error) == Some(409)
}

/// Whether every field of `wanted` is in `found` as it is wanted.
pub(crate) fn holds(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| found.get(key).is_some_and(|found| holds(found, wanted))),
        (found, wanted) => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_another_program_adds_makes_no_difference() {
        let found = json!({"spec": {"a": 1, "b": [1, 2]}, "status": {}});
        assert!(holds(&found, &json!({"spec": {"b": [1, 2]}})));
        assert!(!holds(&found, &json!({"spec": {"b": [1]}})));
        assert!(!holds(&found, &json!({"spec": {"c": null}})));
    }
}
