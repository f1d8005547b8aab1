//! Builds the objects that controllers write. One file per kind of object.

mod bootstrap;
mod identity;
mod package;
mod package_install;
mod repair;
mod sync_period;
mod tkgs_values;
mod values_secret;

pub use bootstrap::{adopted, bootstrap, owner};
pub use identity::{Identity, identity, repair_binding, repair_role};
pub use package::{package, repair_package};
pub use package_install::{Install, Place, install, specs_match, update};
pub use repair::{Repair, exists};
pub use sync_period::{go_duration, sync_period};
pub use tkgs_values::{LackedFields, with_tkgs_values};
pub use values_secret::{
    Values, back_references, clone_secret, inline_document, repair_values_secret, values_secret,
};

/// Field manager of every write.
pub const FIELD_MANAGER: &str = "sluice-bootstrap";

/// Cluster for which an object is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Name of the Cluster.
    pub name: String,
    /// Namespace of the Cluster.
    pub namespace: String,
    /// UID of the Cluster.
    pub uid: String,
}
