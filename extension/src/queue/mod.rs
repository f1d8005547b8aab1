//! Work queues, and the requeues of Clusters and configurations.

pub mod dependents;
pub mod metrics;
pub mod requeues;
pub mod work_queue;
