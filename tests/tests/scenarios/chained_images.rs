//! Two minors in one bump of a Cluster whose class needs an entry of `TKR_DATA` for each of them: without one, its patches fail.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::extension::admission::unregister;
use sluice_tests::extension::planner::Planner;
use sluice_tests::objects::{Class, Release, TKR};
use sluice_tests::scenario::verdict::in_order;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS, WatchLog, Written};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{is_completed, proven_before_written};
use crate::resolve::{admit, apply_until_accepted, class, image, is_of, machines_are_of, release};
use crate::same_kubernetes::{KINDS, POOLS, is_installed, manifest, release_data};

/// Version of the upgrade after the one over two minors. It stays held, so there is no API server of it.
const LATER: &str = "v1.36.4";

/// Version of an entry that no machine has ever run.
const UNUSED: &str = "v1.33.13";

/// Keeps Cluster API from writing another version to a pool.
const DEFER: &str = "topology.cluster.x-k8s.io/defer-upgrade";

/// Without it, Cluster API refuses another version while a pool is deferred.
const UNCHECKED: &str = "unsafe.topology.cluster.x-k8s.io/disable-update-version-check";

const DEPLOYMENT_NAME: &str = "topology.cluster.x-k8s.io/deployment-name";

pub(crate) fn listed() -> Scenario {
    Scenario::new(
        "chained-images",
        "two minors in one bump by versions of the class: the entry of each step comes before its first gate opens, and each part is replaced once per version; the next bump removes an unused entry, but not that of a deferred pool",
        |scene| Box::pin(run(scene)),
    )
    .class(Class {
        kubernetes_versions: versions().map(str::to_owned).to_vec(),
        ..class(None)
    })
    // The newest release of the step between is taken: others would be newer.
    .own_stack()
}

pub(crate) fn planned() -> Scenario {
    Scenario::new(
        "chained-images-planned",
        "the same by the plan of another extension, with pools that take each version; the next bump removes the entries of both earlier versions",
        |scene| Box::pin(run_with_planner(scene)),
    )
    .class(Class {
        upgrade_plan: Some(Planner::handler("chained-images-planned")),
        ..class(None)
    })
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let upgrade = Upgrade::start(&scene, &json!({DEFER: ""})).await?;
    upgrade.control_plane_hops().await?;
    let Upgrade { one, releases, .. } = &upgrade;
    machines_are_of(one, POOLS[0], &image(&releases[2], POOLS[0]), 1).await?;
    is_rolled_out(one).await?;
    add_unused(one).await?;
    upgrade
        .next_bump(&[VERSIONS[0], VERSIONS[2], LATER], &[UNUSED])
        .await?;
    upgrade.rolls_are_right([&[0, 2], &[0]]).await?;
    unregister(&scene.client(), &upgrade.webhooks).await
}

async fn run_with_planner(scene: Scene) -> Result<()> {
    let planner = Planner::start(&scene).await?;
    let hops = worker_hops(&scene).await;
    planner.stop().await?;
    hops
}

async fn worker_hops(scene: &Scene) -> Result<()> {
    let upgrade = Upgrade::start(scene, &json!({})).await?;
    upgrade.control_plane_hops().await?;
    is_completed(&upgrade.one).await?;
    upgrade.one.is_settled(TIMEOUT).await?;
    upgrade
        .next_bump(&[VERSIONS[2], LATER], &[VERSIONS[0], VERSIONS[1]])
        .await?;
    upgrade.rolls_are_right([&[0, 1, 2], &[0, 1, 2]]).await?;
    unregister(&scene.client(), &upgrade.webhooks).await
}

fn versions() -> [&'static str; 4] {
    let [first, second, third] = VERSIONS;
    [first, second, third, LATER]
}

/// A Cluster with two pools of different images on its way over two minors, with packages and images for each.
struct Upgrade {
    one: Cluster,
    releases: [Release; 4],
    webhooks: String,
    log: WatchLog,
}

