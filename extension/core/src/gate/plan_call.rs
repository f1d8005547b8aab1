//! Request of hook GenerateUpgradePlan, reduced to the fields that Sluice reads.

use sluice_crds::{
    decode::{Fault, Limit, from_str},
    foreign::cluster::Variables,
};

use crate::{
    decode::CACHED, upgrade::tkr::pinned_versions, upgrade_plan::NoRelease, version::KubernetesVersion,
};

/// One call of GenerateUpgradePlan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanCall {
    /// Namespace of the Cluster.
    pub namespace: String,
    /// Name of the Cluster.
    pub name: String,
    /// UID of the Cluster.
    pub uid: String,
    /// Version of the control plane.
    pub from: String,
    /// Version of the topology.
    pub to: String,
    /// Kubernetes versions for which variable `TKR_DATA` names a release.
    pub pinned: Vec<String>,
}

impl PlanCall {
    /// Whether the upgrade passes minor versions, whose steps depend on releases.
    #[must_use]
    pub fn passes_minors(&self) -> bool {
        let [from, to] = [&self.from, &self.to].map(|text| text.parse::<KubernetesVersion>());
        matches!((from, to), (Ok(from), Ok(to)) if !from.minors_before(&to).is_empty())
    }
}

/// Error for a call that is not answered with steps. The hook cannot hold, so Cluster API retries it after a failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlan {
    /// A minor version has no release.
    #[error("NoReleaseForMinorVersion: {0}")]
    NoRelease(#[from] NoRelease),
    /// The releases are neither in the cache nor readable.
    #[error("ReleasesNotListed: the TanzuKubernetesReleases could not be listed; Cluster API tries again")]
    NotListed,
}

impl NoPlan {
    /// Returns the spelling in metrics and logs.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NoRelease(_) => "NoReleaseForMinorVersion",
            Self::NotListed => "ReleasesNotListed",
        }
    }
}

/// Returns the Kubernetes versions for which `spec.topology.variables` of a request name a release.
///
/// # Errors
/// The text is no list, or its variables exceed the memory limit of a cached Cluster.
pub fn pinned_in(variables: &str) -> Result<Vec<String>, Fault> {
    // Any other value reads as an empty list.
    if !variables.starts_with('[') {
        return Err(Fault {
            path: ".".to_owned(),
            what: "expected a list".to_owned(),
        });
    }
    let (variables, _): (Variables, _) = from_str(variables, Limit::projected(CACHED))?;
    Ok(pinned_versions(&variables))
}
