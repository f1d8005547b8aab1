//! What `kubectl get -w` prints of the ClusterBootstrap or ClusterUpgrade of one Cluster: the same tables, which the API server makes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::{AsyncBufReadExt as _, StreamExt as _};
use kube::Client;
use serde_json::Value;
use tokio::task::AbortHandle;

use super::cluster::Cluster;
use super::table::{AS_TABLE, text};
use crate::wait;

/// One line: cells by the name of their column, in capitals. An empty cell is one that kubectl leaves empty.
pub type Row = BTreeMap<String, String>;

/// The lines of a watch, until it is dropped.
pub struct Columns {
    name: String,
    rows: Arc<Mutex<Vec<Row>>>,
    task: AbortHandle,
}

impl Cluster {
    /// Watches as `kubectl get clusterbootstrap -w` does, from the present line on.
    pub async fn columns(&self) -> Result<Columns> {
        self.columns_of("run.tanzu.vmware.com/v1alpha3", "clusterbootstraps")
            .await
    }

    /// The same as `kubectl get clusterupgrade -w`.
    pub async fn upgrade_columns(&self) -> Result<Columns> {
        self.columns_of("lifecycle.sluice.dev/v1alpha1", "clusterupgrades")
            .await
    }

    async fn columns_of(&self, api_version: &str, plural: &str) -> Result<Columns> {
        let (rows, client) = (Arc::<Mutex<Vec<Row>>>::default(), self.scene().client());
        let path = format!(
            "/apis/{api_version}/namespaces/{}/{plural}?watch=true&fieldSelector=metadata.name={}",
            self.scene().namespace(),
            self.name()
        );
        let seen = rows.clone();
        let task = tokio::spawn(async move {
            loop {
                // A watch ends after some minutes; the next one begins with the line as it is then.
                drop(follow(&client, &path, &seen).await);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let columns = Columns {
            name: self.name().to_owned(),
            rows,
            task: task.abort_handle(),
        };
        columns
            .shows("any line", Duration::from_mins(1), |_| true)
            .await?;
        Ok(columns)
    }
}

async fn follow(client: &Client, path: &str, seen: &Mutex<Vec<Row>>) -> Result<()> {
    let request = http::Request::get(path)
        .header("accept", AS_TABLE)
        .body(Vec::new())?;
    let mut lines = Box::pin(client.request_stream(request).await?).lines();
    let mut names: Vec<String> = Vec::new();
    while let Some(line) = lines.next().await {
        let event: Value = serde_json::from_str(&line?)?;
        let table = &event["object"];
        // Only the first table of a watch contains the column definitions.
        let columns = table["columnDefinitions"].as_array().into_iter().flatten();
        let columns: Vec<String> = columns
            .map(|column| text(&column["name"]).to_uppercase())
            .collect();
        if !columns.is_empty() {
            names = columns;
        }
        for row in table["rows"].as_array().into_iter().flatten() {
            let cells = row["cells"].as_array().into_iter().flatten().map(text);
            let row = names.iter().cloned().zip(cells).collect();
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(row);
        }
    }
    Ok(())
}

impl Columns {
    /// All lines so far.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The values of one column, without repetitions.
    #[must_use]
    pub fn column(&self, name: &str) -> Vec<String> {
        let rows = self.rows();
        let mut values: Vec<String> = rows.iter().filter_map(|row| row.get(name).cloned()).collect();
        values.dedup();
        values
    }

    /// Waits until the last line is one that `wanted` accepts, and returns it.
    pub async fn shows(&self, what: &str, deadline: Duration, wanted: impl Fn(&Row) -> bool) -> Result<Row> {
        let what = format!("the line of {} to show {what}", self.name);
        let row = wait::until(what, deadline, || async {
            match self.rows().pop() {
                Some(row) if wanted(&row) => Ok(row),
                row => wait::not_yet(format!("{row:?}")),
            }
        })
        .await?;
        Ok(row)
    }
}

impl Drop for Columns {
    fn drop(&mut self) {
        self.task.abort();
    }
}
