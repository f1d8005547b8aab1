//! Add-ons that Flux delivers: from the management cluster with the kubeconfig Secret of a Cluster, or from inside a workload cluster.
//!
//! # HelmReleases
//! ```ignore
//! let old = scene.helm_release("prod-1", &[("1.17.4", "v1.17.4"), ("1.18.2", "v1.18.2")]).await?;  // publishes the charts, starts Flux
//! scene.apply(&[old.manifest(scene.namespace())]).await?;          // HelmRelease `cni-prod-1` at the first version
//! cluster.released(&old, TIMEOUT).await?;                          // its newest release is deployed at that version
//! cluster.rolled_out("cni", "v1.17.4", TIMEOUT).await?;
//! let new = old.clone().version("1.18.2");
//! scene.apply(&[new.clone().suspended(true).manifest(scene.namespace())]).await?;   // suspended and edited in one write
//! Check::helm_release("chart", "cni-${cluster}").version_key("chart")
//! ```
//! - `Scene::helm_release(&self, cluster: &str, versions: &[(&str, &str)]) -> Result<HelmRelease>`: pairs of chart version and appVersion. The
//!   HelmRelease is not applied yet; its HelmRepository is.
//! - [`HelmRelease`]: `new(name, chart)`, `version`, `cluster`, `repository`, `values(yaml)` ([`Chart::BROKEN`](crate::objects::Chart::BROKEN)
//!   and its like), `suspended(bool)`, `waits(timeout)`, `rolls_back()`, `with(field, value)`, `manifest(namespace) -> Value`. By default Helm
//!   does not wait for workloads, and nothing is rolled back.
//!
//! # Kustomizations
//! ```ignore
//! let kustomization = scene.kustomization("prod-1", "agent").await?;   // Kustomization `agent-prod-1` of directory `agent`, starts Flux
//! let revision = scene.world().git().await?.commit(&[("agent/config.yaml", &text)]).await?;    // main@sha1:…
//! scene.apply(&[kustomization.manifest(scene.namespace())]).await?;
//! cluster.applied(&kustomization, &revision, TIMEOUT).await?;
//! Check::kustomization("files", "agent-${cluster}")
//! ```
//! - `Scene::kustomization(&self, cluster: &str, directory: &str) -> Result<Kustomization>`: not applied yet; its GitRepository is.
//! - [`Kustomization`]: `new(name, &GitSource)`, `path`, `cluster`, `suspended(bool)`, `with(field, value)`, `manifest(namespace) -> Value`.
//! - [`GitServer::commit`](crate::stack::git::GitServer::commit). All scenarios of a stack share the repository, so each has a directory of
//!   its own.
//!
//! # Inside a workload cluster
//! ```ignore
//! let flux = cluster.own_flux().await?;          // runs until it is dropped
//! let release = HelmRelease::new("cni", "cni").version("1.17.4");      // without `cluster`
//! cluster.apply_inside(&[HelmRepository::new(&url).manifest(FLUX_NAMESPACE), release.manifest(FLUX_NAMESPACE)]).await?;
//! cluster.released(&release, TIMEOUT).await?;
//! ```
//!
//! # Controllers
//! `let flux = scene.world().flux().await?`, then `flux.kill(FluxController::Helm)`, also `restart`, `freeze` and `thaw`, each for
//! [`FluxController`](crate::stack::flux::FluxController) `Helm`, `Kustomize` or `Source`.

use std::time::Duration;

use anyhow::Result;
use kube::Client;
use serde_json::Value;

use super::cluster::Cluster;
use super::gates::{CNI, first};
use super::read;
use super::scene::Scene;
use crate::objects::{
    FLUX_NAMESPACE, GitSource, HelmRelease, HelmRepository, Kustomization, helm_release_path,
    kustomization_path,
};
use crate::requests::{apply, edit};
use crate::stack::flux::Flux;
use crate::stack::git::GitServer;
use crate::wait::{self, Unmet};

/// Name of the GitRepository of a scenario.
const ADDONS: &str = "addons";

impl Scene {
    /// Publishes the chart of the CNI in these versions, each with its appVersion, starts Flux and applies a HelmRepository. Returns a
    /// HelmRelease `cni-<cluster>` of the first version for a Cluster of the scenario, which is not applied yet.
    pub async fn helm_release(&self, cluster: &str, versions: &[(&str, &str)]) -> Result<HelmRelease> {
        let repository = self.publish_cni(versions).await?;
        self.world().flux().await?;
        self.apply(&[HelmRepository::new(&repository).manifest(self.namespace())])
            .await?;
        Ok(HelmRelease::new(&format!("{CNI}-{cluster}"), CNI)
            .version(first(versions))
            .cluster(cluster))
    }

    /// Starts Flux and a git server and applies a GitRepository. Returns a Kustomization `<directory>-<cluster>` of the files in a
    /// directory, which is not applied yet.
    pub async fn kustomization(&self, cluster: &str, directory: &str) -> Result<Kustomization> {
        self.world().flux().await?;
        let git = self.world().git().await?;
        let source = GitSource::new(ADDONS, git.url(), GitServer::BRANCH);
        self.apply(&[source.manifest(self.namespace())]).await?;
        Ok(Kustomization::new(&format!("{directory}-{cluster}"), &source)
            .path(&format!("./{directory}"))
            .cluster(cluster))
    }

