//! A stack without packages, with the delivery systems and the charts of the runs that it serves.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::sync::RwLock;

use super::addon::CHARTS;
use super::disturbance::{Delivery, Kind};
use super::plan::Plan;
use crate::objects::{Chart, HelmRepository};
use crate::scenario::{Cluster, Scene, TIMEOUT, VERSIONS, World, gates};

/// Namespace of all Clusters.
const NAMESPACE: &str = "soak";

/// Name of the Cluster that values of a HelmChartProxy can be broken for.
const OTHER: &str = "other";

/// What runs share.
pub(super) struct Stage {
    pub(super) scene: Scene,
    /// URL of the repository of charts.
    pub(super) repository: String,
    /// Written by a run that stops a shared process, read by all others: such a run is alone on the stack.
    pub(super) processes: RwLock<()>,
    /// A Cluster without a gate, if a run needs it.
    other: Option<Cluster>,
}

impl Stage {
    /// Publishes the charts of all runs, and starts what they need before the first one.
    pub(super) async fn open(world: &Arc<World>, plans: &[Plan]) -> Result<Self> {
        let scene = Scene::open(world, NAMESPACE, &gates::class()).await?;
        let charts = world.charts().await?;
        for plan in plans {
            for (version, app_version) in CHARTS {
                charts.publish(&Chart::new(&plan.name(), version, app_version))?;
            }
        }
        let repository = charts.url().to_owned();
        let needs = |delivery: Delivery| plans.iter().any(|plan| plan.delivery == delivery);
        if needs(Delivery::Caaph) {
            world.caaph().await?;
        }
        if needs(Delivery::Flux) {
            world.flux().await?;
            let source = HelmRepository::new(&repository).manifest(scene.namespace());
            scene.apply(&[source]).await?;
        }
        let mut other = None;
        if plans.iter().any(|plan| plan.kind == Kind::OtherClusterBroken) {
            let cluster = scene.cluster(OTHER).unmanaged(VERSIONS[0]).create().await?;
            cluster.is_available(TIMEOUT).await?;
            cluster.is_settled(TIMEOUT).await?;
            other = Some(cluster);
        }
        Ok(Self {
            scene,
            repository,
            processes: RwLock::default(),
            other,
        })
    }

    /// The Cluster that values can be broken for.
    pub(super) fn other(&self) -> Result<&Cluster> {
        self.other.as_ref().context("no run needs another Cluster")
    }

    /// Has the HelmChartProxy of a run select the other Cluster, or no longer.
    pub(super) async fn deliver_to_other(&self, run: &str, delivered: bool) -> Result<()> {
        let value = if delivered { json!("true") } else { Value::Null };
        let labels = json!({"metadata": {"labels": {delivers(run): value}}});
        self.other()?.patch(&labels).await.map(drop)
    }
}

/// Label of the Clusters that the HelmChartProxy of a run selects.
pub(super) fn delivers(run: &str) -> String {
    format!("soak-delivers-{run}")
}
