//! Values of the packages of a step against the schemas of their Packages.

use super::{Scope, chain::Link, finding::Finding};
use crate::{protocol::Step, reconcile::cluster::Context};

/// Returns the warnings about values that do not match the schema of their Package.
///
/// # Errors
/// Missing reads.
pub(super) fn findings(_context: &Context<'_>, _link: &Link, _scope: Scope) -> Step<Vec<Finding>> {
    Ok(Vec::new())
}
