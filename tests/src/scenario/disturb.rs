//! Disturbances of a Cluster by users and accidents: edits of its ClusterBootstrap, of PackageInstalls and Apps, of its kubeconfig.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::read;
use super::verdict::Identity;
use crate::objects::packages::{NAMESPACE, TestPackage};
use crate::observer::Revision;
use crate::provider::{GROUP, VERSION};
use crate::requests::edit;
use crate::stack::SYSTEM_NAMESPACE;
use crate::wait::{self, Unmet};

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

    pub(super) fn kind(self) -> GroupVersionKind {
        match self {
            Self::PackageInstall => {
                GroupVersionKind::gvk("packaging.carvel.dev", "v1alpha1", "PackageInstall")
            }
            Self::App => GroupVersionKind::gvk("kappctrl.k14s.io", "v1alpha1", "App"),
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
    /// Merges a patch into the ClusterBootstrap; returns it as written.
    pub async fn patch_bootstrap(&self, patch: &Value) -> Result<Value> {
        let bootstrap = self.bootstrap_path();
        let written = edit::merge(&self.scene().client(), &bootstrap, patch).await?;
        written.with_context(|| format!("{bootstrap} does not exist"))
    }

    /// Revision of the last write of a ConfigMap that a package has deployed: the run that gave it this content.
    pub async fn deployed_at(&self, package: &TestPackage) -> Result<Revision> {
        let path = format!(
            "/api/v1/namespaces/{NAMESPACE}/configmaps/{}-values",
            package.short()
        );
        edit::revision(&read::get(&self.workload()?.api.admin_client(), &path).await?)
    }

    /// uid of the control plane object, which names the workload cluster's part of etcd.
    pub(super) async fn control_plane(&self, cluster: &Value) -> Result<String> {
        let reference = &cluster["spec"]["controlPlaneRef"];
        let path = format!(
            "/apis/{GROUP}/{VERSION}/namespaces/{}/harnesscontrolplanes/{}",
            self.scene().namespace(),
            reference["name"]
                .as_str()
                .context("a Cluster without control plane")?
        );
        let object = read::get(&self.scene().client(), &path).await?;
        Ok(Identity::of(&object).uid)
    }

    /// Deletes the ClusterBootstrap without waiting for finalizers.
    pub async fn force_bootstrap_away(&self) -> Result<()> {
        edit::delete_by_force(&self.scene().client(), &self.bootstrap_path())
            .await
            .map(drop)
    }

    /// Merges a patch into what installs a package inside the workload cluster.
    pub async fn patch_package(&self, package: &TestPackage, work: Work, change: &Value) -> Result<()> {
        let path = self.work_path(package, work);
        merge(&self.workload()?.api.admin_client(), &path, change).await
    }

    /// What installs a package inside the workload cluster.
    pub async fn work(&self, package: &TestPackage, work: Work) -> Result<Value> {
        read::get(
            &self.workload()?.api.admin_client(),
            &self.work_path(package, work),
        )
        .await
    }

    /// All PackageInstalls and Apps inside the workload cluster, and those beside the Cluster: `apps/one-antrea`.
    pub async fn installs(&self) -> Result<BTreeMap<String, Identity>> {
        let (workload, management) = (self.workload()?.api.admin_client(), self.scene().client());
        let mut installs = BTreeMap::new();
        for (client, namespace) in [
            (workload, SYSTEM_NAMESPACE),
            (management, self.scene().namespace()),
        ] {
            for work in [Work::PackageInstall, Work::App] {
                let path = format!("/apis/{}/namespaces/{namespace}/{}", work.path(), work.plural());
                let listed = read::get(&client, &path).await?;
                for install in listed["items"].as_array().into_iter().flatten() {
                    let name = install["metadata"]["name"].as_str().unwrap_or_default();
                    if name.starts_with(&format!("{}-", self.name())) {
                        installs.insert(format!("{}/{name}", work.plural()), Identity::of(install));
                    }
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

    /// Puts an empty API server where the kubeconfig leads to, with the same authority and credentials. Returns the UID of its
    /// namespace `kube-system`.
    pub async fn replace_workload(&self) -> Result<String> {
        let workload = self.workload()?;
        workload.replace().await?;
        let client = workload.api.admin_client();
        let path = "/api/v1/namespaces/kube-system";
        let namespace = wait::until("namespace kube-system", Duration::from_mins(2), || async {
            read::get(&client, path).await.map_err(Into::into)
        })
        .await?;
        let uid = namespace["metadata"]["uid"].as_str();
        Ok(uid.context("a namespace without uid")?.to_owned())
    }

    /// Name of the Secret with the values that a package is installed with inside the workload cluster.
    pub async fn values_secret(&self, package: &TestPackage) -> Result<String> {
        let client = self.workload()?.api.admin_client();
        let install = read::get(&client, &self.work_path(package, Work::PackageInstall)).await?;
        let secret = install["spec"]["values"][0]["secretRef"]["name"].as_str();
        Ok(secret.context("a PackageInstall without values")?.to_owned())
    }

    /// Has kapp-controller deploy a package again at its unchanged generation, as it does after each sync period, and waits
    /// until it has: the Secret with its values is touched. Returns name of that Secret and how often it was.
    pub async fn resync(&self, package: &TestPackage) -> Result<(String, i64)> {
        let client = self.workload()?.api.admin_client();
        let secret = self.values_secret(package).await?;
        let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/{secret}");
        let touches = AtomicI64::new(0);
        let app = self.work_path(package, Work::App);
        let before = read::get(&client, &app).await?["status"]["deploy"]["updatedAt"].take();
        // The App tells only the second of its deploy: it may take two tries until another one is seen.
        wait::until(
            format!("{} to be deployed again", package.name()),
            Duration::from_mins(2),
            || async {
                let annotation = json!({"harness.test/touched": jiff::Timestamp::now().to_string()});
                merge(&client, &path, &json!({"metadata": {"annotations": annotation}})).await?;
                touches.fetch_add(1, Ordering::Relaxed);
                let deploy = read::get(&client, &app).await?["status"]["deploy"].take();
                if deploy["finished"] == true && deploy["updatedAt"] != before {
                    Ok(())
                } else {
                    wait::not_yet(deploy)
                }
            },
        )
        .await?;
        Ok((secret, touches.into_inner()))
    }

    /// The App of a package in the workload cluster.
    pub async fn app(&self, package: &TestPackage) -> Result<Value> {
        read::get(
            &self.workload()?.api.admin_client(),
            &self.work_path(package, Work::App),
        )
        .await
    }

    /// Waits until the App of a package satisfies `probe`.
    pub async fn app_until<T>(
        &self,
        package: &TestPackage,
        what: String,
        deadline: Duration,
        probe: impl Fn(&Value) -> Result<T, Unmet>,
    ) -> Result<T> {
        let client = self.workload()?.api.admin_client();
        let path = self.work_path(package, Work::App);
        let found = wait::until(what, deadline, || async {
            let app = read::get(&client, &path).await?;
            probe(&app)
        })
        .await?;
        Ok(found)
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
