//! ClusterBootstrap of a Cluster, and the objects built from it.

pub mod bootstrap;
pub mod build;
