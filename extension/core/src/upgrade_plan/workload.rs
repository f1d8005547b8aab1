//! Objects of a workload cluster that stop or suffer from a replacement of Nodes.

use super::finding::Finding;

/// What was read from a workload cluster.
#[derive(Debug, Clone, Default)]
pub struct WorkloadObjects;

/// Returns the warnings for an upgrade over these versions, ascending.
#[must_use]
pub fn findings(_objects: &WorkloadObjects, _versions: &[&str]) -> Vec<Finding> {
    Vec::new()
}
