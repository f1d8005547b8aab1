//! Warnings about the packages of a step.

use super::{chain::Link, finding::Finding};
use crate::reconcile::cluster::Facts;

/// Returns the warnings about the packages of a step.
pub(super) fn findings(_facts: &Facts, _link: &Link) -> Vec<Finding> {
    Vec::new()
}
