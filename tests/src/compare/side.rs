//! One flow with its management cluster, and its Clusters.

use std::fmt;
use std::sync::Arc;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::counts;
use super::stand_in::{StandIn, Unpause};
use crate::extension::Scope;
use crate::objects::{Class, Infrastructure, Release, Values};
use crate::processes::canary;
use crate::scenario::{Cluster, Hooks, Scene, TIMEOUT, VERSIONS, World};
use crate::stack::Options;
use crate::stack::kubelet::Delay;

/// Namespace of the Clusters.
const NAMESPACE: &str = "compare";

/// Packages whose Deployment takes the delay until it is ready. The fourth one, kapp-controller, replaces nothing that runs.
pub(super) const DELAYED: [&str; 3] = ["antrea", "metrics-server", "secretgen-controller"];

/// Flow that upgrades packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flow {
    /// The pause flow.
    Pause,
    /// Sluice.
    Sluice,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pause => "pause flow",
            Self::Sluice => "Sluice",
        })
    }
}

/// A flow, ready to upgrade Clusters.
pub struct Side {
    flow: Flow,
    scene: Scene,
    releases: Vec<Release>,
    stand_in: Option<StandIn>,
}

impl Side {
    /// A management cluster with Sluice.
    pub async fn sluice() -> Result<Self> {
        Self::start(Flow::Sluice, &Hooks::AskedAbout(Scope::Everywhere), None).await
    }

    /// A management cluster with the pause flow.
    pub async fn pause_flow(unpause: Unpause) -> Result<Self> {
        Self::start(Flow::Pause, &Hooks::Absent, Some(unpause)).await
    }

    async fn start(flow: Flow, hooks: &Hooks, unpause: Option<Unpause>) -> Result<Self> {
        let options = Options::new(format!("compare-{flow:?}").to_lowercase()).audited(counts::audited());
        let world = World::start_with(options, hooks).await?;
        let class = Class {
            infrastructure: Infrastructure::Docker,
            ..Class::default()
        };
        let scene = Scene::open(&world, NAMESPACE, &class).await?;
        let releases = releases(&scene)?;
        for release in &releases {
            scene.publish(release).await?;
        }
        let stand_in = match unpause {
            Some(unpause) => Some(StandIn::start(world.stack(), unpause).await?),
            None => None,
        };
        Ok(Self {
            flow,
            scene,
            releases,
            stand_in,
        })
    }

    /// Which flow it is.
    #[must_use]
    pub fn flow(&self) -> Flow {
        self.flow
    }

    /// The releases of its Clusters, oldest first.
    #[must_use]
    pub fn releases(&self) -> &[Release] {
        &self.releases
    }

    /// Creates a Cluster with one worker at the oldest release, and waits until it is at rest.
    pub async fn create(&self, name: &str) -> Result<Cluster> {
        let release = &self.releases[0];
        let cluster = self.scene.cluster(name).at(release).workers(1).create().await?;
        cluster.packages_proven(release, 0, TIMEOUT * 2).await?;
        cluster.is_available(TIMEOUT * 2).await?;
        cluster.is_settled(TIMEOUT).await?;
        Ok(cluster)
    }

    /// Sets when the pause flow unpauses Clusters from now on.
    pub async fn unpauses(&self, unpause: Unpause) -> Result<()> {
        match &self.stand_in {
            Some(stand_in) => stand_in.restart(unpause).await,
            None => Ok(()),
        }
    }

    /// Fails if a process of it has ended, or a log holds a panic or a secret.
    pub fn check(&self) -> Result<()> {
        self.world().stack().check()
    }

    /// Stops everything.
    pub async fn stop(&self) -> Result<()> {
        self.world().stop().await
    }

    fn world(&self) -> &Arc<World> {
        self.scene.world()
    }
}

/// A release for each Kubernetes version, with four packages: three have their values inline, one has them in a Secret.
fn releases(scene: &Scene) -> Result<Vec<Release>> {
    let inline = |setting: &str| Values::Inline(json!({setting: {"enabled": true}}));
    VERSIONS
        .iter()
        .zip(["1.0.0", "2.0.0", "3.0.0"])
        .map(|(kubernetes, version)| {
            // What runs of kapp-controller stays the same: with another one, Apps that it works on wait for its sync period.
            let kapp_controller = scene.kapp_controller("1.0.0")?.under_version(version);
            let [antrea, metrics, secretgen] =
                DELAYED.map(|short| scene.slow_package(short, version, Delay::NONE));
            let release = Release::new(*kubernetes, format!("{NAMESPACE}.1"), kapp_controller, antrea);
            Ok(release
                .additional(metrics)
                .additional(secretgen)
                .values("kapp-controller", inline("kappController"))
                .values("antrea", inline("antrea"))
                .values("secretgen-controller", inline("secretgenController"))
                .values(
                    "metrics-server",
                    Values::Secret(json!({"metricsServer": {"password": canary::VALUES}})),
                ))
        })
        .collect()
}
