//! A write that came too early.

use super::feed::Revision;

/// Proof that a version was written without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// That of the packages of its release.
    ReleasedBeforePackages,
    /// That of the checks of an UpgradeGate.
    ReleasedBeforeGate,
    /// What packages need before they go back.
    RolledBackEarly,
    /// That of the packages of its release, although the record names an override: none that exists allows the write.
    InvalidOverride,
}

/// A version that was written before its packages, or the checks of its gates, had proof; or packages that went back too early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule that it breaks.
    pub rule: Rule,
    /// Position of the write in the order of all writes.
    pub revision: Revision,
    /// Namespace of the Cluster.
    pub namespace: String,
    /// Name of the Cluster.
    pub cluster: String,
    /// Written version, or packages.
    pub write: String,
    /// Missing proofs.
    pub missing: Vec<String>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            rule,
            revision,
            namespace,
            cluster,
            write,
            missing,
        } = self;
        write!(
            f,
            "revision {revision}: Cluster {namespace}/{cluster}: {rule:?}: {write} before proof of {}",
            missing.join("; ")
        )
    }
}
