//! A Cluster on a Supervisor: its packages place their pods on Nodes of one release.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_tests::extension::admission::unregister;
use sluice_tests::objects::packages::{NAMESPACE, TestPackage};
use sluice_tests::objects::{
    Class, Images, Infrastructure, RESOLVE, Release, TKR, Values, cluster, definition,
};
use sluice_tests::observer::{Event, Revision};
use sluice_tests::requests::apply;
use sluice_tests::scenario::verdict::{in_order, none_between, pods_stay};
use sluice_tests::scenario::{Cluster, Objects, Scenario, Scene, TIMEOUT, VERSIONS, WatchLog};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use super::left::{self, Installed};
use crate::at_rest::{checks_as_before, checks_often, costs_no_more};
use crate::common::{is_completed, record_says};
use crate::resolve::{admit, apply_until_accepted, image};
use crate::same_kubernetes::is_installed;

const GROUP: &str = "vmoperator.vmware.com";

/// Not the version that the addons-manager asked for: Sluice discovers it.
const VERSION: &str = "v1alpha3";

/// The package whose pods are placed by its values.
const AGENT: &str = "agent";

const BOOTSTRAP: (&str, &str, &str) = ("run.tanzu.vmware.com", "v1alpha3", "ClusterBootstrap");

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "supervisor",
        "a Cluster of the addons-manager on a Supervisor keeps its PackageInstalls, Apps and values; over two minors each hop selects Nodes of its release, gates open once packages are applied, pods of an OnDelete DaemonSet stay until their Machines go, and the upgrade completes once all are reconciled",
        |scene| Box::pin(run(scene)),
    )
    .class(Class {
        infrastructure: Infrastructure::VSphere,
        images: Some(Images {
            node_labels: true,
            ..Images::default()
        }),
        kubernetes_versions: VERSIONS.map(str::to_owned).to_vec(),
        daemon_sets: true,
        ..Class::default()
    })
    // The release of the step between is found by its Kubernetes version, too.
    .audited()
}

async fn run(scene: Scene) -> Result<()> {
    checks_often(&scene).await?;
    let outcome = taken_over_and_upgraded(&scene).await;
    // Other scenarios of the stack need it.
    let restarted = checks_as_before(&scene).await;
    outcome.and(restarted)
}

async fn taken_over_and_upgraded(scene: &Scene) -> Result<()> {
    apply::apply_crds(&scene.client(), &[virtual_machines()]).await?;
    let machine = virtual_machine(scene, "one");
    scene.apply(std::slice::from_ref(&machine)).await?;
    let releases = [
        release(scene, VERSIONS[0], 1)?,
        release(scene, VERSIONS[1], 2)?,
        release(scene, VERSIONS[2], 3)?,
    ];
    for release in &releases {
        scene.publish(release).await?;
    }
    let webhooks = admit(scene).await?;
    let (one, other) = tokio::try_join!(
        create(scene, "one", &releases[0]),
        create(scene, "other", &releases[0]),
    )?;
    let (placed, strategy) = (selected(&one).await?, update_strategy(&one).await?);
    ensure!(
        placed == Some(releases[0].name()) && strategy == "OnDelete",
        "the pods of one are placed on {placed:?}, with update strategy {strategy}"
    );
    let (placed, strategy) = (selected(&other).await?, update_strategy(&other).await?);
    ensure!(
        placed.is_none() && strategy == "RollingUpdate",
        "other is on no Supervisor: its pods are placed on {placed:?}, with update strategy {strategy}"
    );

    // Without Sluice the API server refuses what it would have reviewed.
    unregister(&scene.client(), &webhooks).await?;
    taken_over(&one, &releases[0]).await?;
    let webhooks = admit(scene).await?;

    // What Sluice has found stays.
    scene.objects().delete(&path_of(&machine)).await?;
    upgraded(&one, &releases).await?;
    let settled = Timestamp::now();
    costs_no_more(&one, &other).await?;
    let asked = one.requests()?.of_resource("virtualmachines", settled)?;
    ensure!(
        asked == 0,
        "Sluice asked {asked} times for VirtualMachines of a known Supervisor"
    );
    unregister(&scene.client(), &webhooks).await
}

/// The definition of VirtualMachines, which take anything.
fn virtual_machines() -> Value {
    definition::open(GROUP, "VirtualMachine", VERSION, &json!({"status": {}}))
}

/// A machine of a Cluster, as CAPV has it made on a Supervisor.
fn virtual_machine(scene: &Scene, cluster: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "VirtualMachine",
        "metadata": {
            "name": format!("{cluster}-control-plane-0"),
            "namespace": scene.namespace(),
            "labels": {"capv.vmware.com/cluster.name": cluster},
        },
        "spec": {"className": "best-effort-small"},
    })
}

fn path_of(machine: &Value) -> String {
    let text = |field: &str| machine["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!(
        "/apis/{GROUP}/{VERSION}/namespaces/{}/virtualmachines/{}",
        text("namespace"),
        text("name")
    )
}

