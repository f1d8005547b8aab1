//! A recording of what kapp-controller shows of one package, as data for tests of the proof: `RECORD=FILE make scenario NAME=…`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use futures::TryStreamExt as _;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::cluster::Cluster;
use super::disturb::Work;
use crate::objects::packages::TestPackage;
use crate::stack::SYSTEM_NAMESPACE;

/// A recording that goes on until it is dropped or the API server ends.
#[derive(Debug, Default)]
pub struct Recording(JoinSet<()>);

impl Recording {
    /// Ends it.
    pub async fn end(mut self) {
        self.0.shutdown().await;
    }
}

impl Cluster {
    /// Records PackageInstall and App of a package inside the workload cluster, one watch event per line, if the environment
    /// variable `RECORD` names a file.
    pub fn record(&self, package: &TestPackage) -> Result<Recording> {
        let Some(file) = std::env::var_os("RECORD").map(PathBuf::from) else {
            return Ok(Recording::default());
        };
        let mut watches = JoinSet::new();
        for work in [Work::PackageInstall, Work::App] {
            let client = self.workload()?.api.admin_client();
            let name = format!("{}-{}", self.name(), package.short());
            let file = file.clone();
            watches.spawn(async move {
                if let Err(error) = watch(client, work, &name, &file).await {
                    tracing::info!("the recording of {work:?} {name} ended: {error:#}");
                }
            });
        }
        Ok(Recording(watches))
    }
}

async fn watch(client: Client, work: Work, name: &str, file: &Path) -> Result<()> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(client, SYSTEM_NAMESPACE, &ApiResource::from_gvk(&work.kind()));
    let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(api.watch(&parameters, "0").await?);
    while let Some(event) = events.try_next().await? {
        let (WatchEvent::Added(object) | WatchEvent::Modified(object)) = event else {
            continue;
        };
        let line = json!({"kind": work.kind().kind, "object": shortened(serde_json::to_value(object)?)});
        let mut file = OpenOptions::new().create(true).append(true).open(file)?;
        writeln!(file, "{line}").context("write a recording")?;
    }
    Ok(())
}

/// The object without the fields that are not judged.
fn shortened(mut object: Value) -> Value {
    for (part, field) in [
        ("metadata", "managedFields"),
        ("spec", "fetch"),
        ("spec", "deploy"),
    ] {
        if let Some(part) = object[part].as_object_mut() {
            part.remove(field);
        }
    }
    object
}
