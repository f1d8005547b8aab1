//! Why upgrades are held. Every cause occurs on real components: the workload clusters run kube-controller-manager and kube-scheduler, and
//! the stand-in only reports what a kubelet reports. Most Clusters are held for one cause after the other, each repaired as an operator
//! repairs it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use sluice_tests::objects::packages::{NAMESPACE, TestPackage};
use sluice_tests::objects::{Class, Release};
use sluice_tests::observer::Revision;
use sluice_tests::provider::WorkloadControllers;
use sluice_tests::requests::apply;
use sluice_tests::scenario::{Cluster, Objects, Scenario, Scene, TIMEOUT, VERSIONS, Work};
use sluice_tests::stack::kubelet::{CRASHING, DELAY_ANNOTATION, Delay, MISSING};
use sluice_tests::wait;
use tokio::sync::Mutex;

use crate::common::{REFUSED, Refusal, is_completed, metrics, proven_before_written, record_says};

const OLD: &str = "1.0.0";
const NEW: &str = "2.0.0";

/// Package versions that Sluice and kapp-controller order differently: Sluice compares runs of hexadecimal digits as numbers.
const BUILDS: [&str; 2] = ["2.0.0+b9", "2.0.0+b10"];

/// On a PackageInstall: allows a lower version.
const DOWNGRADABLE: &str = "packaging.carvel.dev/downgradable";

/// Begin of the names of images that run.
const SOUND: &str = "registry.invalid/";

/// The shortest deadline, which every held gate exceeds.
const PASSED: &str = "0s";

/// Timeout until a cause is named: Sluice may look for it only once in five minutes.
const NAMED: Duration = Duration::from_mins(6);

/// Rejects the NetworkPolicy of a package.
const REFUSAL: Refusal<'_> = Refusal {
    name: "no-network-policies",
    operation: "CREATE",
    users: "",
    resources: &[("networking.k8s.io", "networkpolicies")],
};

/// Releases of the Clusters share Packages, which their API server creates for one of two requests at a time.
static PUBLISHING: Mutex<()> = Mutex::const_new(());

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "held-cause",
        "a gate that is held beyond its deadline names cause, object and evidence in the ClusterBootstrap: each cause occurs on real controllers, a real scheduler, kapp and Cluster API; after the repair the upgrade completes",
        |scene| Box::pin(run(scene)),
    )
    .class(Class {
        drains: true,
        workloads: WorkloadControllers::Scheduled,
        ..Class::default()
    })
    // Each of its five Clusters runs twice as many processes as others.
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    // Not while a Cluster waits for it: the first build takes minutes.
    scene.world().stack().core().binaries().kube_scheduler().await?;
    tokio::try_join!(
        replaced(&scene),
        started(&scene),
        applied(&scene),
        drained(&scene),
        stopped(&scene),
    )?;
    Ok(())
}

/// Pods of a DaemonSet are not replaced, and an image cannot be pulled.
async fn replaced(scene: &Scene) -> Result<()> {
    let agent = |version| scene.package("agent", version).on_delete_daemon_set(Delay::NONE);
    let image = scene
        .package("image", NEW)
        .object(deployment("image", NEW, MISSING));
    let planned = Planned::create(
        scene,
        ("replaced", 1, 1),
        vec![agent(OLD)],
        vec![agent(NEW), image],
    )
    .await?;
    let workload = planned.workload()?;
    let held = planned.upgrade().await?;
    agent_is_left(&workload).await?;
    pods_say(&workload, &["ImagePullBackOff"]).await?;
    held.has_deadline(PASSED).await?;

    held.names("OnDeleteDaemonSet", "agent").await?;
    workload
        .delete(&format!("{}?labelSelector=app%3Dagent", pods()))
        .await?;
    held.names("ImagePull", "image").await?;
    held.cluster.delay("image", Delay::NONE);
    held.completes().await
}

