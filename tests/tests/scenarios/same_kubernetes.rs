//! The label names a higher release of the same Kubernetes version: packages are proven first, then machines are replaced.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sluice_tests::extension::admission::unregister;
use sluice_tests::objects::{Class, RESOLVE, RESOLVE_IMAGE, Release, TKR, cluster};
use sluice_tests::observer::{Event, Milestone, Revision};
use sluice_tests::provider::SwapDelay;
use sluice_tests::scenario::verdict::in_order;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS, WatchLog, Written};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::is_completed;
use crate::resolve::{admit, apply_until_accepted, class, image, is_of, machines_are_of, release};

/// Where images can be, and where the record is.
pub(crate) const KINDS: [(&str, &str, &str); 7] = [
    ("run.tanzu.vmware.com", "v1alpha3", "ClusterBootstrap"),
    ("cluster.x-k8s.io", "v1beta2", "Cluster"),
    ("cluster.x-k8s.io", "v1beta2", "MachineDeployment"),
    ("cluster.x-k8s.io", "v1beta2", "Machine"),
    ("harness.test", "v1beta1", "HarnessControlPlane"),
    ("harness.test", "v1beta1", "HarnessMachineTemplate"),
    ("harness.test", "v1beta1", "HarnessMachine"),
];

const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";

/// In this order, whatever is between them.
const PHASES: [&str; 3] = ["UpgradingPackages", "ReplacingMachines", "Completed"];

/// The pools of the Cluster that is resolved, by the distribution of their image.
pub(crate) const POOLS: [&str; 2] = ["ubuntu", "photon"];

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "same-kubernetes",
        "a label of a higher release of the same Kubernetes version: every proof, one change of TKR_DATA, new machines, in this order; a release that the label leaves in mid-hold is never used; without TKR_DATA machines stay",
        |scene| Box::pin(run(scene)),
    )
    .class(Class {
        // The rollout of the control plane takes a while.
        swap_delay: SwapDelay {
            before_milliseconds: 1000,
            after_milliseconds: 1000,
        },
        ..class(None)
    })
}

async fn run(scene: Scene) -> Result<()> {
    let [first, second, third] = [1, 2, 3].map(|build| of_build(&scene, build));
    let (first, second, third) = (first?, second?, third?);
    for release in [&first, &second, &third] {
        scene.publish(release).await?;
    }
    let webhooks = admit(&scene).await?;
    let log = scene.watch(&KINDS).await?;

    let manifest = manifest(&scene, &first);
    apply_until_accepted(&scene, &manifest).await?;
    let one = scene.cluster("one").existing();
    is_of(&one.object().await?, &first, &image(&first, "ubuntu"))?;
    // Its class declares TKR_DATA, and nothing asks for a resolution.
    let plain = scene.cluster("plain").at(&first).workers(1).create().await?;
    for cluster in [&one, &plain] {
        is_installed(cluster, &first).await?;
    }
    pools_are_of(&one, &first).await?;
    let (machines, plain_machines) = (one.machines().await?, plain.machines().await?);

    one.delay("antrea", Delay::Never);
    let of_plain = plain.relabel(&third).await?;
    one.relabel(&second).await?;
    is_held(&one, &first, &second).await?;
    let since = one.relabel(&third).await?;
    is_held(&one, &first, &third).await?;

    // The manifest of the Cluster is applied again: it has no TKR_DATA, and the label of before.
    scene.apply(std::slice::from_ref(&manifest)).await?;
    is_cancelled(&one).await?;
    let again = one.relabel(&third).await?;
    is_held(&one, &first, &third).await?;

    one.delay("antrea", Delay::NONE);
    let swap = Swap {
        from: &first,
        to: &third,
        proven: one.packages_proven(&third, since, TIMEOUT).await?,
        written: is_written(&one, &third, again).await?,
        machines: &machines,
    };
    one.machines_replaced(&third, TIMEOUT).await?;
    one.is_settled(TIMEOUT).await?;
    pools_are_of(&one, &third).await?;
    swap.is_right(&one, again, &log).await?;
    is_nowhere(&second, &log).await?;

    machines_are_kept(&plain, &third, of_plain).await?;
    let after = plain.machines().await?;
    ensure!(
        after == plain_machines,
        "machines without TKR_DATA were replaced: {plain_machines:?} before, {after:?} after"
    );
    for lower in [&first, &second] {
        is_refused(&one, lower).await?;
    }
    unregister(&scene.client(), &webhooks).await
}

/// A release whose packages and images are higher than those of a lower build.
fn of_build(scene: &Scene, build: u32) -> Result<Release> {
    let metrics = scene.package("metrics", &format!("{build}.0.0"));
    Ok(release(scene, VERSIONS[1], build, &POOLS)?.additional(metrics))
}

