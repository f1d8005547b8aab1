//! What is watched, and by which label.

use std::fmt;

use sluice_crds::labels::label;

use crate::cache::FollowedStore;

/// Objects are watched that have it: it names their Cluster.
pub const LABEL: &str = label::CLUSTER_NAME;

/// A kind by its API group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    /// Its API group, which is never the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
}

/// What one watch is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Watched {
    /// Secrets of one namespace, or of all.
    Secrets(Option<String>),
    /// Objects of a kind of another project, which a ClusterBootstrap names.
    Kind(GroupKind),
}

impl Watched {
    /// How its list and watch are asked for again.
    #[must_use]
    pub fn followed(&self) -> FollowedStore {
        match self {
            Self::Secrets(_) => FollowedStore::default(),
            Self::Kind(_) => FollowedStore::of_named_kind(),
        }
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secrets(None) => write!(f, "Secrets"),
            Self::Secrets(Some(namespace)) => write!(f, "Secrets in namespace {namespace}"),
            // A tenant writes these.
            Self::Kind(GroupKind { group, kind }) => {
                write!(f, "{} in group {}", kind.escape_debug(), group.escape_debug())
            }
        }
    }
}
