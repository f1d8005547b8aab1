//! Limit of the additional packages of a ClusterBootstrap: each of them costs requests per reconcile.

use sluice_crds::run::ClusterBootstrapSpec;

use crate::reasons::{GateReason, Hold};

/// Maximum number of additional packages, as in the definitions. Objects stored before may have more.
pub const MOST_ADDITIONAL: usize = 128;

/// Returns the hold of `object` with this spec if it lists too many packages.
#[must_use]
pub fn too_many(spec: &ClusterBootstrapSpec, object: &str) -> Option<Hold> {
    (spec.additional_packages.len() > MOST_ADDITIONAL).then(|| {
        Hold::new(
            GateReason::PackagesTooMany,
            format!(
                "{object} lists more than {MOST_ADDITIONAL} packages in spec.additionalPackages; remove some of them"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use sluice_crds::run::ClusterBootstrapPackage;

    use super::*;

    #[test]
    fn more_packages_than_the_definitions_take_are_refused() {
        let with = |count| ClusterBootstrapSpec {
            additional_packages: vec![ClusterBootstrapPackage::default(); count],
            ..ClusterBootstrapSpec::default()
        };
        assert_eq!(
            too_many(&with(MOST_ADDITIONAL), "ClusterBootstrap team-a/one"),
            None
        );
        let refused = too_many(&with(MOST_ADDITIONAL + 1), "ClusterBootstrap team-a/one");
        let refused = refused.map(|hold| (hold.reason, hold.message));
        let message = "ClusterBootstrap team-a/one lists more than 128 packages in spec.additionalPackages; remove some of \
                       them";
        assert_eq!(refused, Some((GateReason::PackagesTooMany, message.to_owned())));
    }
}
