//! Any object of an API server, by its path.

use anyhow::{Context as _, Result};
use kube::Client;
use serde_json::Value;

use super::disturb::merge;
use super::runner::TIMEOUT;
use crate::requests::edit;
use crate::wait;

/// Objects of one API server.
pub struct Objects {
    client: Client,
}

impl Objects {
    /// With the rights of `client`.
    #[must_use]
    pub fn of(client: Client) -> Self {
        Self { client }
    }

    /// The object; none if it does not exist.
    pub async fn get(&self, path: &str) -> Result<Option<Value>> {
        edit::get(&self.client, path).await
    }

    /// Merges a patch into an object that has to exist.
    pub async fn merge(&self, path: &str, change: &Value) -> Result<()> {
        merge(&self.client, path, change).await
    }

    /// Deletes an object that has to exist.
    pub async fn delete(&self, path: &str) -> Result<()> {
        let request = http::Request::delete(path).body(Vec::new())?;
        let deleted = self.client.request_text(request).await;
        deleted.map(drop).with_context(|| format!("delete {path}"))
    }

    /// Restores an object to `sound`, whether it exists or not.
    pub async fn restore(&self, path: &str, sound: &Value) -> Result<()> {
        // A controller may write between reading the version and replacing it.
        wait::until(format!("{path} to be restored"), TIMEOUT, || async {
            self.try_restore(path, sound.clone()).await.map_err(Into::into)
        })
        .await?;
        Ok(())
    }

    async fn try_restore(&self, path: &str, mut sound: Value) -> Result<()> {
        let current = self.get(path).await?;
        let metadata = sound["metadata"]
            .as_object_mut()
            .context("an object without metadata")?;
        metadata.remove("managedFields");
        let request = if let Some(current) = current {
            let version = current["metadata"]["resourceVersion"].clone();
            metadata.insert("resourceVersion".to_owned(), version);
            http::Request::put(path)
        } else {
            for field in ["resourceVersion", "uid", "creationTimestamp", "generation"] {
                metadata.remove(field);
            }
            http::Request::post(path.rsplit_once('/').context("the path of an object")?.0)
        };
        let request = request
            .header("content-type", "application/json")
            .body(serde_json::to_vec(&sound)?)?;
        self.client.request_text(request).await?;
        Ok(())
    }
}