/// A Cluster with two pools of different images. The label keeps it from a newer release.
pub(crate) fn manifest(scene: &Scene, release: &Release) -> Value {
    let mut manifest = cluster(
        scene.namespace(),
        "one",
        release.kubernetes(),
        Some(&release.name()),
        0,
    );
    manifest["metadata"]["annotations"] = json!({RESOLVE: ""});
    let ubuntu = json!({"annotations": {RESOLVE_IMAGE: "os-name=ubuntu"}});
    let topology = &mut manifest["spec"]["topology"];
    topology["controlPlane"]["metadata"] = ubuntu.clone();
    // The class of the second pool selects its image.
    topology["workers"] = json!({"machineDeployments": [
        {"class": "default", "name": "ubuntu", "replicas": 1, "metadata": ubuntu},
        {"class": "photon", "name": "photon", "replicas": 1},
    ]});
    manifest
}

pub(crate) async fn is_installed(cluster: &Cluster, release: &Release) -> Result<()> {
    cluster.packages_proven(release, 0, TIMEOUT).await?;
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    is_completed(cluster).await
}

async fn pools_are_of(cluster: &Cluster, release: &Release) -> Result<()> {
    for pool in POOLS {
        machines_are_of(cluster, pool, &image(release, pool), 1).await?;
    }
    Ok(())
}

fn labelled(release: &Release) -> Value {
    json!({"metadata": {"labels": {TKR: release.name()}}})
}

/// Waits until the machines of `from` are to be replaced by those of `to`, and nothing but antrea of `to` is waited for.
async fn is_held(cluster: &Cluster, from: &Release, to: &Release) -> Result<()> {
    let what = format!(
        "the machines of {} to wait for antrea of {}",
        cluster.name(),
        to.name()
    );
    let antrea = to.packages().find(|package| package.short() == "antrea");
    let antrea = antrea.context("a release without antrea")?.version();
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let status = &bootstrap["status"];
            let swap = &status["upgrade"]["swap"];
            let packages = &status["upgrade"]["packages"];
            let mut pending = packages
                .as_array()
                .into_iter()
                .flatten()
                .filter(|package| package["state"] != "Ready");
            let waits = pending
                .next()
                .is_some_and(|package| package["name"] == "antrea" && package["version"] == antrea)
                && pending.next().is_none();
            let is_of_both =
                swap["from"] == from.name() && swap["to"] == to.name() && swap["version"] == to.kubernetes();
            let phase = &status["phase"];
            if *phase == PHASES[0] && waits && is_of_both && swap["open"] == false {
                Ok(())
            } else {
                wait::not_yet(format!("phase {phase}, swap {swap}, packages {packages}"))
            }
        })
        .await
}

async fn is_cancelled(cluster: &Cluster) -> Result<()> {
    let what = format!("the upgrade of {} to be cancelled", cluster.name());
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let record = &bootstrap["status"]["upgrade"];
            if record["outcome"] == "Cancelled" {
                Ok(())
            } else {
                wait::not_yet(record)
            }
        })
        .await
}

async fn is_written(cluster: &Cluster, to: &Release, since: Revision) -> Result<Milestone> {
    let name = to.name();
    let what = format!("TKR_DATA of {} to name {name}", cluster.name());
    let is_of =
        |event: &Event| matches!(event, Event::ReleaseDataWritten { release, .. } if *release == name);
    cluster.milestone(&what, TIMEOUT, since, is_of).await
}

/// What became of the machines of one Cluster.
struct Swap<'a> {
    from: &'a Release,
    to: &'a Release,
    /// The last proof of a package.
    proven: Milestone,
    /// The change of `TKR_DATA`.
    written: Milestone,
    /// Machines from before.
    machines: &'a BTreeSet<String>,
}

