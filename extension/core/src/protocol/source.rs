//! An object of any kind that a pass depends on.

use std::fmt;

use kube::Resource as _;
use sluice_crds::foreign::{Cluster, cluster::ObjectReference};

/// An object, or all objects of a kind, that values are computed from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// One object.
    Object {
        /// Its API group; empty is the core group.
        group: String,
        /// Its kind.
        kind: String,
        /// Its namespace; `None` for an object of the whole cluster.
        namespace: Option<String>,
        /// Its name.
        name: String,
        /// Whether the Cluster says of which kind it is: then all who may edit Clusters choose the kind, and it has to be one of
        /// Cluster API before it is read.
        kind_is_given: bool,
    },
    /// All objects of a kind of the whole cluster.
    Every {
        /// Its API group.
        group: String,
        /// The kind.
        kind: String,
    },
}

/// Namespace and name of one object.
pub type Single = (Option<String>, String);

impl Source {
    /// An object of a namespace.
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

    /// An object that a Cluster in its namespace refers to, kind and all.
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

    /// An object of the whole cluster.
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

    /// A Cluster.
    #[must_use]
    pub fn cluster(namespace: &str, name: &str) -> Self {
        Self::namespaced(&Cluster::group(&()), &Cluster::kind(&()), namespace, name)
    }

    /// A Secret.
    #[must_use]
    pub fn secret(namespace: &str, name: &str) -> Self {
        Self::namespaced("", "Secret", namespace, name)
    }

    /// The group and the kind.
    #[must_use]
    pub fn group_kind(&self) -> (&str, &str) {
        match self {
            Self::Object { group, kind, .. } | Self::Every { group, kind } => (group, kind),
        }
    }

    /// Whether a Cluster says of which kind it is.
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

    /// The one object that is watched, where many others of its kind are asked for by none. Namespaces are few and small, and
    /// every tenant asks for another one.
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

    /// Whether it is a Secret of a known purpose: those are read by name and never watched.
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
