//! Pools take a version in the order of the topology, and their Nodes are drained.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::{Class, Release, cluster};
use sluice_tests::observer::{Event, Revision};
use sluice_tests::requests::apply;
use sluice_tests::scenario::verdict::in_order;
use sluice_tests::scenario::{Cluster, Objects, Row, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::audit::Request;
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{is_completed, release, revision};
use crate::resolve::apply_until_accepted;

/// The pools, in the order of the topology. The last one is deferred.
const POOLS: [&str; 3] = ["first", "second", "later"];

const DEFER: &str = "topology.cluster.x-k8s.io/defer-upgrade";

const CONCURRENCY: &str = "topology.cluster.x-k8s.io/upgrade-concurrency";

/// Namespace of the Pods in the workload cluster.
const NAMESPACE: &str = "shop";

/// Name of a Pod, of its budget, and value of its label `app`.
const GUARDED: &str = "guarded";

/// Name of a Pod without budget. No Pod of this scenario has a controller.
const BARE: &str = "bare";

const BUDGET: &str = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/guarded";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "pools",
        "a pool takes a version after the one before it, or beside it if an annotation allows two at once; a Node stays cordoned while a budget refuses an eviction, and a bare Pod is lost; a deferred pool is named and exceeds no deadline",
        |scene| Box::pin(run(scene)),
    )
    .class(Class {
        drains: true,
        ..Class::default()
    })
}

async fn run(scene: Scene) -> Result<()> {
    let [old, new, newest] = [1, 2, 3].map(|number| {
        let packages = format!("{number}.0.0");
        release(&scene, VERSIONS[number - 1], &packages, Delay::NONE)
    });
    let (old, new, newest) = (old?, new?, newest?);
    for release in [&old, &new, &newest] {
        scene.publish(release).await?;
    }
    apply_until_accepted(&scene, &manifest(&scene, &old)).await?;
    let one = scene.cluster("one").existing();
    one.packages_proven(&old, 0, TIMEOUT).await?;
    one.is_available(TIMEOUT).await?;
    is_upgraded(&one).await?;

    let since = one_after_the_other(&one, &new).await?;
    later_is_deferred(&one, &new, since).await?;
    two_at_once(&one, &newest).await
}

/// A Cluster with the pools, each with one Machine.
fn manifest(scene: &Scene, release: &Release) -> Value {
    let mut manifest = cluster(
        scene.namespace(),
        "one",
        release.kubernetes(),
        Some(&release.name()),
        0,
    );
    let pools = POOLS.map(|name| json!({"class": "default", "name": name, "replicas": 1}));
    let workers = &mut manifest["spec"]["topology"]["workers"];
    *workers = json!({"machineDeployments": pools});
    workers["machineDeployments"][2]["metadata"] = json!({"annotations": {DEFER: ""}});
    manifest
}

/// Upgrades the Cluster, whose second pool waits until the Node of the first one is drained. Returns the revision from before.
async fn one_after_the_other(cluster: &Cluster, release: &Release) -> Result<Revision> {
    let machine = Machine::of_pool(cluster, POOLS[0]).await?;
    machine.occupy().await?;
    let since = cluster.upgrade(release).await?;
    machine.is_held_by_the_budget().await?;
    let budget = machine.allow_eviction().await?;
    let first = Taken::by(cluster, POOLS[0], release, since).await?;
    let second = Taken::by(cluster, POOLS[1], release, since).await?;
    in_order(&[
        ("the first pool", first.written),
        ("the change of the budget", budget),
        ("the last new Machine of the first pool", first.done),
        ("the second pool", second.written),
    ])?;
    machine.is_gone().await?;
    Ok(since)
}

/// The deferred pool is named, exceeds no deadline, and follows once its annotation is removed.
async fn later_is_deferred(cluster: &Cluster, release: &Release, since: Revision) -> Result<()> {
    let columns = cluster.columns().await?;
    let is_named = |row: &Row| {
        row["PHASE"] == "UpgradingWorkers" && row["WAITING FOR"] == "deferred by annotation: later"
    };
    columns.shows("the deferred pool", TIMEOUT, is_named).await?;
    // Any gate that is held exceeds it at once.
    let deadline = json!({"spec": {"upgradePolicy": {"deadline": "0s"}}});
    let written = cluster.patch_bootstrap(&deadline).await?;
    let generation = &written["metadata"]["generation"];
    let what = "the deadline to be in the record".to_owned();
    let bootstrap = cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let record = &bootstrap["status"]["upgrade"];
            if record["observedBootstrapGeneration"] == *generation {
                Ok(bootstrap.clone())
            } else {
                wait::not_yet(record)
            }
        })
        .await?;
    let status = &bootstrap["status"];
    ensure!(
        status["waitingFor"] == "deferred by annotation: later" && status["held"].is_null(),
        "while a pool is deferred, the status is {status}"
    );
    let exceeded = condition(&bootstrap, "DeadlineExceeded");
    ensure!(
        exceeded.is_none(),
        "a deferred pool exceeds the deadline: {status}"
    );

    let removed = defer_no_longer(cluster).await?;
    let later = Taken::by(cluster, POOLS[2], release, since).await?;
    in_order(&[
        ("the removal of the annotation", removed),
        ("the deferred pool", later.written),
    ])?;
    is_upgraded(cluster).await
}