/// A container crashes, and a Pod has no Node.
async fn started(scene: &Scene) -> Result<()> {
    let crash = scene
        .package("crash", NEW)
        .object(deployment("crash", NEW, CRASHING));
    let apart = scene.package("apart", NEW).object(apart());
    let planned = Planned::create(scene, ("started", 2, 1), Vec::new(), vec![crash, apart]).await?;
    let workload = planned.workload()?;
    let held = planned.upgrade().await?;
    pods_say(&workload, &["CrashLoopBackOff", "Unschedulable"]).await?;
    held.has_deadline(PASSED).await?;

    held.names("CrashLoop", "crash").await?;
    held.cluster.delay("crash", Delay::NONE);
    held.names("Unschedulable", "apart").await?;
    has_workers(&held.cluster, 2).await?;
    held.completes().await
}

/// A policy denies an object of a package, and another object belongs to another package.
async fn applied(scene: &Scene) -> Result<()> {
    let first = |version| scene.package("owner", version).object(shared());
    let denied = scene.package("denied", NEW).object(network_policy("denied"));
    let second = scene.package("owned", NEW).object(shared());
    let new = vec![first(NEW), denied, second];
    let planned = Planned::create(scene, ("applied", 3, 1), vec![first(OLD)], new).await?;
    refuses_network_policies(&planned.cluster).await?;
    let held = planned.upgrade().await?;
    // The first one is named while it does not run.
    for short in ["owned", "denied"] {
        record_says(&held.cluster, short, "Failed").await?;
    }
    held.has_deadline(PASSED).await?;

    held.names("AdmissionDenied", "denied").await?;
    correct(scene, "denied").await?;
    held.names("OwnershipConflict", "owned").await?;
    correct(scene, "owned").await?;
    held.completes().await
}

/// A package times out, and another one keeps a Machine from being drained: the only Pod that its budget needs is ready.
async fn drained(scene: &Scene) -> Result<()> {
    let mut slow = deployment("slow", NEW, SOUND);
    slow["spec"]["template"]["metadata"]["annotations"][DELAY_ANNOTATION] = never();
    let planned = Planned::create(
        scene,
        // Pods that a drain evicts need another Node.
        ("drained", 4, 2),
        vec![shop(scene, OLD)],
        vec![
            scene.package("slow", NEW).object(slow).waits(10),
            shop(scene, NEW),
        ],
    )
    .await?;
    let held = planned.upgrade().await?;
    record_says(&held.cluster, "slow", "Failed").await?;
    held.has_deadline(PASSED).await?;

    held.names("KappTimeout", "slow").await?;
    let machine = delete_machine_of_shop(&held.cluster).await?;
    is_being_drained(scene, &machine).await?;
    held.cluster.delay("slow", Delay::NONE);
    held.names("DisruptionBudget", "shop").await?;
    held.cluster.delay("shop", Delay::NONE);
    held.completes().await
}

/// A Package excludes the version, kapp-controller refuses a version, an API is not served, a user pauses a package, and the workload API
/// server is stopped.
async fn stopped(scene: &Scene) -> Result<()> {
    let [before, lower] = BUILDS.map(|version| scene.package("lower", version));
    let removed = scene.package("removed", NEW).object(device_class());
    let paused = |version| scene.package("paused", version);
    let limited = metrics(scene, NEW).for_kubernetes(">=1.34.0 <1.36.0");
    let planned = Planned::create(
        scene,
        ("stopped", 5, 1),
        vec![before, paused(OLD), metrics(scene, OLD)],
        vec![lower.clone(), removed, paused(NEW), limited.clone()],
    )
    .await?;
    let held = planned.upgrade().await?;
    held.has_deadline(PASSED).await?;
    held.names("PackageExcludesKubernetes", limited.short()).await?;

    let (cluster, paused) = (&held.cluster, paused(NEW));
    let pause = |value: Value| json!({"spec": {"paused": value}});
    cluster
        .patch_package(&paused, Work::PackageInstall, &pause(json!(true)))
        .await?;
    held.has_deadline("1h").await?;
    scene
        .apply(&[limited.for_kubernetes(">=1.34.0 <1.37.0").package()])
        .await?;
    for short in ["removed", "lower"] {
        record_says(cluster, short, "Failed").await?;
    }
    held.has_deadline(PASSED).await?;
    held.names("DowngradeRefused", "lower").await?;
    let allowed = json!({"metadata": {"annotations": {DOWNGRADABLE: ""}}});
    cluster
        .patch_package(&lower, Work::PackageInstall, &allowed)
        .await?;
    // kapp names only the kind of the object.
    held.names("RemovedAPI", "DeviceClass").await?;
    correct(scene, "removed").await?;
    held.names("PackagePaused", "paused").await?;

    let workload = cluster.workload()?;
    workload.api.kill().await?;
    let unreachable = held.names("WorkloadUnreachable", "").await;
    // Also after a failure: the scenario ends with deletions.
    workload.api.restart().await?;
    unreachable?;
    cluster
        .patch_package(&paused, Work::PackageInstall, &pause(Value::Null))
        .await?;
    held.completes().await
}

