//! Lookups of other objects that a verdict depends on.

use std::collections::{BTreeMap, BTreeSet};

use sluice_crds::run::{ClusterBootstrapSpec, TypedLocalObjectReference};

use crate::packages::bootstrap::PackageFacts;

/// Object to look up: a Package in the system namespace, any other kind in the namespace of the ClusterBootstrap unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lookup {
    /// A Cluster.
    Cluster(String),
    /// A Package.
    Package(String),
    /// A TanzuKubernetesRelease.
    Release(String),
    /// A ClusterBootstrapTemplate, in the system namespace.
    Template(String),
    /// The names of all ClusterBootstrapTemplates in the system namespace.
    TemplateNames,
    /// A Secret.
    Secret(String),
    /// An object that provides values.
    Provider {
        /// Its API group.
        group: String,
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
}

impl Lookup {
    pub(super) fn provider(by: &TypedLocalObjectReference) -> Self {
        Self::Provider {
            group: by.api_group.clone().unwrap_or_default(),
            kind: by.kind.clone(),
            name: by.name.clone(),
        }
    }
}

/// Result of a lookup.
#[derive(Debug, Clone, PartialEq)]
pub enum LookupResult {
    /// A Cluster.
    Cluster {
        /// The release in its label; empty without a label.
        label: String,
        /// Whether the Cluster is being deleted.
        deleting: bool,
        /// Whether Cluster API does not reconcile the Cluster, as during a move.
        stopped: bool,
        /// `topology.version`, if its release still follows its ClusterBootstrap, see
        /// [`follows_bootstrap`](crate::resolver::follows_bootstrap).
        follows: Option<String>,
    },
    /// A Package.
    Package(PackageFacts),
    /// A TanzuKubernetesRelease.
    Release {
        /// Its Kubernetes version.
        kubernetes: String,
        /// Its Packages.
        packages: Vec<String>,
    },
    /// The release does not exist.
    NoRelease {
        /// Names of all releases.
        known: Vec<String>,
    },
    /// The spec of a ClusterBootstrapTemplate.
    Template(Box<ClusterBootstrapSpec>),
    /// The names of all ClusterBootstrapTemplates.
    TemplateNames(Vec<String>),
    /// A Secret.
    Secret {
        /// Whether it is a credential by its type.
        credential: bool,
    },
    /// An object that provides values.
    Provider,
    /// The API server reports that the object does not exist.
    Absent {
        /// Plural and group of the kind, `calicoconfigs.cni.tanzu.vmware.com`.
        resource: String,
    },
    /// The API server does not serve the kind.
    NotServed,
    /// The kind is cluster-scoped.
    ClusterScoped,
    /// The lookup failed for this reason.
    Unknown(String),
}

/// Finished lookups with their results.
pub type Lookups = BTreeMap<Lookup, LookupResult>;

/// Reads finished lookups and collects the missing ones.
pub(super) struct LookupReader<'a> {
    finished: &'a Lookups,
    needed: BTreeSet<Lookup>,
}

impl<'a> LookupReader<'a> {
    pub(super) const fn of(finished: &'a Lookups) -> Self {
        Self {
            finished,
            needed: BTreeSet::new(),
        }
    }

    /// Returns the result of a lookup. Records the lookup as needed if there is no result yet.
    pub(super) fn see(&mut self, lookup: Lookup) -> Option<&'a LookupResult> {
        let seen = self.finished.get(&lookup);
        if seen.is_none() {
            self.needed.insert(lookup);
        }
        seen
    }

    /// Whether no lookup is missing.
    pub(super) fn is_complete(&self) -> bool {
        self.needed.is_empty()
    }

    /// Returns `verdict` if no lookup is missing, otherwise the missing lookups.
    pub(super) fn complete<T>(self, verdict: T) -> Result<T, Vec<Lookup>> {
        if self.is_complete() {
            Ok(verdict)
        } else {
            Err(self.needed.into_iter().collect())
        }
    }
}
