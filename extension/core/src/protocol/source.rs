//! Objects of any kind that a reconcile depends on.

use std::fmt;

use kube::Resource as _;
use sluice_crds::foreign::{Cluster, cluster::ObjectReference};

/// Object, or all objects of a kind, from which values are computed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Single object.
    Object {
        /// API group; empty for the core group.
        group: String,
        /// Kind.
        kind: String,
        /// Namespace; `None` for cluster-scoped objects.
        namespace: Option<String>,
        /// Name.
        name: String,
        /// Whether the Cluster chooses the kind. Everyone with write access to Clusters can then choose it, so Sluice reads only kinds
        /// that implement a contract of Cluster API.
        kind_is_given: bool,
    },
    /// All objects of a kind, in all namespaces.
    Every {
        /// API group.
        group: String,
        /// Kind.
        kind: String,
    },
}

/// Namespace and name of one object.
pub type Single = (Option<String>, String);

impl Source {
    /// Returns the source of a namespaced object.
    #[must_use]
    pub fn namespaced(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self::Object {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
            kind_is_given: false,
        }
    }

    /// Returns the source of an object that a Cluster references in its namespace, including the kind.
    #[must_use]
    pub fn referred(namespace: &str, reference: &ObjectReference) -> Self {
        Self::Object {
            group: reference.group().to_owned(),
            kind: reference.kind.clone(),
            namespace: Some(namespace.to_owned()),
            name: reference.name.clone(),
            kind_is_given: true,
        }
    }

    /// Returns the source of a cluster-scoped object.
    #[must_use]
    pub fn cluster_wide(group: &str, kind: &str, name: &str) -> Self {
        Self::Object {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            name: name.to_owned(),
            kind_is_given: false,
        }
    }

    /// Returns the source of a Cluster.
    #[must_use]
    pub fn cluster(namespace: &str, name: &str) -> Self {
        Self::namespaced(&Cluster::group(&()), &Cluster::kind(&()), namespace, name)
    }

    /// Returns the source of a Secret.
    #[must_use]
    pub fn secret(namespace: &str, name: &str) -> Self {
        Self::namespaced("", "Secret", namespace, name)
    }

    /// Returns the API group and the kind.
    #[must_use]
    pub fn group_kind(&self) -> (&str, &str) {
        match self {
            Self::Object { group, kind, .. } | Self::Every { group, kind } => (group, kind),
        }
    }

    /// Returns whether a Cluster chooses the kind.
    #[must_use]
    pub fn kind_is_given(&self) -> bool {
        matches!(
            self,
            Self::Object {
                kind_is_given: true,
                ..
            }
        )
    }

    /// Returns the object if Sluice watches it alone, because no reconcile needs most objects of its kind. Namespaces are watched as a
    /// whole: they are few and small, and each tenant needs another one.
    #[must_use]
    pub fn single(&self) -> Option<Single> {
        match self {
            Self::Object {
                group,
                kind,
                namespace,
                name,
                ..
            } if (group.is_empty() && kind != "Namespace") || group == "rbac.authorization.k8s.io" => {
                Some((namespace.clone(), name.clone()))
            }
            _ => None,
        }
    }

    /// Returns whether the source is a Secret whose kind Sluice, not a Cluster, chooses. Sluice reads those by name and never watches them.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.group_kind() == ("", "Secret") && !self.kind_is_given()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object {
                kind,
                namespace: Some(namespace),
                name,
                ..
            } => write!(f, "{kind} {namespace}/{name}"),
            Self::Object { kind, name, .. } => write!(f, "{kind} {name}"),
            Self::Every { kind, .. } => write!(f, "all objects of kind {kind}"),
        }
    }
}
