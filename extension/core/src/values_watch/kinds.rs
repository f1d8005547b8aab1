//! Kinds of other projects that are values sources of managed Clusters.

use crate::providers;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    sync::LazyLock,
};

use sluice_crds::run::{ClusterBootstrap, ClusterBootstrapSpec};

use super::GroupKind;
use crate::{cluster::ClusterRef, packages::bootstrap::packages, value_kinds::provides_values};

/// Limit of watched kinds. A watched kind keeps its place while its watch works. A free place goes to the kind that most Clusters name;
/// among kinds with failed watches, to the earliest failure.
pub const LIMIT: usize = 16;

/// Kinds of configurations, which the binary always watches and which requeue Clusters.
static OURS: LazyLock<HashSet<(String, String)>> = LazyLock::new(|| {
    let resources = providers::kinds().into_iter().map(|kind| kind.resource);
    resources
        .map(|resource| (resource.group, resource.kind))
        .collect()
});

/// Kinds that each Cluster names.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    /// Kinds of each ClusterBootstrap that names any.
    named: HashMap<ClusterRef, BTreeSet<GroupKind>>,
    /// Hashes of Clusters that are managed if they have a ClusterBootstrap; hashes, because there are many.
    managed: HashSet<u64>,
    hashes: RandomState,
    changed: bool,
}

impl Kinds {
    /// Records whether a Cluster exists that is managed if it has a ClusterBootstrap.
    pub(super) fn cluster(&mut self, cluster: &ClusterRef, is_there: bool) {
        let cluster = self.hashes.hash_one(cluster);
        self.changed |= if is_there {
            self.managed.insert(cluster)
        } else {
            self.managed.remove(&cluster)
        };
    }

    /// Returns whether a Cluster of this name exists that is managed if it has a ClusterBootstrap.
    pub(super) fn has_cluster(&self, cluster: &ClusterRef) -> bool {
        self.managed.contains(&self.hashes.hash_one(cluster))
    }

    pub(super) fn bootstrap(&mut self, bootstrap: &ClusterBootstrap, is_there: bool) {
        let (cluster, kinds) = (ClusterRef::of(bootstrap), third_party(&bootstrap.spec));
        let kinds = Some(kinds).filter(|kinds| is_there && !kinds.is_empty());
        self.changed |= self.named.get(&cluster) != kinds.as_ref();
        match kinds {
            Some(kinds) => drop(self.named.insert(cluster, kinds)),
            None => drop(self.named.remove(&cluster)),
        }
    }

    /// Returns the number of managed Clusters per kind, if it may have changed.
    pub(super) fn changed(&mut self) -> Option<BTreeMap<GroupKind, usize>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let mut counts = BTreeMap::new();
        let of_managed = self
            .named
            .iter()
            .filter(|(cluster, _)| self.managed.contains(&self.hashes.hash_one(cluster)));
        for kind in of_managed.flat_map(|(_, kinds)| kinds) {
            if let Some(count) = counts.get_mut(kind) {
                *count += 1;
            } else {
                counts.insert(kind.clone(), 1);
            }
        }
        Some(counts)
    }
}

/// Returns the kinds of other projects that are values sources of packages.
fn third_party(spec: &ClusterBootstrapSpec) -> BTreeSet<GroupKind> {
    let named = packages(spec).into_iter().filter_map(|(_, package)| {
        let by = package.values_from.as_ref()?.provider_ref.as_ref()?;
        Some((by.api_group.clone()?, by.kind.clone()))
    });
    named
        .filter(|named| !OURS.contains(named) && provides_values(&named.0, &named.1))
        .map(|(group, kind)| GroupKind { group, kind })
        .collect()
}

pub(super) fn too_many(count: usize) -> String {
    format!(
        "ClusterBootstraps take values from {count} kinds of other projects, and Sluice watches at most {LIMIT}: changed values of other \
         kinds take effect within --sync-period"
    )
}