/// Removes the annotation. Returns the revision from before.
async fn defer_no_longer(cluster: &Cluster) -> Result<Revision> {
    let mut pools = cluster.object().await?["spec"]["topology"]["workers"]["machineDeployments"].take();
    for pool in pools.as_array_mut().into_iter().flatten() {
        let annotations = pool.pointer_mut("/metadata/annotations");
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.remove(DEFER);
        }
    }
    let workers = json!({"machineDeployments": pools});
    cluster
        .patch(&json!({"spec": {"topology": {"workers": workers}}}))
        .await
}

/// Upgrades the Cluster with an annotation that allows two pools at once.
async fn two_at_once(cluster: &Cluster, release: &Release) -> Result<()> {
    cluster
        .patch(&json!({"metadata": {"annotations": {CONCURRENCY: "2"}}}))
        .await?;
    let since = cluster.upgrade(release).await?;
    let first = Taken::by(cluster, POOLS[0], release, since).await?;
    let second = Taken::by(cluster, POOLS[1], release, since).await?;
    in_order(&[
        ("the write of both pools", first.written.max(second.written)),
        ("the last new Machine of one of them", first.done.min(second.done)),
    ])?;
    is_upgraded(cluster).await
}

async fn is_upgraded(cluster: &Cluster) -> Result<()> {
    cluster.is_settled(TIMEOUT).await?;
    is_completed(cluster).await
}

/// When a pool took the version of a release.
struct Taken {
    /// The write of its MachineDeployment.
    written: Revision,
    /// The end of its last old Machine.
    done: Revision,
}

impl Taken {
    async fn by(cluster: &Cluster, pool: &str, release: &Release, since: Revision) -> Result<Self> {
        let deployment = of_pool(cluster, "machinedeployments", pool).await?;
        let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
        let version = release.kubernetes();
        let is_written = |event: &Event| {
            matches!(event, Event::WorkersWritten { machine_deployment, version: written }
                if machine_deployment == name && written == version)
        };
        let what = format!("{version} to be written to pool {pool}");
        let written = cluster.milestone(&what, TIMEOUT, since, is_written).await?;
        let is_done = |event: &Event| {
            matches!(event, Event::WorkersDone { machine_deployment, version: done }
                if machine_deployment == name && done == version)
        };
        let what = format!("all Machines of pool {pool} to be at {version}");
        let done = cluster.milestone(&what, TIMEOUT, since, is_done).await?;
        Ok(Self {
            written: written.revision,
            done: done.revision,
        })
    }
}

/// A Machine whose Node is drained.
struct Machine<'a> {
    cluster: &'a Cluster,
    /// Path of the Machine.
    path: String,
    /// Name of its Node.
    node: String,
}

impl<'a> Machine<'a> {
    async fn of_pool(cluster: &'a Cluster, pool: &str) -> Result<Self> {
        let machine = of_pool(cluster, "machines", pool).await?;
        let name = machine["metadata"]["name"].as_str();
        let node = machine["status"]["nodeRef"]["name"].as_str();
        Ok(Self {
            cluster,
            path: format!(
                "{}/{}",
                path(cluster, "machines"),
                name.context("a Machine without name")?
            ),
            node: node.context("a Machine without Node")?.to_owned(),
        })
    }

