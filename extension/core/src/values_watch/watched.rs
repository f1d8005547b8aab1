//! Watches of values sources, and their label selector.

use std::fmt;

use sluice_crds::labels::label;

use crate::cache::FollowedStore;

/// Label of watched objects; it names their Cluster.
pub const LABEL: &str = label::CLUSTER_NAME;

/// Kind with its API group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    /// API group, never the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
}

/// Target of one watch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Watched {
    /// Secrets of one namespace, or of all namespaces.
    Secrets(Option<String>),
    /// Objects of a kind of another project that a ClusterBootstrap names.
    Kind(GroupKind),
}

impl Watched {
    /// Returns the retry state of its list and watch.
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
            // Tenants choose these strings.
            Self::Kind(GroupKind { group, kind }) => {
                write!(f, "{} in group {}", kind.escape_debug(), group.escape_debug())
            }
        }
    }
}
