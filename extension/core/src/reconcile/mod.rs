//! Pure reconciles of one Cluster and of one configuration, fan-out requeues after changes of shared objects, and the limiter for slow
//! or failing Clusters.

pub mod cluster;
pub mod provider;
pub mod shared_dependency;
pub mod slots;
