//! Objects that a user of Cluster API and Sluice would write: releases, templates, classes, Clusters, gates and charts.

mod chart;
mod class;
mod cluster;
pub mod definition;
mod gate;
mod gzip;
mod helm_chart_proxy;
pub mod packages;
mod release;

pub use chart::Chart;
pub use class::{Class, Images, Infrastructure, RESOLVE, RESOLVE_IMAGE};
pub use cluster::{CLUSTER_API, TKR, cluster, upgrade};
pub use gate::{Check, Gate};
pub use helm_chart_proxy::HelmChartProxy;
pub use release::{Provider, Release, Values};
