//! Objects that a user of Cluster API and Sluice would write: releases, templates, classes, Clusters, gates and charts.

mod chart;
mod class;
mod cluster;
pub mod definition;
mod gate;
mod gzip;
mod helm_chart_proxy;
mod helm_release;
mod kustomization;
pub mod packages;
mod release;
mod sources;

pub use chart::Chart;
pub use class::{Class, Images, Infrastructure, RESOLVE, RESOLVE_IMAGE};
pub use cluster::{CLUSTER_API, TKR, cluster, upgrade};
pub use gate::{Check, Gate};
pub use helm_chart_proxy::HelmChartProxy;
pub use helm_release::{HelmRelease, helm_release_path};
pub use kustomization::{Kustomization, kustomization_path};
pub use release::{Provider, Release, Values};
pub use sources::{GitSource, HelmRepository};

use serde_json::{Value, json};

/// Namespace of the objects of Flux inside a workload cluster.
pub const FLUX_NAMESPACE: &str = "flux-system";

/// How often Flux looks at sources and at what it has delivered: often, so that scenarios go on.
const INTERVAL: &str = "5s";

/// The field `kubeConfig` of objects of Flux that deliver to a Cluster.
fn kubeconfig(cluster: &str) -> Value {
    json!({"secretRef": {"name": format!("{cluster}-kubeconfig")}})
}