impl Swap<'_> {
    /// Fails unless the order of all writes since the label was moved at last is right.
    async fn is_right(&self, cluster: &Cluster, since: Revision, log: &WatchLog) -> Result<()> {
        let writes = log.writes().await?;
        let of = |kind: &'static str| {
            let of_cluster = move |write: &&Written| {
                let label = &write.object["metadata"]["labels"][CLUSTER_NAME];
                write.kind == kind && (write.name == cluster.name() || *label == cluster.name())
            };
            writes.iter().filter(of_cluster)
        };
        let records: Vec<&Written> = of("ClusterBootstrap").collect();
        let new_machine = of("Machine").find(|machine| !self.machines.contains(&machine.name));
        in_order(&[
            ("the label", since),
            ("the last proof", self.proven.revision),
            ("the record that allows the change", self.opened(&records)?),
            ("the change of TKR_DATA", self.written.revision),
            (
                "the first new Machine",
                new_machine.context("no new Machine")?.revision,
            ),
        ])?;
        self.is_one_change(&of("Cluster").collect::<Vec<_>>())?;
        self.control_plane_rolled(&of("HarnessControlPlane").collect::<Vec<_>>())?;
        phases_are_right(&records, since)?;
        let left = cluster.machines().await?;
        ensure!(
            left.is_disjoint(self.machines),
            "machines of before are left: {:?} before, {left:?} after",
            self.machines
        );
        self.is_in_the_history(cluster).await
    }

    /// The record that allows the change first. None allows one to another release.
    fn opened(&self, records: &[&Written]) -> Result<Revision> {
        let swaps = records
            .iter()
            .map(|record| (record.revision, &record.object["status"]["upgrade"]["swap"]));
        let mut open = swaps.filter(|(_, swap)| swap["open"] == true).peekable();
        let (revision, _) = *open.peek().context("no record allows the change of TKR_DATA")?;
        for (revision, swap) in open {
            ensure!(
                swap["to"] == self.to.name(),
                "the record of revision {revision} allows {swap}"
            );
        }
        Ok(revision)
    }

    /// `TKR_DATA` of Cluster and pools had two values: that of the creation, and that of the swap.
    fn is_one_change(&self, clusters: &[&Written]) -> Result<()> {
        let mut values: Vec<(Revision, Value)> = clusters
            .iter()
            .map(|cluster| (cluster.revision, release_data(&cluster.object)))
            .collect();
        values.dedup_by(|later, earlier| later.1 == earlier.1);
        match values.as_slice() {
            [_, (revision, _)] if *revision == self.written.revision => Ok(()),
            _ => bail!(
                "TKR_DATA was written once, at revision {}, but had the values {values:#?}",
                self.written.revision
            ),
        }
    }

    fn control_plane_rolled(&self, planes: &[&Written]) -> Result<()> {
        let wanted = image(self.to, "ubuntu");
        let rolled = planes.iter().any(|plane| {
            let (spec, status) = (&plane.object["spec"], &plane.object["status"]);
            spec["image"] == wanted.as_str() && status["upToDateReplicas"] == 0
        });
        ensure!(rolled, "the control plane was not seen to roll");
        let last = planes.last().context("no control plane")?;
        let status = &last.object["status"];
        ensure!(
            status["image"] == wanted.as_str() && status["upToDateReplicas"] == 1,
            "the control plane is {status}"
        );
        Ok(())
    }

    async fn is_in_the_history(&self, cluster: &Cluster) -> Result<()> {
        let bootstrap = cluster.bootstrap().await?;
        let last = &bootstrap["status"]["history"][0];
        let version = self.to.kubernetes();
        ensure!(
            last["fromRelease"] == self.from.name()
                && last["toRelease"] == self.to.name()
                && last["from"] == version
                && last["to"] == version
                && last["outcome"] == "Completed",
            "status.history begins with {last}"
        );
        Ok(())
    }
}

/// `TKR_DATA` of the Cluster, and of each pool.
pub(crate) fn release_data(cluster: &Value) -> Value {
    let topology = &cluster["spec"]["topology"];
    let of = |variables: &Value| {
        let mut named = variables.as_array().into_iter().flatten();
        let found = named.find(|variable| variable["name"] == "TKR_DATA");
        found.map_or(Value::Null, |variable| variable["value"].clone())
    };
    let pools = topology["workers"]["machineDeployments"].as_array();
    let pools = pools
        .into_iter()
        .flatten()
        .map(|pool| of(&pool["variables"]["overrides"]));
    [of(&topology["variables"])].into_iter().chain(pools).collect()
}

fn phases_are_right(records: &[&Written], since: Revision) -> Result<()> {
    let mut phases: Vec<&Value> = records
        .iter()
        .filter(|record| record.revision > since)
        .map(|record| &record.object["status"]["phase"])
        .collect();
    phases.dedup();
    let mut seen = phases.iter();
    for wanted in PHASES {
        ensure!(
            seen.any(|phase| **phase == wanted),
            "{wanted} is not among {phases:?}, or not in its order"
        );
    }
    Ok(())
}

/// Fails if an image of a release is named by anything that machines are made of.
async fn is_nowhere(release: &Release, log: &WatchLog) -> Result<()> {
    let images = image(release, "");
    for write in log.writes().await? {
        let names = write.object["spec"].to_string().contains(&images);
        ensure!(
            write.kind == "ClusterBootstrap" || !names,
            "{} {} has an image of {} at revision {}",
            write.kind,
            write.name,
            release.name(),
            write.revision
        );
    }
    Ok(())
}

/// Waits until the packages of a release are proven in a Cluster whose machines stay, and its record says so.
async fn machines_are_kept(cluster: &Cluster, release: &Release, since: Revision) -> Result<()> {
    cluster.packages_proven(release, since, TIMEOUT).await?;
    let what = format!("the record of {} to say that machines stay", cluster.name());
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let record = &bootstrap["status"]["upgrade"];
            let swap = &record["swap"];
            let says = swap["message"].as_str().is_some_and(|text| !text.is_empty());
            if swap["reason"] == "MachinesKept" && says && record["outcome"] == "Completed" {
                Ok(())
            } else {
                wait::not_yet(record)
            }
        })
        .await
}

/// The label of a release that is lower than that of the machines is refused.
async fn is_refused(cluster: &Cluster, lower: &Release) -> Result<()> {
    match cluster.try_patch(&labelled(lower)).await {
        Ok(()) => bail!("the label of {} is admitted", lower.name()),
        Err(error) => {
            let error = format!("{error:#}");
            ensure!(
                error.contains(&lower.name()) && error.contains(TKR),
                "{} is refused with {error:?}",
                lower.name()
            );
            Ok(())
        }
    }
}