    /// Where a HelmRelease of the scenario is.
    #[must_use]
    pub fn helm_release_path(&self, name: &str) -> String {
        helm_release_path(self.namespace(), name)
    }

    /// Where a Kustomization of the scenario is.
    #[must_use]
    pub fn kustomization_path(&self, name: &str) -> String {
        kustomization_path(self.namespace(), name)
    }
}

impl Cluster {
    /// Starts Flux inside the workload cluster. It runs until it is dropped, and has to be dropped before the Cluster is deleted.
    pub async fn own_flux(&self) -> Result<Flux> {
        let workload = self.workload()?;
        apply::namespace(&workload.api.admin_client(), FLUX_NAMESPACE).await?;
        Flux::start(self.scene().world().stack().core(), &workload.api).await
    }

    /// Applies objects to the workload cluster.
    pub async fn apply_inside(&self, objects: &[Value]) -> Result<()> {
        apply::apply_all(&self.workload()?.api.admin_client(), objects).await
    }

    /// Waits until Flux has deployed a HelmRelease at its version: one beside the Cluster, or one in [`FLUX_NAMESPACE`] of the workload
    /// cluster if it names no Cluster.
    pub async fn released(&self, release: &HelmRelease, deadline: Duration) -> Result<()> {
        let what = format!(
            "HelmRelease {} to be deployed at {}",
            release.name(),
            release.wanted()
        );
        let (client, namespace) = self.home(release.is_remote())?;
        let path = helm_release_path(&namespace, release.name());
        wait::until(what, deadline, || async {
            match edit::get(&client, &path).await? {
                Some(object) => is_released(&object, release.wanted()),
                None => wait::not_yet("there is no such HelmRelease"),
            }
        })
        .await?;
        Ok(())
    }

    /// Waits until Flux has applied this revision of the source of a Kustomization: one beside the Cluster, or one in [`FLUX_NAMESPACE`] of
    /// the workload cluster if it names no Cluster.
    pub async fn applied(
        &self,
        kustomization: &Kustomization,
        revision: &str,
        deadline: Duration,
    ) -> Result<()> {
        let what = format!("Kustomization {} to apply {revision}", kustomization.name());
        let (client, namespace) = self.home(kustomization.is_remote())?;
        let path = kustomization_path(&namespace, kustomization.name());
        wait::until(what, deadline, || async {
            match edit::get(&client, &path).await? {
                Some(object) => is_applied(&object, revision),
                None => wait::not_yet("there is no such Kustomization"),
            }
        })
        .await?;
        Ok(())
    }

    /// Where objects of Flux for this Cluster are, and their namespace.
    fn home(&self, is_remote: bool) -> Result<(Client, String)> {
        if is_remote {
            let scene = self.scene();
            return Ok((scene.client(), scene.namespace().to_owned()));
        }
        Ok((self.workload()?.api.admin_client(), FLUX_NAMESPACE.to_owned()))
    }
}

/// Whether the last reconcile covers the spec and went well. While one runs, `Ready` is not True.
fn is_reconciled(object: &Value) -> bool {
    let is_observed = object["status"]["observedGeneration"] == object["metadata"]["generation"];
    let is_ready = read::condition(object, "Ready").is_some_and(|condition| condition["status"] == "True");
    is_observed && is_ready && object["spec"]["suspend"] != true
}

fn is_released(object: &Value, version: &str) -> Result<(), Unmet> {
    let status = &object["status"];
    let history = status["history"].as_array().into_iter().flatten();
    let newest = history.max_by_key(|entry| entry["version"].as_i64());
    let is_deployed =
        newest.is_some_and(|entry| entry["status"] == "deployed" && entry["chartVersion"] == version);
    if is_deployed && is_reconciled(object) {
        return Ok(());
    }
    wait::not_yet(status)
}

fn is_applied(object: &Value, revision: &str) -> Result<(), Unmet> {
    let status = &object["status"];
    if status["lastAppliedRevision"] == revision && is_reconciled(object) {
        return Ok(());
    }
    wait::not_yet(status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ready(generation: u64, more: &Value) -> Value {
        let mut object = json!({
            "metadata": {"generation": 2},
            "spec": {"suspend": false},
            "status": more,
        });
        object["status"]["observedGeneration"] = json!(generation);
        object["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        object
    }

    #[test]
    fn the_newest_release_counts() {
        let history = json!({"history": [
            {"version": 3, "status": "deployed", "chartVersion": "1.18.2"},
            {"version": 2, "status": "superseded", "chartVersion": "1.17.4"},
        ]});
        assert!(is_released(&ready(2, &history), "1.18.2").is_ok());
        assert!(is_released(&ready(2, &history), "1.17.4").is_err());
        assert!(is_released(&ready(1, &history), "1.18.2").is_err());
    }

    #[test]
    fn a_suspended_object_has_applied_nothing() {
        let mut object = ready(2, &json!({"lastAppliedRevision": "main@sha1:a"}));
        assert!(is_applied(&object, "main@sha1:a").is_ok());
        assert!(is_applied(&object, "main@sha1:b").is_err());
        object["spec"]["suspend"] = json!(true);
        assert!(is_applied(&object, "main@sha1:a").is_err());
    }
}