    /// Binds two Pods to the Node, one of them with a budget, and waits until they run.
    async fn occupy(&self) -> Result<()> {
        let client = self.cluster.workload()?.api.admin_client();
        apply::namespace(&client, NAMESPACE).await?;
        let budget = json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": GUARDED, "namespace": NAMESPACE},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": GUARDED}}},
        });
        apply::apply_all(&client, &[self.pod(GUARDED), self.pod(BARE), budget]).await?;
        let workload = Objects::of(client);
        wait::until("the status of Pods and budget", TIMEOUT, || async {
            let bare = workload.get(&pod(BARE)).await?.unwrap_or_default();
            let budget = workload.get(BUDGET).await?.unwrap_or_default();
            let status = &budget["status"];
            let protects = status["observedGeneration"] == budget["metadata"]["generation"]
                && status["currentHealthy"] == 1
                && status["disruptionsAllowed"] == 0;
            if protects && bare["status"]["phase"] == "Running" {
                Ok(())
            } else {
                wait::not_yet(format!("Pod {}, budget {status}", bare["status"]))
            }
        })
        .await?;
        Ok(())
    }

    fn pod(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
            "spec": {
                "nodeName": self.node,
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "harness.test/none"}],
            },
        })
    }

    /// Waits until the budget has refused an eviction twice. Meanwhile the Node is cordoned, and the other Pod is lost.
    async fn is_held_by_the_budget(&self) -> Result<()> {
        wait::until("two refused evictions", TIMEOUT, || async {
            match refused_evictions(self.cluster)? {
                count @ 0..2 => wait::not_yet(count),
                _ => Ok(()),
            }
        })
        .await?;
        let (management, workload) = (self.cluster.scene().objects(), self.workload()?);
        wait::until("a cordoned Node that is drained", TIMEOUT, || async {
            let machine = management.get(&self.path).await?.unwrap_or_default();
            let node = workload.get(&self.node()).await?.unwrap_or_default();
            let unschedulable = &node["spec"]["unschedulable"];
            let deleting = condition(&machine, "Deleting");
            let drains = deleting.is_some_and(|deleting| {
                let message = deleting["message"].as_str().unwrap_or_default();
                deleting["status"] == "True"
                    && deleting["reason"] == "DrainingNode"
                    && message.contains("needs 1 healthy pods and has 1")
            });
            if drains && *unschedulable == true {
                Ok(())
            } else {
                wait::not_yet(format!("condition {deleting:?}, unschedulable {unschedulable}"))
            }
        })
        .await?;
        ensure!(
            workload.get(&pod(BARE)).await?.is_none(),
            "the Pod without budget still exists"
        );
        let guarded = workload.get(&pod(GUARDED)).await?;
        let guarded = guarded.context("the Pod with a budget is gone")?;
        ensure!(
            guarded["metadata"]["deletionTimestamp"].is_null(),
            "the Pod with a budget is being deleted: {}",
            guarded["metadata"]
        );
        Ok(())
    }

    /// Changes the budget, and returns a revision after that and before the eviction.
    async fn allow_eviction(&self) -> Result<Revision> {
        let workload = self.workload()?;
        workload
            .merge(BUDGET, &json!({"spec": {"minAvailable": 0}}))
            .await?;
        let budget = workload.get(BUDGET).await?;
        revision(&budget.context("the budget is gone")?)
    }

    /// Fails unless the Machine is gone, with its Node and the Pod.
    async fn is_gone(&self) -> Result<()> {
        let machine = self.cluster.scene().objects().get(&self.path).await?;
        ensure!(machine.is_none(), "the Machine is left: {machine:?}");
        for path in [self.node(), pod(GUARDED)] {
            let left = self.workload()?.get(&path).await?;
            ensure!(left.is_none(), "{path} is left: {left:?}");
        }
        Ok(())
    }

    fn workload(&self) -> Result<Objects> {
        Ok(Objects::of(self.cluster.workload()?.api.admin_client()))
    }

    fn node(&self) -> String {
        format!("/api/v1/nodes/{}", self.node)
    }
}

/// Path of a Pod.
fn pod(name: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}")
}

/// How often an eviction of the Pod was refused because of its budget, by the audit log of the workload API server.
fn refused_evictions(cluster: &Cluster) -> Result<usize> {
    let path = format!("{}/eviction", pod(GUARDED));
    let is_refused = |request: &&Request| {
        request.resource == "pods/eviction" && request.uri.starts_with(&path) && request.code == Some(429)
    };
    let mut log = cluster.workload()?.api.audit();
    Ok(log.requests()?.iter().filter(is_refused).count())
}

/// The path of a kind of Cluster API in the namespace of the Cluster.
fn path(cluster: &Cluster, plural: &str) -> String {
    format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/{plural}",
        cluster.scene().namespace()
    )
}

/// The one object of a kind that belongs to a pool.
async fn of_pool(cluster: &Cluster, plural: &str, pool: &str) -> Result<Value> {
    let path = format!(
        "{}?labelSelector=cluster.x-k8s.io/cluster-name%3D{},topology.cluster.x-k8s.io/deployment-name%3D{pool}",
        path(cluster, plural),
        cluster.name()
    );
    let listed = cluster.scene().objects().get(&path).await?.unwrap_or_default();
    match listed["items"].as_array().map(Vec::as_slice) {
        Some([one]) => Ok(one.clone()),
        _ => bail!("pool {pool} has other than one of {plural}: {}", listed["items"]),
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = object["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == kind)
}