/// A release whose agent places its pods by values, and whose packages say that they take these.
fn release(scene: &Scene, kubernetes: &str, build: u32) -> Result<Release> {
    let version = format!("{build}.0.0");
    let agent = scene
        .package(AGENT, &version)
        .placed_by_values()
        .takes_placement(AGENT);
    let antrea = scene.slow_package("antrea", &version, Delay::NONE);
    let release = Release::new(
        kubernetes,
        format!("{}.{build}", scene.namespace()),
        scene.kapp_controller(&version)?.takes_placement("kappController"),
        antrea.takes_placement("antrea"),
    )
    .additional(agent)
    .values(AGENT, Values::Inline(json!({AGENT: {"level": "info"}})));
    let name = image(&release, "ubuntu");
    Ok(release.image(name, "ubuntu"))
}

/// A Cluster with two workers, whose machines are made of the image of its release.
async fn create(scene: &Scene, name: &str, release: &Release) -> Result<Cluster> {
    let tkr = release.name();
    let mut manifest = cluster(scene.namespace(), name, release.kubernetes(), Some(&tkr), 2);
    manifest["metadata"]["annotations"] = json!({RESOLVE: ""});
    apply_until_accepted(scene, &manifest).await?;
    let cluster = scene.cluster(name).existing();
    is_installed(&cluster, release).await?;
    Ok(cluster)
}

/// Makes the Cluster one of the addons-manager, which Sluice takes over without a change of PackageInstalls, Apps and values.
async fn taken_over(one: &Cluster, release: &Release) -> Result<()> {
    let extension = one.scene().world().extension()?;
    extension.kill().await?;
    left::on_a_supervisor(one, release).await?;
    let before = contents(one, release).await?;
    extension.free_lease().await?;
    extension.restart().await?;
    left::nothing_is_left(one, TIMEOUT).await?;
    for package in release.packages() {
        record_says(one, package.short(), "Ready").await?;
    }
    is_completed(one).await?;
    let answer = one.bootstrap().await?["status"]["upgrade"]["supervisor"].take();
    ensure!(
        answer["found"] == true,
        "Sluice says about a Supervisor: {answer}"
    );
    let after = contents(one, release).await?;
    ensure!(
        before == after,
        "what the addons-manager has installed was written:\n{before:#?}\n{after:#?}"
    );
    Ok(())
}

/// UIDs, generations and specs of PackageInstalls and Apps, and UIDs and contents of values Secrets.
async fn contents(cluster: &Cluster, release: &Release) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for package in release.packages() {
        let installed = Installed::of(cluster, package)?;
        all.push(json!([
            installed.identity().await?,
            installed.fixed_secret().await?
        ]));
    }
    Ok(all)
}

/// Upgrades the Cluster over two minors.
async fn upgraded(one: &Cluster, releases: &[Release; 3]) -> Result<()> {
    let [_, between, last] = releases;
    let log = one.scene().watch(&[BOOTSTRAP]).await?;
    let first = Daemons::of_all_nodes(one).await?;
    let before = one.upgrade(last).await?;
    for hop in [between, last] {
        one.control_plane_written(hop.kubernetes(), before, 2 * TIMEOUT)
            .await?;
        selects(one, hop).await?;
        first.stay(one).await?;
    }
    let what = format!("{} to be written to the workers", last.kubernetes());
    let is_last = |event: &Event| matches!(event, Event::WorkersWritten { version, .. } if version == last.kubernetes());
    let workers = one.milestone(&what, 2 * TIMEOUT, before, is_last).await?;
    // Without its pods on new Nodes the agent is applied, and no more.
    for release in [between, last] {
        let agent = agent(release)?;
        let is_proven = |event: &Event| {
            matches!(event, Event::PackageProven { ref_name, version }
                if ref_name == agent.ref_name() && version == agent.version())
        };
        none_between(&one.milestones(), (before, workers.revision), is_proven)?;
    }

    is_completed_with(one, &first, last).await?;
    let proven = one.package_proven(agent(last)?, before, TIMEOUT).await?;
    in_order(&[
        ("the version of the workers", workers.revision),
        ("the proof of the agent", proven.revision),
        ("the end of the upgrade", completed(&log, last, before).await?),
    ])?;
    one.is_settled(TIMEOUT).await?;
    Daemons::of_all_nodes(one).await?.are_of(last)
}

fn agent(release: &Release) -> Result<&TestPackage> {
    let found = release.packages().find(|package| package.short() == AGENT);
    found.context("a release without the agent")
}

/// Waits until the upgrade is completed. Meanwhile no pod of an old Node goes before its Node.
async fn is_completed_with(one: &Cluster, first: &Daemons, last: &Release) -> Result<()> {
    let what = format!(
        "the upgrade of {} to {} to complete",
        one.name(),
        last.kubernetes()
    );
    wait::until(what, 4 * TIMEOUT, || async {
        if let Err(error) = first.stay_with_their_nodes(&Daemons::of(one).await?) {
            return wait::never(format!("{error:#}"));
        }
        let bootstrap = one.bootstrap().await?;
        if is_complete(&bootstrap, last) {
            Ok(())
        } else {
            wait::not_yet(&bootstrap["status"]["upgrade"])
        }
    })
    .await?;
    Ok(())
}

