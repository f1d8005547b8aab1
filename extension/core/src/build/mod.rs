//! The objects that controllers write, built from what was decided. One file per kind of object.

mod bootstrap;
mod identity;
mod package;
mod package_install;
mod values_secret;

pub use bootstrap::{bootstrap, owner};
pub use identity::{Identity, identity};
pub use package::{package, same_package};
pub use package_install::{Install, Place, install, same_install};
pub use values_secret::{Values, clone_secret, inline_document, values_secret};

/// Field manager of every server-side apply.
pub const FIELD_MANAGER: &str = "sluice-bootstrap";

/// The Cluster that an object is built for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Name of the Cluster.
    pub name: String,
    /// Namespace of the Cluster.
    pub namespace: String,
    /// UID of the Cluster.
    pub uid: String,
}
