//! Scenarios of UpgradeGates: a management cluster without kapp-controller and without Tanzu kinds, add-ons delivered by Helm, and the
//! records that Sluice keeps of the gates of a Cluster.
//!
//! # How a scenario is described
//! ```ignore
//! Scenario::new("gates-only", "…", |scene| Box::pin(run(scene)))
//!     .gates_only()               // a stack of its own without packages; its ClusterClass is that of `gates::class()`
//!     .audited()                  // optional, as everywhere
//! ```
//! - [`Scenario::gates_only`](super::Scenario::gates_only): `fn gates_only(self) -> Self`. The stack has no kapp-controller, of Sluice's
//!   definitions only those of group `lifecycle.sluice.dev`, and API servers that store JSON. Sluice runs with `--packages=false` and
//!   the roles of `manifests/overlays/gates-only`.
//! - [`Scenario::gated`](super::Scenario::gated): `fn gated(self) -> Self`. The same beside packages: the API servers store JSON, and the
//!   DaemonSet controller is real. The stand-in rolls Deployments out, and runs kapp-controller.
//! - In both, the API server asks Sluice about the gates of the scenario, by ValidatingWebhookConfiguration `sluice-gates`.
//! - Without the runner (demo, soak): `World::start_with(Options::new("demo-gates").without_packages(), &hooks)`, then
//!   `Scene::open(&world, "team-a", &gates::class())`.
//! - [`Options::without_packages`](crate::stack::Options::without_packages), [`Options::stores_json`](crate::stack::Options::stores_json):
//!   the latter alone for a stack with packages whose observer has to read DaemonSets, Deployments, StatefulSets, Jobs and Pods.
//! - [`Stack::kapp_controller`](crate::stack::Stack::kapp_controller) is an error in a stack without packages.
//! - [`class`]: `fn class() -> Class`. DaemonSet, Deployment, ReplicaSet, StatefulSet and Job are those of the real
//!   kube-controller-manager; the stand-in binds Pods to Nodes, runs them, and completes those of Jobs. A Cluster needs a worker
//!   (`.workers(1)`): there is no Node without one. `cluster.delay("cni", Delay::Never)` (DaemonSet, Deployment, StatefulSet or Job by
//!   its name) delays the readiness of new Pods, or their completion, until another delay is set. Annotation
//!   `harness.test/ready-after` of the Pod template does the same. Annotation `harness.test/fails: "true"` of a Job's Pod template has
//!   its Pods fail.
//!
//! # Clusters
//! `scene.cluster("prod-1").unmanaged("v1.34.4").labelled("cni", "demo").workers(1).create()`; the upgrade is
//! `cluster.upgrade_unmanaged("v1.35.4")`.
//!
//! # Delivery
//! ```ignore
//! let proxy = scene.cni(&[("1.17.4", "v1.17.4"), ("1.18.2", "v1.18.2")]).await?;   // publishes the charts, starts CAAPH
//! scene.deliver(&proxy).await?;                            // HelmChartProxy `cni` at the first version
//! cluster.delivered(&proxy, TIMEOUT).await?;               // its HelmReleaseProxy is deployed at that version
//! cluster.rolled_out("cni", "v1.17.4", TIMEOUT).await?;    // DaemonSet kube-system/cni runs this image tag on all Nodes
//! scene.deliver(&proxy.clone().version("1.18.2")).await?;  // the bump
//! scene.deliver(&proxy.clone().values(&Chart::broken_for("prod-2"))).await?;   // HelmChartProxy fails at this Cluster
//! scene.deliver(&proxy.clone().values(Chart::BROKEN)).await?;                  // the chart fails in every Cluster
//! scene.world().caaph().await?.kill().await?;              // also restart(), freeze(), thaw()
//! ```
//! - `Scene::cni(&self, versions: &[(&str, &str)]) -> Result<HelmChartProxy>`: pairs of chart version and appVersion.
//! - `Scene::deliver(&self, proxy: &HelmChartProxy) -> Result<()>`; `Scene::proxy_path(&self, name: &str) -> String`.
//! - `World::caaph(&self) -> Result<&Caaph>`, `World::charts(&self) -> Result<&ChartRepository>` (both async): started by the first call.
//! - [`HelmChartProxy`]: `new(chart, repository)`, `version`, `values`, `selects(&Value)`, `options(Value)`,
//!   `install_once()`, `object(namespace) -> Value`.
//! - [`Chart`]: `new(name, version, app_version)`, `template(text)`, `archive()`; `Chart::BROKEN`, `REJECTED`, `ON_DELETE`,
//!   `Chart::broken_for(cluster) -> String`; `Chart::NAMESPACE` = `kube-system`, `Chart::CONTAINER` = `agent`, `image()` of its
//!   DaemonSet.
//! - `components::CAAPH_VERSION` = `v0.6.4`, for `gates.json`.
//!
//! [`flux`](super::flux) has the same for Flux.
//!
//! # Gates
//! ```ignore
//! let gate = Gate::new("cni")                    // mode Enforce, before ControlPlane, selects every Cluster
//!     .row("1.34", &[("chart", "1.17.4"), ("image", "v1.17.4")])
//!     .row("1.35", &[("chart", "1.18.2"), ("image", "v1.18.2")])
//!     .check(Check::proxy("chart", "cni").version_key("chart"))
//!     .check(Check::workload("agent", ("apps/v1", "DaemonSet"), "kube-system", "cni").container("agent").version_key("image"));
//! scene.gate(&gate).await?;
//! let since = cluster.upgrade_unmanaged("v1.35.4").await?;
//! cluster.held_by("cni/chart", "NotAtVersion", TIMEOUT).await?;
//! ```
//! - [`Gate`]: `new(name)`, `audit()`, `before_workers()`, `selects(&Value)`, `deadline(text)`, `row(minor, &[(key, value)])`,
//!   `check(Check)`, `object(namespace) -> Value`.
//! - [`Check`](crate::objects::Check): `proxy(name, proxy)`, `helm_release(name, object)`, `kustomization(name, object)`,
//!   `management(name, (api_version, kind), object)`, `workload(name, (api_version, kind), namespace, object)`, `container`, `version_key`,
//!   `health_only()`, `cel(expression)`.
//! - `Scene::gate(&self, gate: &Gate) -> Result<()>` applies it, `Scene::gate_is_in_force(&self, name: &str) -> Result<()>` waits for its
//!   condition; `Scene::gate_path(&self, name: &str) -> String` for `scene.objects()`.
//! - `Cluster::cluster_upgrade_path(&self) -> String`, `Cluster::cluster_upgrade(&self) -> Result<Option<Value>>` (its ClusterUpgrade),
//!   `Cluster::cluster_upgrade_until(what, deadline, probe)`, `Cluster::held_by(check, reason, deadline) -> Result<Value>` (the
//!   ClusterUpgrade), `Cluster::in_workload(path) -> Result<Option<Value>>`.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::cluster::Cluster;
use super::read;
use super::runner::TIMEOUT;
use super::scene::Scene;
use crate::objects::{Chart, Class, Gate, HelmChartProxy};
use crate::provider::WorkloadControllers;
use crate::requests::{apply, edit};
use crate::wait::{self, Unmet};

