//! A write that came too early.

use super::feed::Revision;

/// A version that was written before its packages had proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Position of the write in the order of all writes.
    pub revision: Revision,
    /// Namespace of the Cluster.
    pub namespace: String,
    /// Name of the Cluster.
    pub cluster: String,
    /// Written version.
    pub write: String,
    /// Missing proofs.
    pub missing: Vec<String>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            revision,
            namespace,
            cluster,
            write,
            missing,
        } = self;
        write!(
            f,
            "revision {revision}: Cluster {namespace}/{cluster}: {write} before proof of {}",
            missing.join("; ")
        )
    }
}