/// Publishes the new version of a package without its object.
async fn correct(scene: &Scene, short: &str) -> Result<()> {
    scene.apply(&[scene.package(short, NEW).package()]).await
}

/// A Cluster at the old Kubernetes version, and the release that it is upgraded to.
struct Planned {
    cluster: Cluster,
    new: Release,
}

impl Planned {
    /// Creates a Cluster of this name with these packages beside kapp-controller and antrea. The numbers are those of its releases and
    /// workers.
    async fn create(
        scene: &Scene,
        (name, number, workers): (&str, u32, u32),
        old: Vec<TestPackage>,
        new: Vec<TestPackage>,
    ) -> Result<Self> {
        let release = |kubernetes: &str, version: &str, packages: Vec<TestPackage>| -> Result<Release> {
            let release = scene
                .release(kubernetes, version, Delay::NONE)?
                .build(format!("{}.{number}", scene.namespace()));
            Ok(packages.into_iter().fold(release, Release::additional))
        };
        let old = release(VERSIONS[1], OLD, old)?;
        let new = release(VERSIONS[2], NEW, new)?;
        let publishing = PUBLISHING.lock().await;
        scene.publish(&old).await?;
        scene.publish(&new).await?;
        drop(publishing);
        let cluster = scene.cluster(name).workers(workers).create_settled(&old).await?;
        Ok(Self { cluster, new })
    }

    fn workload(&self) -> Result<Objects> {
        Ok(Objects::of(self.cluster.workload()?.api.admin_client()))
    }

    async fn upgrade(self) -> Result<Held> {
        let Self { cluster, new } = self;
        let before = cluster.upgrade(&new).await?;
        Ok(Held { cluster, new, before })
    }
}

/// A Cluster whose upgrade is held before its control plane takes the version.
struct Held {
    cluster: Cluster,
    new: Release,
    /// The revision from before the upgrade.
    before: Revision,
}

impl Held {
    /// Sets a deadline. Only a Cluster that is past it is probed, so it passes once the cause is there to be found.
    async fn has_deadline(&self, deadline: &str) -> Result<()> {
        let deadline = json!({"spec": {"upgradePolicy": {"deadline": deadline}}});
        self.cluster.patch_bootstrap(&deadline).await.map(drop)
    }

    /// Waits until status, condition and metric name this cause, of an object whose name contains `object`.
    async fn names(&self, cause: &str, object: &str) -> Result<()> {
        let what = format!("Cluster {} to be held because of {cause}", self.cluster.name());
        self.cluster
            .bootstrap_until(what, NAMED, |bootstrap| {
                let status = &bootstrap["status"];
                let text = |field: &str| status["held"]["cause"][field].as_str().unwrap_or_default();
                let is_named = text("name") == cause
                    && !text("object").is_empty()
                    && text("object").contains(object)
                    && !text("evidence").is_empty();
                let exceeded = exceeded(status);
                if is_named && exceeded.contains(cause) {
                    return Ok(());
                }
                wait::not_yet(format!(
                    "held {}, waiting for {}, exceeded {exceeded:?}",
                    status["held"], status["waitingFor"]
                ))
            })
            .await?;
        let extension = self.cluster.scene().world().extension()?;
        let series = format!("sluice_held_clusters{{cause=\"{cause}\"}}");
        wait::until(format!("{series} to count the Cluster"), TIMEOUT, || async {
            let count = extension.metric(&series).await?;
            if count >= 1.0 {
                Ok(())
            } else {
                wait::not_yet(count)
            }
        })
        .await?;
        self.cluster.control_plane_is_untouched(self.before).await
    }