/// Name of the CNI of scenarios: of its chart, its release, its HelmChartProxy and its DaemonSet.
pub const CNI: &str = "cni";

/// Timeout until a HelmChartProxy is accepted.
const ACCEPTED: Duration = Duration::from_mins(2);

/// A class whose Clusters have real controllers of workloads, and no variable of Sluice.
#[must_use]
pub fn class() -> Class {
    Class {
        workloads: WorkloadControllers::Real,
        ..Class::default()
    }
}

impl Scene {
    /// Publishes the chart of the CNI in these versions, each with its appVersion, and starts CAAPH. Returns a HelmChartProxy of the first
    /// version for every Cluster of the scenario, which is not applied yet.
    pub async fn cni(&self, versions: &[(&str, &str)]) -> Result<HelmChartProxy> {
        let repository = self.publish_cni(versions).await?;
        self.world().caaph().await?;
        Ok(HelmChartProxy::new(CNI, &repository).version(first(versions)))
    }

    /// Publishes the chart of the CNI in these versions, each with its appVersion. Returns the URL of the repository.
    pub(super) async fn publish_cni(&self, versions: &[(&str, &str)]) -> Result<String> {
        let charts = self.world().charts().await?;
        for (version, app_version) in versions {
            charts.publish(&Chart::new(CNI, version, app_version))?;
        }
        Ok(charts.url().to_owned())
    }

