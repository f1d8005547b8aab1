//! The Cluster that a run disturbs, and where its objects are.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use serde_json::Value;

use crate::objects::Release;
use crate::observer::Revision;
use crate::requests::edit;
use crate::scenario::{Cluster, World};
use crate::stack::SYSTEM_NAMESPACE;
use crate::wait;

/// How long a write of a disturbance, or its being taken back, may take: servers are being restarted meanwhile.
const WRITE: Duration = Duration::from_mins(1);

/// A Cluster and its target.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) cluster: Cluster,
    /// All releases, oldest first.
    pub(super) releases: Arc<Vec<Release>>,
    /// Position of the release that the Cluster is meant to reach.
    target: Arc<Mutex<usize>>,
    /// Held while something is away that all Clusters share.
    pub(super) shared: Arc<tokio::sync::Mutex<()>>,
}

/// The object that a disturbance edits.
pub(super) struct Found {
    pub(super) client: Client,
    pub(super) path: String,
    pub(super) object: Value,
}

impl Subject {
    pub(super) fn new(
        cluster: Cluster,
        releases: Arc<Vec<Release>>,
        target: usize,
        shared: Arc<tokio::sync::Mutex<()>>,
    ) -> Self {
        Self {
            cluster,
            releases,
            target: Arc::new(Mutex::new(target)),
            shared,
        }
    }

    pub(super) fn world(&self) -> &Arc<World> {
        self.cluster.scene().world()
    }

    /// Everything up to this revision is written.
    pub(super) async fn revision(&self) -> Result<Revision> {
        self.world().observer().catch_up().await
    }

    pub(super) fn management(&self) -> Client {
        self.cluster.scene().client()
    }

    pub(super) fn namespace(&self) -> &str {
        self.cluster.scene().namespace()
    }

    /// The release that the Cluster is meant to reach.
    pub(super) fn target(&self) -> &Release {
        &self.releases[*self.target.lock().unwrap_or_else(PoisonError::into_inner)]
    }

    pub(super) fn set_target(&self, target: usize) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }

    pub(super) fn path(&self) -> String {
        self.cluster.path()
    }

    pub(super) fn bootstrap_path(&self) -> String {
        self.cluster.bootstrap_path()
    }

    /// The PackageInstall of a package; none as long as it is not there.
    pub(super) async fn package_install(&self, short: &str) -> Result<Option<Found>> {
        let (client, namespace) = self.place(short)?;
        let collection =
            format!("/apis/packaging.carvel.dev/v1alpha1/namespaces/{namespace}/packageinstalls");
        let list = edit::get(&client, &collection)
            .await?
            .context("no PackageInstalls")?;
        let ref_name = format!("{short}.{}.test", self.namespace());
        let prefix = format!("{}-", self.cluster.name());
        let found = list["items"].as_array().into_iter().flatten().find(|install| {
            install["spec"]["packageRef"]["refName"] == *ref_name
                && install["metadata"]["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with(&prefix))
        });
        Ok(found.map(|install| Found {
            path: format!(
                "{collection}/{}",
                install["metadata"]["name"].as_str().unwrap_or_default()
            ),
            object: install.clone(),
            client,
        }))
    }

    /// The App of a package; none as long as it is not there.
    pub(super) async fn app(&self, short: &str) -> Result<Option<Found>> {
        let Some(install) = self.package_install(short).await? else {
            return Ok(None);
        };
        let path = install
            .path
            .replace("/packaging.carvel.dev/v1alpha1/", "/kappctrl.k14s.io/v1alpha1/")
            .replace("/packageinstalls/", "/apps/");
        let app = edit::get(&install.client, &path).await?;
        Ok(app.map(|object| Found {
            client: install.client,
            path,
            object,
        }))
    }

    /// Where a package is installed from.
    fn place(&self, short: &str) -> Result<(Client, String)> {
        Ok(if short == "kapp-controller" {
            (self.management(), self.namespace().to_owned())
        } else {
            (
                self.cluster.workload()?.api.admin_client(),
                SYSTEM_NAMESPACE.to_owned(),
            )
        })
    }

    /// Retries until success, because another disturbance must not fail the writes of this one.
    pub(super) async fn persist<T, F: Future<Output = Result<T>>>(
        &self,
        what: &str,
        attempt: impl Fn() -> F,
    ) -> Result<T> {
        let what = format!("{what} of Cluster {}", self.cluster.name());
        let done = wait::until(what, WRITE, || async { attempt().await.map_err(Into::into) }).await?;
        Ok(done)
    }
}
