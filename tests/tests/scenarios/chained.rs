//! Two minors in one bump, each with packages of its own.

use anyhow::{Result, ensure};
use sluice_tests::extension::planner::Planner;
use sluice_tests::objects::{Class, Release};
use sluice_tests::observer::{Event, Revision};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;

use crate::common::release;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "chained",
        "two minors in one bump: each hop waits for the packages made for it, and the workers for both",
        |scene| Box::pin(run(scene)),
    )
    .class(Class {
        kubernetes_versions: VERSIONS.map(str::to_owned).to_vec(),
        ..Class::default()
    })
    // The release of the step between is found by its Kubernetes version: no other of that version may exist.
    .own_stack()
}

pub(crate) fn workers_too() -> Scenario {
    Scenario::new(
        "worker-hops",
        "two minors in one bump by the plan of another extension: each hop of the workers comes after the proof on its control plane, and before the next hop",
        |scene| Box::pin(run_with_planner(scene)),
    )
    .class(Class {
        upgrade_plan: Some(Planner::handler("worker-hops")),
        ..Class::default()
    })
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    Upgrade::start(&scene).await?.workers_follow().await
}

async fn run_with_planner(scene: Scene) -> Result<()> {
    let planner = Planner::start(&scene).await?;
    let hops = worker_hops(&scene).await;
    planner.stop().await?;
    hops
}

async fn worker_hops(scene: &Scene) -> Result<()> {
    let upgrade = Upgrade::start(scene).await?;
    let last = upgrade.control_plane_hops(1).await?;
    let between = upgrade.workers_written(VERSIONS[1]).await?;
    ensure!(
        between < last,
        "workers took the first hop at revision {between}, the control plane the second at {last}"
    );
    let workers = upgrade.workers_written(VERSIONS[2]).await?;
    ensure!(last < workers);
    upgrade.cluster.is_settled(TIMEOUT).await
}

/// A Cluster with a worker on its way over two minors, with packages for each.
pub(crate) struct Upgrade {
    pub(crate) cluster: Cluster,
    pub(crate) releases: [Release; 3],
    /// The revision from before.
    pub(crate) before: Revision,
}

impl Upgrade {
    async fn start(scene: &Scene) -> Result<Self> {
        let releases = [
            release(scene, VERSIONS[0], "1.0.0", Delay::NONE)?,
            release(scene, VERSIONS[1], "2.0.0", Delay::seconds(3))?,
            release(scene, VERSIONS[2], "3.0.0", Delay::seconds(3))?,
        ];
        for release in &releases {
            scene.publish(release).await?;
        }
        let cluster = scene
            .cluster("chain")
            .workers(1)
            .create_settled(&releases[0])
            .await?;
        let before = cluster.upgrade(&releases[2]).await?;
        cluster.says("antrea 2.0.0", TIMEOUT).await?;
        Ok(Self {
            cluster,
            releases,
            before,
        })
    }

    /// Every hop of the control plane comes after the proof of its packages, and the workers after the last one.
    pub(crate) async fn workers_follow(&self) -> Result<()> {
        let last = self.control_plane_hops(0).await?;
        let workers = self.workers_written(VERSIONS[2]).await?;
        ensure!(last < workers);
        self.cluster.is_settled(TIMEOUT).await
    }

    /// Every hop of the control plane comes after the proof of its packages. With `workers`, a hop is waited for that many
    /// times longer, because workers go in between. Returns the revision of the last hop.
    async fn control_plane_hops(&self, workers: u32) -> Result<Revision> {
        let timeout = TIMEOUT * (1 + workers);
        let mut since = self.before;
        for release in &self.releases[1..] {
            let proven = self.cluster.packages_proven(release, since, timeout).await?;
            let written = self
                .cluster
                .control_plane_written(release.kubernetes(), self.before, timeout)
                .await?;
            ensure!(
                proven.revision < written.revision,
                "{} was written at revision {}, its packages had proof only at {}",
                release.kubernetes(),
                written.revision,
                proven.revision
            );
            since = written.revision;
        }
        Ok(since)
    }

    async fn workers_written(&self, wanted: &str) -> Result<Revision> {
        let what = format!("the workers to be written to {wanted}");
        let written =
            |event: &Event| matches!(event, Event::WorkersWritten { version, .. } if version == wanted);
        let milestone = self
            .cluster
            .milestone(&what, TIMEOUT, self.before, written)
            .await?;
        Ok(milestone.revision)
    }
}