    /// Applies a HelmChartProxy. The API server may not reach the webhook of CAAPH in time.
    pub async fn deliver(&self, proxy: &HelmChartProxy) -> Result<()> {
        let object = proxy.object(self.namespace());
        wait::until("a HelmChartProxy to be accepted", ACCEPTED, || async {
            apply::apply(&self.client(), &object).await?;
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Where a HelmChartProxy of the scenario is.
    #[must_use]
    pub fn proxy_path(&self, name: &str) -> String {
        let namespace = self.namespace();
        format!("/apis/addons.cluster.x-k8s.io/v1alpha1/namespaces/{namespace}/helmchartproxies/{name}")
    }

    /// Applies an UpgradeGate. A rejection is an error.
    pub async fn gate(&self, gate: &Gate) -> Result<()> {
        self.apply(&[gate.object(self.namespace())]).await
    }

    /// Where an UpgradeGate of the scenario is.
    #[must_use]
    pub fn gate_path(&self, name: &str) -> String {
        let namespace = self.namespace();
        format!("/apis/lifecycle.sluice.dev/v1alpha1/namespaces/{namespace}/upgradegates/{name}")
    }

    /// Waits until an UpgradeGate is in force, at its generation, for every Cluster that it selects.
    pub async fn gate_is_in_force(&self, name: &str) -> Result<()> {
        let path = self.gate_path(name);
        let what = format!("UpgradeGate {name} to be in force");
        wait::until(what, TIMEOUT, || async {
            let gate = self.objects().get(&path).await?.unwrap_or_default();
            let status = &gate["status"];
            let is_in_force =
                read::condition(&gate, "InForce").is_some_and(|condition| condition["status"] == "True");
            let is_observed = status["observedGeneration"] == gate["metadata"]["generation"];
            if is_in_force && is_observed {
                Ok(())
            } else {
                wait::not_yet(status)
            }
        })
        .await?;
        Ok(())
    }
}

impl Cluster {
    /// Where the ClusterUpgrade of the Cluster is.
    #[must_use]
    pub fn cluster_upgrade_path(&self) -> String {
        let namespace = self.scene().namespace();
        let name = self.name();
        format!("/apis/lifecycle.sluice.dev/v1alpha1/namespaces/{namespace}/clusterupgrades/{name}")
    }

    /// The ClusterUpgrade of the Cluster; none where there is none.
    pub async fn cluster_upgrade(&self) -> Result<Option<Value>> {
        edit::get(&self.scene().client(), &self.cluster_upgrade_path()).await
    }

    /// Waits until there is a ClusterUpgrade that satisfies `probe`.
    pub async fn cluster_upgrade_until<T>(
        &self,
        what: String,
        deadline: Duration,
        probe: impl Fn(&Value) -> Result<T, Unmet>,
    ) -> Result<T> {
        let found = wait::until(what, deadline, || async {
            match self.cluster_upgrade().await? {
                Some(record) => probe(&record),
                None => wait::not_yet("there is no ClusterUpgrade"),
            }
        })
        .await?;
        Ok(found)
    }

    /// Waits until the Cluster is held by a check, `<gate>/<check>`, with this reason. Returns the ClusterUpgrade.
    pub async fn held_by(&self, check: &str, reason: &str, deadline: Duration) -> Result<Value> {
        let what = format!("Cluster {} to be held by {check} with {reason}", self.name());
        self.cluster_upgrade_until(what, deadline, |record| {
            let status = &record["status"];
            if status["heldBy"] == check && status["reason"] == reason {
                Ok(record.clone())
            } else {
                wait::not_yet(format!(
                    "heldBy {}, reason {}, message {}",
                    status["heldBy"], status["reason"], status["message"]
                ))
            }
        })
        .await
    }

    /// An object of the workload cluster; none if it does not exist.
    pub async fn in_workload(&self, path: &str) -> Result<Option<Value>> {
        let client = self.workload()?.api.admin_client();
        edit::get(&client, path).await
    }

    /// Waits until the one HelmReleaseProxy of the Cluster and this HelmChartProxy is deployed in the version of the latter.
    pub async fn delivered(&self, proxy: &HelmChartProxy, deadline: Duration) -> Result<()> {
        let what = format!("{} to be delivered to Cluster {}", proxy.name(), self.name());
        let path = self.releases_path(proxy);
        wait::until(what, deadline, || async {
            let list = edit::get(&self.scene().client(), &path)
                .await?
                .unwrap_or_default();
            match list["items"].as_array().map_or(&[][..], Vec::as_slice) {
                [release] => is_deployed(release, proxy),
                others => wait::not_yet(format!("{} HelmReleaseProxies", others.len())),
            }
        })
        .await?;
        Ok(())
    }

    fn releases_path(&self, proxy: &HelmChartProxy) -> String {
        let (namespace, cluster) = (self.scene().namespace(), self.name());
        let selector = format!(
            "cluster.x-k8s.io/cluster-name%3D{cluster}%2Chelmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name%3D{}",
            proxy.name()
        );
        format!(
            "/apis/addons.cluster.x-k8s.io/v1alpha1/namespaces/{namespace}/helmreleaseproxies?labelSelector={selector}"
        )
    }

    /// Waits until a DaemonSet of [`Chart::NAMESPACE`] runs the image of this appVersion on all of its Nodes.
    pub async fn rolled_out(&self, name: &str, app_version: &str, deadline: Duration) -> Result<()> {
        let what = format!("DaemonSet {name} of Cluster {} to run {app_version}", self.name());
        let path = format!("/apis/apps/v1/namespaces/{}/daemonsets/{name}", Chart::NAMESPACE);
        wait::until(what, deadline, || async {
            match self.in_workload(&path).await? {
                Some(daemon_set) => is_rolled_out(&daemon_set, &Chart::new(name, "", app_version).image()),
                None => wait::not_yet("there is no such DaemonSet"),
            }
        })
        .await?;
        Ok(())
    }
}

/// The first chart version.
pub(super) fn first<'a>(versions: &[(&'a str, &str)]) -> &'a str {
    versions.first().map_or("", |(version, _)| *version)
}

