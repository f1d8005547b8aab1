//! Findings about the Cluster as a whole.

use super::finding::Finding;
use crate::reconcile::cluster::{Facts, NextHop};

/// Returns the findings about the Cluster as a whole.
pub(super) fn findings(_facts: &Facts, _first: &NextHop) -> Vec<Finding> {
    Vec::new()
}
