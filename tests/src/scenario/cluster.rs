//! Clusters of a scenario.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::hook_log::HookAnswer;
use super::read;
use super::scene::Scene;
use crate::objects::packages::{NAMESPACE, TestPackage};
use crate::objects::{self, Release};
use crate::observer::{Event, Milestone, Revision};
use crate::provider::Workload;
use crate::requests::apply;
use crate::stack::kubelet::Delay;
use crate::wait::{self, Unmet};

/// A Cluster that is described but not created.
pub struct NewCluster {
    scene: Scene,
    name: String,
    version: String,
    tkr: Option<String>,
    workers: u32,
    labels: Vec<(String, String)>,
    annotations: Vec<(String, String)>,
}

impl NewCluster {
    pub(super) fn new(scene: Scene, name: &str) -> Self {
        Self {
            scene,
            name: name.to_owned(),
            version: super::VERSIONS[0].to_owned(),
            tkr: None,
            workers: 0,
            labels: Vec::new(),
            annotations: Vec::new(),
        }
    }

    /// With a label.
    #[must_use]
    pub fn labelled(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// With an annotation.
    #[must_use]
    pub fn annotated(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.push((key.into(), value.into()));
        self
    }

    /// Managed by Sluice, at a release.
    #[must_use]
    pub fn at(mut self, release: &Release) -> Self {
        release.kubernetes().clone_into(&mut self.version);
        self.tkr = Some(release.name());
        self
    }

    /// Not managed by Sluice, at a Kubernetes version.
    #[must_use]
    pub fn unmanaged(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self.tkr = None;
        self
    }

    /// With one MachineDeployment of so many Machines.
    #[must_use]
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// Creates it and waits until everything of `release` is proven and the topology at rest.
    pub async fn create_settled(self, release: &Release) -> Result<Cluster> {
        let cluster = self.at(release).create().await?;
        cluster.packages_proven(release, 0, super::TIMEOUT).await?;
        cluster.is_available(super::TIMEOUT).await?;
        cluster.is_settled(super::TIMEOUT).await?;
        Ok(cluster)
    }

    /// One of this name that was created otherwise.
    #[must_use]
    pub fn existing(self) -> Cluster {
        let Self { scene, name, .. } = self;
        Cluster { scene, name }
    }

    /// Creates it; does not wait.
    pub async fn create(self) -> Result<Cluster> {
        let Self {
            scene,
            name,
            version,
            tkr,
            workers,
            labels,
            annotations,
        } = self;
        let mut object = objects::cluster(scene.namespace(), &name, &version, tkr.as_deref(), workers);
        for (key, value) in labels {
            object["metadata"]["labels"][key] = value.into();
        }
        for (key, value) in annotations {
            object["metadata"]["annotations"][key] = value.into();
        }
        // Cluster API may be restarted by another process, and nothing is admitted then.
        let what = format!("Cluster {name} to be accepted");
        wait::until(what, Duration::from_mins(2), || async {
            apply::apply(&scene.client(), &object).await.map_err(Into::into)
        })
        .await?;
        Ok(Cluster { scene, name })
    }
}

/// A Cluster that exists.
#[derive(Clone)]
pub struct Cluster {
    scene: Scene,
    name: String,
}

impl Cluster {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The scenario that it belongs to.
    #[must_use]
    pub fn scene(&self) -> &Scene {
        &self.scene
    }

    /// Moves label and version to a release, in one write. Returns the revision from before.
    pub async fn upgrade(&self, release: &Release) -> Result<Revision> {
        self.patch(&objects::upgrade(release.kubernetes(), Some(&release.name())))
            .await
    }

    /// Moves the version of an unmanaged Cluster. Returns the revision from before.
    pub async fn upgrade_unmanaged(&self, version: &str) -> Result<Revision> {
        self.patch(&objects::upgrade(version, None)).await
    }