fn is_deployed(release: &Value, proxy: &HelmChartProxy) -> Result<(), Unmet> {
    let (spec, status) = (&release["spec"], &release["status"]);
    let is_observed = status["observedGeneration"] == release["metadata"]["generation"];
    // After an error before the release, only the condition changes.
    let is_ready = read::condition(release, "Ready").is_some_and(|condition| condition["status"] == "True");
    if is_observed && is_ready && spec["version"] == proxy.wanted() && status["status"] == "deployed" {
        return Ok(());
    }
    wait::not_yet(format!(
        "version {}, status {}, conditions {}",
        spec["version"], status["status"], status["conditions"]
    ))
}

fn is_rolled_out(daemon_set: &Value, image: &str) -> Result<(), Unmet> {
    let status = &daemon_set["status"];
    let desired = &status["desiredNumberScheduled"];
    let runs = daemon_set["spec"]["template"]["spec"]["containers"][0]["image"] == image;
    let is_observed = status["observedGeneration"] == daemon_set["metadata"]["generation"];
    let is_complete = desired.as_i64().is_some_and(|desired| desired > 0)
        && status["updatedNumberScheduled"] == *desired
        && status["numberAvailable"] == *desired;
    if runs && is_observed && is_complete {
        return Ok(());
    }
    wait::not_yet(status)
}
