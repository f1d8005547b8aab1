//! Kinds of other projects that packages of managed Clusters take values from.

use crate::providers;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    sync::LazyLock,
};

use sluice_crds::run::{ClusterBootstrap, ClusterBootstrapSpec};

use super::GroupKind;
use crate::{cluster::ClusterRef, packages::bootstrap::packages, value_kinds::provides_values};

/// So many kinds are watched at once: those that are watched stay so while they can be, and a place that is free goes to the kind that
/// most Clusters name, of those that were in trouble to the one that was so longest ago.
pub const LIMIT: usize = 16;

/// The kinds whose configurations the binary watches anyway, and wakes Clusters for.
static OURS: LazyLock<HashSet<(String, String)>> = LazyLock::new(|| {
    let resources = providers::kinds().into_iter().map(|kind| kind.resource);
    resources
        .map(|resource| (resource.group, resource.kind))
        .collect()
});

/// Which Cluster names which kinds.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    /// Of ClusterBootstraps that name some.
    named: HashMap<ClusterRef, BTreeSet<GroupKind>>,
    /// Clusters that are managed if they have a ClusterBootstrap, as hashes: there are many.
    managed: HashSet<u64>,
    hashes: RandomState,
    changed: bool,
}

impl Kinds {
    /// A Cluster is there that is managed if it has a ClusterBootstrap, or none is.
    pub(super) fn cluster(&mut self, cluster: &ClusterRef, is_there: bool) {
        let cluster = self.hashes.hash_one(cluster);
        self.changed |= if is_there {
            self.managed.insert(cluster)
        } else {
            self.managed.remove(&cluster)
        };
    }

    /// Whether there is a Cluster of this name that is managed if it has a ClusterBootstrap.
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

    /// By how many managed Clusters each kind is named, if that may have changed.
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

/// The kinds of other projects that packages take values from.
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
        "ClusterBootstraps take values from {count} kinds of other projects, of which {LIMIT} are watched at once: an edit of an object of \
         another one reaches its Cluster within a --sync-period"
    )
}
