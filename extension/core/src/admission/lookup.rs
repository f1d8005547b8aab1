//! What a judgement needs to know of other objects.

use std::collections::{BTreeMap, BTreeSet};

use sluice_crds::run::{ClusterBootstrapSpec, TypedLocalObjectReference};

use crate::packages::bootstrap::PackageFacts;

/// An object that is looked up by its name. Packages are in the system namespace, all others in that of the ClusterBootstrap.
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

/// What a look has come to.
#[derive(Debug, Clone, PartialEq)]
pub enum LookupResult {
    /// A Cluster.
    Cluster {
        /// The release of its label; empty without one.
        label: String,
        /// Whether it is being deleted.
        deleting: bool,
        /// Whether Cluster API leaves it alone, as it does while it is moved.
        stopped: bool,
    },
    /// A Package.
    Package(PackageFacts),
    /// The Packages of a TanzuKubernetesRelease.
    Release(Vec<String>),
    /// There is no such release, but these.
    NoRelease {
        /// Names of all releases.
        known: Vec<String>,
    },
    /// The spec of a ClusterBootstrapTemplate.
    Template(Box<ClusterBootstrapSpec>),
    /// A Secret.
    Secret {
        /// Whether it is a credential by its type.
        credential: bool,
    },
    /// An object that provides values.
    Provider,
    /// There is none, as the API server says.
    Absent {
        /// Plural and group of its kind, `calicoconfigs.cni.tanzu.vmware.com`.
        resource: String,
    },
    /// Its kind is not served.
    NotServed,
    /// It could not be looked up, and why.
    Unknown(String),
}

/// All that was looked up.
pub type Lookups = BTreeMap<Lookup, LookupResult>;

/// What was looked up, and what still has to be.
pub(super) struct LookupReader<'a> {
    looked: &'a Lookups,
    needed: BTreeSet<Lookup>,
}

impl<'a> LookupReader<'a> {
    pub(super) const fn of(looked: &'a Lookups) -> Self {
        Self {
            looked,
            needed: BTreeSet::new(),
        }
    }

    /// What is known of an object. Nothing is while it has to be looked up.
    pub(super) fn see(&mut self, look: Lookup) -> Option<&'a LookupResult> {
        let seen = self.looked.get(&look);
        if seen.is_none() {
            self.needed.insert(look);
        }
        seen
    }

    /// `verdict`, once nothing has to be looked up any more.
    pub(super) fn complete<T>(self, verdict: T) -> Result<T, Vec<Lookup>> {
        if self.needed.is_empty() {
            Ok(verdict)
        } else {
            Err(self.needed.into_iter().collect())
        }
    }
}