fn is_complete(bootstrap: &Value, last: &Release) -> bool {
    let record = &bootstrap["status"]["upgrade"];
    record["to"] == last.kubernetes() && record["outcome"] == "Completed"
}

/// Revision of the first record that says that the upgrade is complete.
async fn completed(log: &WatchLog, last: &Release, since: Revision) -> Result<Revision> {
    let writes = log.writes().await?;
    let mut records = writes
        .iter()
        .filter(|write| write.name == "one" && write.revision > since);
    let found = records.find(|write| is_complete(&write.object, last));
    Ok(found
        .context("no record says that the upgrade is complete")?
        .revision)
}

/// An object of the agent in the workload cluster.
async fn deployed(cluster: &Cluster, plural: &str) -> Result<Value> {
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/{plural}/{AGENT}");
    let objects = Objects::of(cluster.workload()?.api.admin_client());
    let found = objects.get(&path).await?;
    found.with_context(|| format!("{path} does not exist"))
}

/// The release whose Nodes the Deployment selects.
async fn selected(cluster: &Cluster) -> Result<Option<String>> {
    let deployment = deployed(cluster, "deployments").await?;
    let selector = &deployment["spec"]["template"]["spec"]["nodeSelector"];
    Ok(selector[TKR].as_str().map(str::to_owned))
}

async fn update_strategy(cluster: &Cluster) -> Result<Value> {
    let mut daemon_set = deployed(cluster, "daemonsets").await?;
    Ok(daemon_set["spec"]["updateStrategy"]["type"].take())
}

/// Waits until the Deployment selects Nodes of the release, as it did before the version was written: its API server is being replaced.
async fn selects(one: &Cluster, release: &Release) -> Result<()> {
    let what = format!("the agent to be on Nodes of {}", release.name());
    wait::until(what, TIMEOUT, || async {
        match selected(one).await? {
            Some(selected) if selected == release.name() => Ok(()),
            // It would have to change after the write.
            other => wait::never(format!("the agent selects Nodes of {other:?}")),
        }
    })
    .await?;
    Ok(())
}

/// Pods of the DaemonSet of the agent.
#[derive(Debug, PartialEq, Eq)]
struct Daemons {
    /// UID and version of the package, by Node.
    pods: BTreeMap<String, (String, String)>,
    /// Listed after the pods: what is here has had its pod.
    nodes: BTreeSet<String>,
}

impl Daemons {
    async fn of(cluster: &Cluster) -> Result<Self> {
        let objects = Objects::of(cluster.workload()?.api.admin_client());
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{AGENT}");
        let pods = objects.get(&pods).await?.context("no Pods are served")?;
        let nodes = objects
            .get("/api/v1/nodes")
            .await?
            .context("no Nodes are served")?;
        let items = |list: &Value| list["items"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pods = items(&pods);
        let bound = pods.iter().filter(|pod| {
            pod["spec"]["nodeName"].is_string() && pod["metadata"]["deletionTimestamp"].is_null()
        });
        Ok(Self {
            pods: bound
                .map(|pod| {
                    let metadata = &pod["metadata"];
                    let version = text(&metadata["annotations"]["harness.test/version"]);
                    (text(&pod["spec"]["nodeName"]), (text(&metadata["uid"]), version))
                })
                .collect(),
            nodes: items(&nodes)
                .iter()
                .map(|node| text(&node["metadata"]["name"]))
                .collect(),
        })
    }

    /// Waits until each Node has a pod: that of the control plane, and those of two workers.
    async fn of_all_nodes(cluster: &Cluster) -> Result<Self> {
        let what = format!("each Node of {} to have a pod of the agent", cluster.name());
        let found = wait::until(what, TIMEOUT, || async {
            let daemons = Self::of(cluster).await?;
            let has_pod = |node: &String| daemons.pods.contains_key(node);
            if daemons.nodes.len() == 3 && daemons.nodes.iter().all(has_pod) {
                Ok(daemons)
            } else {
                wait::not_yet(format!("{daemons:?}"))
            }
        })
        .await?;
        Ok(found)
    }

    /// All pods on Nodes are of this release.
    fn are_of(&self, release: &Release) -> Result<()> {
        let version = agent(release)?.version();
        let mut on_nodes = self.pods.iter().filter(|(node, _)| self.nodes.contains(*node));
        let other = on_nodes.find(|(_, (_, found))| found != version);
        ensure!(other.is_none(), "a pod is not of {version}: {other:?}");
        Ok(())
    }

    /// Fails if a Node of before is still there without its pod of before.
    fn stay_with_their_nodes(&self, now: &Self) -> Result<()> {
        pods_stay(&self.pods, &now.pods, &now.nodes)
    }

    /// The same for the present pods, as soon as the API server answers.
    async fn stay(&self, one: &Cluster) -> Result<()> {
        let what = format!("the Pods of {} to be listed", one.name());
        let now = wait::until(what, TIMEOUT, || async {
            Self::of(one).await.map_err(Into::into)
        });
        self.stay_with_their_nodes(&now.await?)
    }
}