    /// Waits until the upgrade is completed: the control plane takes the version after the last proof.
    async fn completes(&self) -> Result<()> {
        proven_before_written(&self.cluster, &self.new, self.before).await?;
        self.cluster.is_settled(TIMEOUT).await?;
        is_completed(&self.cluster).await
    }
}

/// Message of condition DeadlineExceeded; empty unless it is True.
fn exceeded(status: &Value) -> &str {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let found =
        conditions.find(|condition| condition["type"] == "DeadlineExceeded" && condition["status"] == "True");
    found
        .and_then(|condition| condition["message"].as_str())
        .unwrap_or_default()
}

/// Path of the Pods of packages.
fn pods() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

/// Waits until the DaemonSet of package agent has the new version, and its Pod the old one.
async fn agent_is_left(workload: &Objects) -> Result<()> {
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/agent");
    wait::until("DaemonSet agent to wait for a deletion", TIMEOUT, || async {
        let agent = workload.get(&path).await?.unwrap_or_default();
        let (spec, status) = (&agent["spec"], &agent["status"]);
        let is_new = spec["template"]["metadata"]["annotations"]["harness.test/version"] == NEW;
        let is_left = status["desiredNumberScheduled"] == 1
            && status["updatedNumberScheduled"].as_i64().unwrap_or(0) == 0;
        if is_new && is_left && status["observedGeneration"] == agent["metadata"]["generation"] {
            Ok(())
        } else {
            wait::not_yet(format!("new {is_new}, status {status}"))
        }
    })
    .await?;
    Ok(())
}

/// Waits until kubelet or scheduler report each of these reasons of a Pod.
async fn pods_say(workload: &Objects, reasons: &[&str]) -> Result<()> {
    let what = format!("Pods that say {reasons:?}");
    wait::until(what, TIMEOUT, || async {
        let listed = workload.get(&pods()).await?.unwrap_or_default();
        let text = listed.to_string();
        match reasons.iter().find(|reason| !text.contains(**reason)) {
            None => Ok(()),
            Some(reason) => wait::not_yet(format!("no Pod says {reason}")),
        }
    })
    .await?;
    Ok(())
}

/// Returns once the API server of the workload cluster rejects NetworkPolicies.
async fn refuses_network_policies(cluster: &Cluster) -> Result<()> {
    let client = cluster.workload()?.api.admin_client();
    apply::apply_all(&client, &REFUSAL.objects()).await?;
    let policies = Api::<NetworkPolicy>::namespaced(client, NAMESPACE);
    let probe = serde_json::from_value(network_policy("probe"))?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    wait::until("NetworkPolicies to be refused", TIMEOUT, || async {
        match policies.create(&dry_run, &probe).await {
            Ok(_) => wait::not_yet("allowed"),
            Err(kube::Error::Api(refused)) if refused.message.contains(REFUSED) => Ok(()),
            Err(other) => Err(other.into()),
        }
    })
    .await?;
    Ok(())
}

/// Annotation of MachineSets, which get those of their MachineDeployment: Cluster API adds Machines without these checks.
const SKIPPED_CHECKS: &str = "machineset.cluster.x-k8s.io/skip-preflight-checks";

/// Scales the workers of a Cluster whose upgrade is held. Cluster API does not apply the topology to its MachineDeployment meanwhile, and adds
/// no Machine beside a control plane whose upgrade is pending.
async fn has_workers(cluster: &Cluster, replicas: u32) -> Result<()> {
    let pools = json!([{"class": "default", "name": "md", "replicas": replicas}]);
    cluster
        .patch(&json!({"spec": {"topology": {"workers": {"machineDeployments": pools}}}}))
        .await?;
    let scene = cluster.scene();
    let all = format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machinedeployments",
        scene.namespace()
    );
    let of_cluster = format!(
        "{all}?labelSelector=cluster.x-k8s.io%2Fcluster-name%3D{}",
        cluster.name()
    );
    let listed = scene.objects().get(&of_cluster).await?.unwrap_or_default();
    let name = listed["items"][0]["metadata"]["name"].as_str();
    let path = format!("{all}/{}", name.context("a Cluster without MachineDeployment")?);
    let change = json!({
        "metadata": {"annotations": {SKIPPED_CHECKS: "ControlPlaneIsStable"}},
        "spec": {"replicas": replicas},
    });
    scene.objects().merge(&path, &change).await
}

