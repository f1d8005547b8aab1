//! Objects that a user of Cluster API and Sluice would write: releases, templates, classes, Clusters.

mod class;
mod cluster;
pub mod definition;
pub mod packages;
mod release;

pub use class::{Class, Images, Infrastructure, RESOLVE, RESOLVE_IMAGE};
pub use cluster::{CLUSTER_API, TKR, cluster, upgrade};
pub use release::{Provider, Release, Values};
