//! Kubernetes versions that a Package permits.

use crate::{
    packages::bootstrap::PackageFacts,
    reasons::{GateReason, Hold},
    version::range::Range,
};

/// Returns the hold of a Package that excludes a Kubernetes version.
pub(super) fn excludes(name: &str, facts: &PackageFacts, version: &str) -> Option<Hold> {
    let constraints = facts.kubernetes.as_deref()?;
    let message = match Range::parse(constraints) {
        Err(error) => format!("kubernetesVersionSelection of Package {name} is not usable: {error}"),
        Ok(range) if range.allows(version) => return None,
        Ok(_) => format!("Package {name} allows Kubernetes {constraints}, not {version}"),
    };
    Some(Hold::new(GateReason::PackageExcludesKubernetes, message))
}