/// Deletes the Machine whose Node has the only ready Pod of package shop. A Machine has the name of its Node. Returns its path.
async fn delete_machine_of_shop(cluster: &Cluster) -> Result<String> {
    let workload = Objects::of(cluster.workload()?.api.admin_client());
    let path = format!("{}?labelSelector=app%3Dshop", pods());
    let listed = workload.get(&path).await?.unwrap_or_default();
    let is_ready = |pod: &&Value| {
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    let ready = listed["items"].as_array().into_iter().flatten().find(is_ready);
    let name = ready.and_then(|pod| pod["spec"]["nodeName"].as_str());
    let name = name.context("no Pod of package shop is ready")?;
    let scene = cluster.scene();
    let path = format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machines/{name}",
        scene.namespace()
    );
    scene.objects().delete(&path).await?;
    Ok(path)
}

/// Waits until a budget keeps Cluster API from draining the Node of a Machine.
async fn is_being_drained(scene: &Scene, machine: &str) -> Result<()> {
    let objects = scene.objects();
    wait::until("a Node that cannot be drained", TIMEOUT, || async {
        let machine = objects.get(machine).await?.unwrap_or_default();
        let mut conditions = machine["status"]["conditions"].as_array().into_iter().flatten();
        let deleting = conditions.find(|condition| condition["type"] == "Deleting");
        let message = deleting.and_then(|deleting| deleting["message"].as_str());
        let is_blocked = message.is_some_and(|message| message.contains("needs 1 healthy pods and has 1"));
        if is_blocked && deleting.is_some_and(|deleting| deleting["reason"] == "DrainingNode") {
            Ok(())
        } else {
            wait::not_yet(format!("condition {deleting:?}"))
        }
    })
    .await?;
    Ok(())
}

/// A Deployment of one Pod, whose image has a name that begins so.
fn deployment(short: &str, version: &str, image: &str) -> Value {
    let labels = json!({"app": short});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": short, "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {"harness.test/version": version}},
                "spec": {"containers": [{"name": short, "image": format!("{image}{short}:{version}")}]},
            },
        },
    })
}

/// A Deployment of two Pods, which need a Node each.
fn apart() -> Value {
    let mut deployment = deployment("apart", NEW, SOUND);
    let spec = &mut deployment["spec"];
    spec["replicas"] = json!(2);
    let not_beside = json!([{
        "labelSelector": {"matchLabels": {"app": "apart"}},
        "topologyKey": "kubernetes.io/hostname",
    }]);
    spec["template"]["spec"]["affinity"] =
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": not_beside}});
    deployment
}

/// A package of two Pods with a budget, which are replaced one after the other. Those of the new version are not ready until a scenario
/// has them so.
fn shop(scene: &Scene, version: &str) -> TestPackage {
    let mut deployment = deployment("shop", version, SOUND);
    let spec = &mut deployment["spec"];
    spec["replicas"] = json!(2);
    spec["strategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
    if version == NEW {
        spec["template"]["metadata"]["annotations"][DELAY_ANNOTATION] = never();
    }
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "shop", "namespace": NAMESPACE},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "shop"}}},
    });
    scene.package("shop", version).object(deployment).object(budget)
}

/// The delay of Pods that are not ready until a scenario sets another one.
fn never() -> Value {
    json!(Delay::Never.to_string())
}

/// An object that two packages have.
fn shared() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "owned", "namespace": NAMESPACE},
    })
}

fn network_policy(name: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"podSelector": {}},
    })
}

/// An object of an API that API servers do not serve by default.
fn device_class() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "DeviceClass",
        "metadata": {"name": "fast"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == 'devices.harness.test'"}}]},
    })
}