impl Upgrade {
    /// With annotations of the last pool.
    async fn start(scene: &Scene, annotations: &Value) -> Result<Self> {
        let releases = [
            release(scene, VERSIONS[0], 1, &POOLS)?,
            release(scene, VERSIONS[1], 2, &POOLS)?,
            release(scene, VERSIONS[2], 3, &POOLS)?,
            release(scene, LATER, 4, &POOLS)?,
        ];
        for release in &releases {
            scene.publish(release).await?;
        }
        let webhooks = admit(scene).await?;
        let log = scene.watch(&KINDS).await?;
        let first = &releases[0];
        let mut manifest = manifest(scene, first);
        let pools = &mut manifest["spec"]["topology"]["workers"]["machineDeployments"];
        pools[1]["metadata"] = json!({"annotations": annotations});
        apply_until_accepted(scene, &manifest).await?;
        let one = scene.cluster("one").existing();
        is_of(&one.object().await?, first, &image(first, POOLS[0]))?;
        is_installed(&one, first).await?;
        Ok(Self {
            one,
            releases,
            webhooks,
            log,
        })
    }

    /// Upgrades over two minors. Every hop of the control plane comes after the proof of its packages.
    async fn control_plane_hops(&self) -> Result<()> {
        let mut since = self.one.upgrade(&self.releases[2]).await?;
        for release in &self.releases[1..=2] {
            since = proven_before_written(&self.one, release, since).await?.revision;
        }
        Ok(())
    }

    /// Upgrades to the last release, whose antrea never gets ready. This leaves the entries of some versions and removes others.
    async fn next_bump(&self, left: &[&str], removed: &[&str]) -> Result<()> {
        let before = release_data(&self.one.object().await?);
        for version in removed {
            ensure!(
                before[0][*version].is_object(),
                "no entry for {version} before the bump: {before}"
            );
        }
        self.one.delay("antrea", Delay::Never);
        let since = self.one.upgrade(&self.releases[3]).await?;
        let after = release_data(&self.one.object().await?);
        let lists = after.as_array().into_iter().flatten();
        for entries in lists.filter(|entries| !entries.is_null()) {
            let is_right = left.iter().all(|version| entries[*version].is_object())
                && removed.iter().all(|version| entries[*version].is_null());
            ensure!(
                is_right,
                "the entries of {left:?} were to be left, and those of {removed:?} to be removed: {after}"
            );
        }
        // The patches of the class still have all entries that they need.
        self.one.says("antrea 4.0.0", TIMEOUT).await?;
        self.one.control_plane_is_untouched(since).await
    }

    /// The control plane took each version, and the pools took the versions with these indexes: once, and with the image of its release.
    async fn rolls_are_right(&self, pools: [&[usize]; 2]) -> Result<()> {
        let writes = self.log.writes().await?;
        for release in &self.releases[1..=2] {
            entry_came_first(release, &writes)?;
        }
        no_patch_failed(&writes)?;
        let wanted = self.made_of(&[0, 1, 2], POOLS[0]);
        let took = control_plane_took(&writes);
        ensure!(took == wanted, "the control plane took {took:?}, not {wanted:?}");
        for (pool, indexes) in POOLS.into_iter().zip(pools) {
            let wanted = self.made_of(indexes, pool);
            let took = pool_took(pool, &writes);
            ensure!(took == wanted, "pool {pool} took {took:?}, not {wanted:?}");
        }
        Ok(())
    }

    fn made_of(&self, indexes: &[usize], distribution: &str) -> Vec<(String, String)> {
        let releases = indexes.iter().map(|index| &self.releases[*index]);
        releases
            .map(|release| (release.kubernetes().to_owned(), image(release, distribution)))
            .collect()
    }
}

/// Waits until each pool reports only machines of its version: until then all entries stay.
async fn is_rolled_out(cluster: &Cluster) -> Result<()> {
    let scene = cluster.scene();
    let path = format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machinedeployments",
        scene.namespace()
    );
    let what = format!("{} pools to be rolled out", POOLS.len());
    wait::until(what, TIMEOUT, || async {
        let listed = scene.objects().get(&path).await?;
        let listed = listed.context("no MachineDeployments are served")?;
        let mut pools = listed["items"].as_array().into_iter().flatten();
        match pools.find(|pool| !has_one_version(pool)) {
            None => Ok(()),
            Some(pool) => wait::not_yet(format!("{}", pool["status"])),
        }
    })
    .await?;
    Ok(())
}

