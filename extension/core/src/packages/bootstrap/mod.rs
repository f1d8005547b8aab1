//! Content of a ClusterBootstrap: creation from a template, merge with another TanzuKubernetesRelease.

mod compare;
mod create;
mod credentials;
mod duplicates;
mod embedded;
mod fill;
mod kept_versions;
mod limit;
mod merge;
mod packages;
mod provided;
mod reapply;
mod resolved_release;
mod snapshot;
mod source;
mod unmanaged;

pub use compare::{below_release, must_match_release};
pub(crate) use create::all_mut;
pub use create::{Draft, ValuesClone, clones_of, from_template};
pub(crate) use credentials::credential;
pub use credentials::{
    CREDENTIAL_TYPES, credential_of, credential_refused, is_credential, is_credential_type,
};
pub use duplicates::{duplicate_hold, duplicate_indexes};
pub use embedded::{EmbeddedReference, embedded_references};
pub use fill::{
    Completed, Filling, fill, fill_with_values, filled_from, has_wildcard, other_hop, pinned_release,
    release_mismatch,
};
pub use kept_versions::KeptVersions;
pub use limit::{MOST_ADDITIONAL, too_many};
pub use merge::{Inputs, Release, merge};
pub(crate) use packages::missing;
pub use packages::{Catalogue, PackageFacts, Role, packages};
pub use provided::Provided;
pub use reapply::{Reapplied, ReapplyInputs, is_ambiguous, reapply};
pub use resolved_release::{ReleaseChange, ResolvedRelease};
pub use snapshot::{
    LARGEST as LARGEST_SNAPSHOT, Restored, Snapshot, SnapshotPackage, Stays, completed, restored,
    rollback_to, way_back,
};
pub use source::{Source, source};
pub use unmanaged::unmanaged_conflict;

use crate::reasons::{GateReason, Hold};

fn package_not_found(name: &str, by: &str) -> Hold {
    Hold::new(
        GateReason::PackageNotFound,
        format!("Package {name}, named by {by}, does not exist"),
    )
}

#[cfg(test)]
mod tests;