    /// Merges a patch into the Cluster. Returns the revision from before.
    ///
    /// Cluster API refuses a change of version while a hook of the upgrade before it is pending: the patch is tried again.
    pub async fn patch(&self, patch: &Value) -> Result<Revision> {
        let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster");
        let clusters: Api<DynamicObject> = Api::namespaced_with(
            self.scene.client(),
            self.scene.namespace(),
            &ApiResource::from_gvk(&kind),
        );
        let before = self.scene.world().observer().catch_up().await?;
        wait::until(
            format!("a change of Cluster {} to be accepted", self.name),
            Duration::from_mins(2),
            || async {
                clusters
                    .patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))
                    .await?;
                Ok(())
            },
        )
        .await?;
        Ok(before)
    }

    /// Merges a patch into the Cluster once; a rejection is an error.
    pub async fn try_patch(&self, patch: &Value) -> Result<()> {
        super::disturb::merge(&self.scene.client(), &self.path(), patch).await
    }

    /// Deletes the Cluster and waits until it is gone.
    pub async fn delete(&self) -> Result<()> {
        self.delete_with(&serde_json::json!({})).await
    }

    /// The same with options of the deletion.
    pub async fn delete_with(&self, options: &Value) -> Result<()> {
        self.begin_to_delete(options).await?;
        self.is_gone().await
    }

    /// Asks for the deletion of the Cluster; does not wait.
    pub async fn begin_to_delete(&self, options: &Value) -> Result<()> {
        let request = http::Request::delete(self.path())
            .header("content-type", "application/json")
            .body(serde_json::to_vec(options)?)?;
        self.scene.client().request_text(request).await?;
        Ok(())
    }

    /// Waits until the Cluster is gone.
    pub async fn is_gone(&self) -> Result<()> {
        wait::until(
            format!("Cluster {} to be deleted", self.name),
            Duration::from_mins(2),
            || async {
                match self
                    .scene
                    .client()
                    .request::<Value>(http::Request::get(self.path()).body(Vec::new())?)
                    .await
                {
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                    Err(error) => Err(error.into()),
                    Ok(cluster) => wait::not_yet(read::describe(&cluster, "Deleting")),
                }
            },
        )
        .await?;
        Ok(())
    }

    /// Where the Cluster is on the management API server.
    pub(crate) fn path(&self) -> String {
        let namespace = self.scene.namespace();
        format!(
            "/apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/clusters/{}",
            self.name
        )
    }

    /// The Cluster object.
    pub async fn object(&self) -> Result<Value> {
        read::get(&self.scene.client(), &self.path()).await
    }

    /// The ClusterBootstrap of the Cluster.
    pub async fn bootstrap(&self) -> Result<Value> {
        read::get(&self.scene.client(), &self.bootstrap_path()).await
    }

    /// Names of its Machines.
    pub async fn machines(&self) -> Result<BTreeSet<String>> {
        let path = format!(
            "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machines?labelSelector=cluster.x-k8s.io/cluster-name%3D{}",
            self.scene.namespace(),
            self.name
        );
        let list = read::get(&self.scene.client(), &path).await?;
        let machines = list["items"].as_array().into_iter().flatten();
        let names = machines.filter_map(|machine| machine["metadata"]["name"].as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// Moves the label alone, to another release of the same Kubernetes version. Returns the revision from before.
    pub async fn relabel(&self, release: &Release) -> Result<Revision> {
        let labels = serde_json::json!({objects::TKR: release.name()});
        self.patch(&serde_json::json!({"metadata": {"labels": labels}}))
            .await
    }

    /// Waits until the record says that packages and machines are those of `release`, which has the same Kubernetes version as the one
    /// before.
    pub async fn machines_replaced(&self, release: &Release, deadline: Duration) -> Result<()> {
        let what = format!("the machines of {} to be those of {}", self.name, release.name());
        self.bootstrap_until(what, deadline, |bootstrap| {
            let (status, record) = (&bootstrap["status"], &bootstrap["status"]["upgrade"]);
            if record["swap"]["to"] == release.name() && record["outcome"] == "Completed" {
                Ok(())
            } else {
                wait::not_yet(format!("phase {}, record {record}", status["phase"]))
            }
        })
        .await
    }

    /// The workload cluster.
    pub fn workload(&self) -> Result<Arc<Workload>> {
        self.scene
            .world()
            .provider()
            .workload(self.scene.namespace(), &self.name)
            .with_context(|| format!("Cluster {} has no API server", self.name))
    }

    /// Sets how long a Deployment or DaemonSet takes in this Cluster, also while it is being waited for.
    pub fn delay(&self, name: &str, delay: Delay) {
        let delays = self.scene.world().provider().delays();
        delays.set(self.scene.namespace(), &self.name, name, delay);
    }

    /// Waits until condition Available of the Cluster is True.
    pub async fn is_available(&self, deadline: Duration) -> Result<()> {
        let what = format!("Cluster {} to be Available", self.name);
        self.until(what, deadline, |cluster| {
            match read::condition(cluster, "Available") {
                Some(condition) if condition["status"] == "True" => Ok(()),
                _ => wait::not_yet(read::describe(cluster, "Available")),
            }
        })
        .await
    }

    /// Waits until the topology is at rest: reconciled at the current generation, and no hook pending.
    pub async fn is_settled(&self, deadline: Duration) -> Result<()> {
        let what = format!("Cluster {} to be upgraded", self.name);
        self.until(what, deadline, |cluster| {
            let generation = &cluster["metadata"]["generation"];
            let pending = &cluster["metadata"]["annotations"]["runtime.cluster.x-k8s.io/pending-hooks"];
            match read::condition(cluster, "TopologyReconciled") {
                Some(condition)
                    if condition["status"] == "True"
                        && condition["observedGeneration"] == *generation
                        && pending.is_null() =>
                {
                    Ok(())
                }
                _ => wait::not_yet(read::describe(cluster, "TopologyReconciled")),
            }
        })
        .await
    }

    /// Waits until the message of TopologyReconciled contains `text`; returns the message.
    pub async fn says(&self, text: &str, deadline: Duration) -> Result<String> {
        let what = format!("TopologyReconciled of Cluster {} to say {text:?}", self.name);
        self.until(what, deadline, |cluster| {
            let message = read::describe(cluster, "TopologyReconciled");
            if message.contains(text) {
                Ok(message)
            } else {
                wait::not_yet(message)
            }
        })
        .await
    }

    /// Waits until the Cluster object satisfies `probe`.
    pub async fn until<T>(
        &self,
        what: String,
        deadline: Duration,
        probe: impl Fn(&Value) -> Result<T, Unmet>,
    ) -> Result<T> {
        let found = wait::until(what, deadline, || async {
            let object = self.object().await?;
            probe(&object)
        })
        .await?;
        Ok(found)
    }

    /// Responses of the replicas about the Cluster so far, in order.
    pub fn hook_answers(&self) -> Result<Vec<HookAnswer>> {
        let mut answers = Vec::new();
        for log in self.scene.world().extension()?.logs() {
            answers.extend(HookAnswer::read(&log, self.scene.namespace(), &self.name)?);
        }
        answers.sort_by_key(|answer| answer.timestamp);
        Ok(answers)
    }

    /// Waits until the ClusterBootstrap satisfies `probe`.
    pub async fn bootstrap_until<T>(
        &self,
        what: String,
        deadline: Duration,
        probe: impl Fn(&Value) -> Result<T, Unmet>,
    ) -> Result<T> {
        let found = wait::until(what, deadline, || async {
            let object = self.bootstrap().await?;
            probe(&object)
        })
        .await?;
        Ok(found)
    }

    /// The data of a ConfigMap that a package has deployed.
    pub async fn echoed(&self, package: &TestPackage) -> Result<Value> {
        let name = format!("{}-values", package.short());
        let configs: Api<ConfigMap> = Api::namespaced(self.workload()?.api.admin_client(), NAMESPACE);
        Ok(serde_json::to_value(configs.get(&name).await?.data)?)
    }

    /// Milestones so far.
    #[must_use]
    pub fn milestones(&self) -> Vec<Milestone> {
        let observer = self.scene.world().observer();
        observer.milestones(self.scene.namespace(), &self.name)
    }

    /// Waits for the first milestone after `since` that `wanted` accepts.
    pub async fn milestone(
        &self,
        what: &str,
        deadline: Duration,
        since: Revision,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Milestone> {
        let cluster = (self.scene.namespace(), self.name.as_str());
        let observer = self.scene.world().observer();
        observer.milestone(what, deadline, cluster, since, wanted).await
    }

    /// Waits until Cluster API writes `version` to the control plane.
    pub async fn control_plane_written(
        &self,
        version: &str,
        since: Revision,
        deadline: Duration,
    ) -> Result<Milestone> {
        let what = format!(
            "{version} to be written to the control plane of Cluster {}",
            self.name
        );
        self.milestone(
            &what,
            deadline,
            since,
            |event| matches!(event, Event::ControlPlaneWritten { version: written } if written == version),
        )
        .await
    }

    /// Waits until every package of `release` has proof after `since`; returns the last of these proofs.
    pub async fn packages_proven(
        &self,
        release: &Release,
        since: Revision,
        deadline: Duration,
    ) -> Result<Milestone> {
        let mut last: Option<Milestone> = None;
        for package in release.packages() {
            let proven = self.package_proven(package, since, deadline).await?;
            if last.as_ref().is_none_or(|last| last.revision < proven.revision) {
                last = Some(proven);
            }
        }
        last.context("a release without packages")
    }

    /// Waits until a package has proof after `since`.
    pub async fn package_proven(
        &self,
        package: &TestPackage,
        since: Revision,
        deadline: Duration,
    ) -> Result<Milestone> {
        let what = format!("proof of {} in Cluster {}", package.name(), self.name);
        self.milestone(&what, deadline, since, |event| {
            matches!(event, Event::PackageProven { ref_name, version }
                if ref_name == package.ref_name() && version == package.version())
        })
        .await
    }

    /// Fails if Cluster API has written any version to the control plane after `since`.
    pub async fn control_plane_is_untouched(&self, since: Revision) -> Result<()> {
        self.scene.world().observer().catch_up().await?;
        let written = self.milestones().into_iter().find(|milestone| {
            milestone.revision > since && matches!(milestone.event, Event::ControlPlaneWritten { .. })
        });
        match written {
            Some(milestone) => bail!(
                "{:?} of Cluster {} at revision {}, after {since}",
                milestone.event,
                self.name,
                milestone.revision
            ),
            None => Ok(()),
        }
    }
}
