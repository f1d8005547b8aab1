//! Objects of the fleet's namespace, written under the names of the programs that write them in reality.

use anyhow::{Context as _, Result};
use kube::Client;
use serde_json::{Value, json};

use super::kinds::Kind;

/// The objects of one API server.
#[derive(Clone)]
pub(super) struct Objects(Client);

impl Objects {
    /// With the rights of `client`.
    pub(super) fn of(client: Client) -> Self {
        Self(client)
    }

    /// Applies an object as `manager`, and returns the result.
    pub(super) async fn apply(&self, kind: Kind, manager: &str, object: &Value) -> Result<Value> {
        let path = format!("{}?fieldManager={manager}&force=true", kind.one(name_of(object)));
        self.patch(&path, "application/apply-patch+yaml", object).await
    }

    /// An object as it is now.
    pub(super) async fn get(&self, path: &str) -> Result<Value> {
        let request = http::Request::get(path).body(Vec::new())?;
        self.0
            .request(request)
            .await
            .with_context(|| format!("get {path}"))
    }

    /// Merges `change` into an object as `manager`.
    pub(super) async fn merge(&self, path: &str, manager: &str, change: &Value) -> Result<Value> {
        let path = format!("{path}?fieldManager={manager}");
        self.patch(&path, "application/merge-patch+json", change).await
    }

    /// Gives an object this status as `manager`.
    pub(super) async fn status(&self, kind: Kind, manager: &str, name: &str, status: &Value) -> Result<()> {
        let path = format!("{}/status", kind.one(name));
        self.merge(&path, manager, &json!({"status": status}))
            .await
            .map(drop)
    }

    /// Deletes all objects of a kind.
    pub(super) async fn delete_all(&self, kind: Kind) -> Result<()> {
        let path = kind.all();
        let request = http::Request::delete(path.as_str()).body(Vec::new())?;
        self.0
            .request::<Value>(request)
            .await
            .with_context(|| format!("delete {path}"))
            .map(drop)
    }

    async fn patch(&self, path: &str, content: &str, body: &Value) -> Result<Value> {
        let request = http::Request::patch(path)
            .header("content-type", content)
            .body(body.to_string().into_bytes())?;
        self.0
            .request(request)
            .await
            .with_context(|| format!("patch {path}"))
    }

    /// The objects of a kind whose names begin with `name`, as they are stored.
    pub(super) async fn all(&self, kind: Kind, name: &str) -> Result<Vec<Value>> {
        let path = kind.all();
        let request = http::Request::get(path.as_str()).body(Vec::new())?;
        let mut list: Value = self
            .0
            .request(request)
            .await
            .with_context(|| format!("list {path}"))?;
        let items = list["items"].take();
        let Value::Array(items) = items else {
            return Ok(Vec::new());
        };
        let wanted = items.into_iter().filter(|item| name_of(item).starts_with(name));
        // List items of built-in kinds have no apiVersion and kind.
        Ok(wanted
            .map(|item| {
                let name = name_of(&item).to_owned();
                kind.object(&name, item)
            })
            .collect())
    }
}

/// Name of an object.
pub(super) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