fn has_one_version(pool: &Value) -> bool {
    let (spec, status) = (&pool["spec"], &pool["status"]);
    let versions = json!([{"version": spec["template"]["spec"]["version"], "replicas": spec["replicas"]}]);
    status["versions"] == versions
        && status["upToDateReplicas"] == spec["replicas"]
        && status["deprecated"]["v1beta1"]["updatedReplicas"] == spec["replicas"]
        && status["replicas"] == spec["replicas"]
}

/// Adds an entry that nothing needs, and has Cluster API accept another version while a pool is deferred.
async fn add_unused(cluster: &Cluster) -> Result<()> {
    let mut entries = release_data(&cluster.object().await?)[0].take();
    entries[UNUSED] = json!({
        "osImageRef": {"name": "unused"},
        "labels": {TKR: format!("{UNUSED}---unused.1")},
    });
    let variables = json!([{"name": "TKR_DATA", "value": entries}]);
    let patch = json!({
        "metadata": {"annotations": {UNCHECKED: ""}},
        "spec": {"topology": {"variables": variables}},
    });
    cluster.patch(&patch).await?;
    Ok(())
}

/// Fails unless the Cluster had the entry of a hop before the first gate of the hop opened, and that was before the write of the control
/// plane.
fn entry_came_first(release: &Release, writes: &[Written]) -> Result<()> {
    let (version, name) = (release.kubernetes(), release.name());
    let first = |what: &'static str, kind: &str, is_it: &dyn Fn(&Value) -> bool| {
        let mut of_kind = writes.iter().filter(|write| write.kind == kind);
        let found = of_kind.find(|write| is_it(&write.object));
        let found = found.with_context(|| format!("{version}: no {kind} has {what}"))?;
        anyhow::Ok((what, found.revision))
    };
    in_order(&[
        first("the entry of the release", "Cluster", &|cluster| {
            release_data(cluster)[0][version]["labels"][TKR] == name
        })?,
        first("an open gate", "ClusterBootstrap", &|bootstrap| {
            has_open_gate(bootstrap, version)
        })?,
        first("the version", "HarnessControlPlane", &|plane| {
            plane["spec"]["version"] == version
        })?,
    ])
}

fn has_open_gate(bootstrap: &Value, version: &str) -> bool {
    let gates = bootstrap["status"]["upgrade"]["gates"].as_array();
    let mut gates = gates.into_iter().flatten();
    gates.any(|gate| gate["version"] == version && gate["open"] == true)
}

/// Fails if Cluster API has ever computed a topology without an entry that its class needs.
fn no_patch_failed(writes: &[Written]) -> Result<()> {
    for cluster in writes.iter().filter(|write| write.kind == "Cluster") {
        let status = cluster.object["status"].to_string();
        ensure!(
            !status.contains("failed to apply patches"),
            "at revision {}: {status}",
            cluster.revision
        );
    }
    Ok(())
}

/// Versions of the control plane with their images, in order.
fn control_plane_took(writes: &[Written]) -> Vec<(String, String)> {
    let planes = writes.iter().filter(|write| write.kind == "HarnessControlPlane");
    let mut took: Vec<(String, String)> = planes
        .map(|plane| {
            let spec = &plane.object["spec"];
            (text(&spec["version"]), text(&spec["image"]))
        })
        .collect();
    took.dedup();
    took
}

/// Versions of a pool with the images of their templates, in order. Another template with the same image is another one.
fn pool_took(pool: &str, writes: &[Written]) -> Vec<(String, String)> {
    let templates = writes
        .iter()
        .filter(|write| write.kind == "HarnessMachineTemplate");
    let images: BTreeMap<&str, String> = templates
        .map(|template| {
            let image = text(&template.object["spec"]["template"]["spec"]["image"]);
            (template.name.as_str(), image)
        })
        .collect();
    let of_pool = |write: &&Written| {
        write.kind == "MachineDeployment" && write.object["metadata"]["labels"][DEPLOYMENT_NAME] == pool
    };
    let mut took: Vec<(String, String)> = writes
        .iter()
        .filter(of_pool)
        .map(|deployment| {
            let spec = &deployment.object["spec"]["template"]["spec"];
            (text(&spec["version"]), text(&spec["infrastructureRef"]["name"]))
        })
        .collect();
    took.dedup();
    took.into_iter()
        .map(|(version, template)| {
            let image = images.get(template.as_str()).cloned().unwrap_or_default();
            (version, image)
        })
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
