//! Reconciles as pure functions: of one Cluster and of one configuration; which Clusters a shared change requeues, and how many run at once.

pub mod cluster;
pub mod provider;
pub mod shared_dependency;
pub mod slots;
