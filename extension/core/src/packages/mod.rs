//! ClusterBootstrap of a Cluster, the objects built from it, and the management packages that a release needs.

pub mod bootstrap;
pub mod build;
pub mod requirements;
