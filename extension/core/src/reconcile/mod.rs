//! Pure reconciles of one Cluster and of one configuration, fan-out requeues after changes of shared objects, and the outcomes by which
//! slow and failing Clusters are limited.

pub mod cluster;
pub mod outcomes;
pub(crate) mod progress_writes;
pub mod provider;
pub mod shared_dependency;
