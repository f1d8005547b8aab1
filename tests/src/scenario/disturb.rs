//! What people and accidents do to a Cluster: edits of its ClusterBootstrap, of PackageInstalls and Apps, of its kubeconfig.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::read;
use crate::edit;
use crate::packages::TestPackage;
use crate::stack::SYSTEM_NAMESPACE;
use crate::wait;

/// What kapp-controller works on for one package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// The PackageInstall.
    PackageInstall,
    /// The App of the same name.
    App,
}

impl Work {
    fn path(self) -> &'static str {
        match self {
            Self::PackageInstall => "packaging.carvel.dev/v1alpha1",
            Self::App => "kappctrl.k14s.io/v1alpha1",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::PackageInstall => "packageinstalls",
            Self::App => "apps",
        }
    }
}

impl Cluster {
    /// Merges a patch into the ClusterBootstrap.
    pub async fn patch_bootstrap(&self, patch: &Value) -> Result<()> {
        merge(&self.scene().client(), &self.bootstrap_path(), patch).await
    }

    /// Deletes the ClusterBootstrap without waiting for whoever has a finalizer on it.
    pub async fn force_bootstrap_away(&self) -> Result<()> {
        edit::delete_by_force(&self.scene().client(), &self.bootstrap_path()).await
    }

    /// Merges a patch into what installs a package inside the workload cluster.
    pub async fn patch_package(&self, package: &TestPackage, work: Work, change: &Value) -> Result<()> {
        let path = self.work_path(package, work);
        merge(&self.workload()?.api.admin_client(), &path, change).await
    }

    /// Names and generations of all PackageInstalls inside the workload cluster, and of the one beside the Cluster.
    pub async fn installs(&self) -> Result<BTreeMap<String, i64>> {
        let (workload, management) = (self.workload()?.api.admin_client(), self.scene().client());
        let mut installs = BTreeMap::new();
        for (client, namespace) in [
            (workload, SYSTEM_NAMESPACE),
            (management, self.scene().namespace()),
        ] {
            let work = Work::PackageInstall;
            let path = format!("/apis/{}/namespaces/{namespace}/{}", work.path(), work.plural());
            let listed = read::get(&client, &path).await?;
            for install in listed["items"].as_array().into_iter().flatten() {
                let name = install["metadata"]["name"].as_str().unwrap_or_default();
                if name.starts_with(&format!("{}-", self.name())) {
                    let generation = install["metadata"]["generation"].as_i64().unwrap_or_default();
                    installs.insert(name.to_owned(), generation);
                }
            }
        }
        Ok(installs)
    }

    /// Replaces the kubeconfig that everybody reaches the workload cluster with; returns the one before.
    pub async fn swap_kubeconfig(&self, kubeconfig: &str) -> Result<String> {
        let name = format!("{}-kubeconfig", self.name());
        let secrets: Api<Secret> = Api::namespaced(self.scene().client(), self.scene().namespace());
        let before = secrets.get(&name).await?;
        let patch = json!({"data": {"value": BASE64_STANDARD.encode(kubeconfig)}});
        secrets
            .patch(&before.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        let data = before.data.and_then(|mut data| data.remove("value"));
        let data = data.with_context(|| format!("Secret {name} has no key value"))?;
        Ok(String::from_utf8(data.0)?)
    }

    /// Has kapp-controller deploy a package again at its unchanged generation, as it does after each sync period, and waits
    /// until it has: the Secret with its values is touched.
    pub async fn resync(&self, package: &TestPackage) -> Result<()> {
        let client = self.workload()?.api.admin_client();
        let install = read::get(&client, &self.work_path(package, Work::PackageInstall)).await?;
        let secret = install["spec"]["values"][0]["secretRef"]["name"]
            .as_str()
            .context("a PackageInstall without values")?;
        let secret = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/{secret}");
        let app = self.work_path(package, Work::App);
        let before = read::get(&client, &app).await?["status"]["deploy"]["updatedAt"].take();
        // The App tells only the second of its deploy: it may take two tries until another one is seen.
        wait::until(
            format!("{} to be deployed again", package.name()),
            Duration::from_secs(30),
            || async {
                let touched = json!({"harness.test/touched": jiff::Timestamp::now().to_string()});
                merge(&client, &secret, &json!({"metadata": {"annotations": touched}})).await?;
                let deploy = read::get(&client, &app).await?["status"]["deploy"].take();
                if deploy["finished"] == true && deploy["updatedAt"] != before {
                    Ok(())
                } else {
                    wait::not_yet(deploy)
                }
            },
        )
        .await?;
        Ok(())
    }

    fn work_path(&self, package: &TestPackage, work: Work) -> String {
        format!(
            "/apis/{}/namespaces/{SYSTEM_NAMESPACE}/{}/{}-{}",
            work.path(),
            work.plural(),
            self.name(),
            package.short()
        )
    }

    /// Where the ClusterBootstrap is on the management API server.
    pub(crate) fn bootstrap_path(&self) -> String {
        format!(
            "/apis/run.tanzu.vmware.com/v1alpha3/namespaces/{}/clusterbootstraps/{}",
            self.scene().namespace(),
            self.name()
        )
    }
}

/// Merges a patch into an object that has to exist.
pub(super) async fn merge(client: &Client, path: &str, change: &Value) -> Result<()> {
    let found = edit::merge(client, path, change).await?;
    found.map(drop).with_context(|| format!("{path} does not exist"))
}
