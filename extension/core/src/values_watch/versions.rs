//! Last observed version of each object, in 24 bytes each. A list after an interruption then reveals exactly the objects that were edited.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
};

use hashbrown::HashTable;
use kube::{Resource, core::ObjectMeta};

use super::LABEL;
use crate::{cache::Brought, cluster::ClusterRef};

/// Edit of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edit {
    /// Cluster that the object names, in the namespace of the object.
    pub(super) cluster: ClusterRef,
    /// Hash of the new version; `None` if it is unknown.
    pub(super) version: Option<u64>,
}

/// Hashes of Clusters with deleted objects.
#[derive(Debug)]
pub struct Gone {
    clusters: HashSet<u64>,
    hashes: RandomState,
}

/// Meaning of an event of a list or watch.
#[derive(Debug)]
pub(super) enum Taken {
    Nothing,
    Edited(Edit),
    Gone(Gone),
}

/// Versions of the objects of one watch.
#[derive(Debug)]
pub(super) struct Versions {
    objects: HashTable<ObservedVersion>,
    hashes: RandomState,
    /// Objects of the list in progress.
    listed: Option<HashSet<u64>>,
    /// Whether a list completed before. Objects of the first list are no edits.
    was_filled: bool,
}

/// Observed version of one object. All three fields are hashes.
#[derive(Debug)]
struct ObservedVersion {
    object: u64,
    version: u64,
    cluster: u64,
}

impl Gone {
    /// Returns the Clusters of `clusters` with deleted objects.
    pub fn of(&self, clusters: impl IntoIterator<Item = ClusterRef>) -> Vec<ClusterRef> {
        let is_affected = |cluster: &ClusterRef| self.clusters.contains(&self.hashes.hash_one(cluster));
        clusters.into_iter().filter(is_affected).collect()
    }
}

impl Versions {
    /// Size of one entry, in bytes.
    #[cfg(test)]
    pub(super) const SIZE: usize = size_of::<ObservedVersion>();

    pub(super) fn new(hashes: RandomState) -> Self {
        Self {
            objects: HashTable::new(),
            hashes,
            listed: None,
            was_filled: false,
        }
    }

    /// Observes an event of the list or watch.
    pub(super) fn take<K: Resource>(&mut self, brought: &Brought<'_, K>) -> Taken {
        let edited = match brought {
            Brought::List => {
                self.listed = Some(HashSet::new());
                None
            }
            Brought::Listed(object) | Brought::Touched(object) => self.put(object.meta()),
            Brought::Gone(object) => self.remove(object.meta()),
            Brought::Filled => return self.filled(),
        };
        edited.map_or(Taken::Nothing, Taken::Edited)
    }

    /// Whether `secret` is the last observed version of an object, and no list is in progress that may show a later one.
    pub(super) fn has(&self, secret: &ObjectMeta) -> bool {
        let (object, version) = (self.object(secret), version(&self.hashes, secret));
        let seen = self.objects.find(object, |seen| seen.object == object);
        self.was_filled && self.listed.is_none() && seen.is_some_and(|seen| seen.version == version)
    }

    fn put(&mut self, meta: &ObjectMeta) -> Option<Edit> {
        let (object, version) = (self.object(meta), version(&self.hashes, meta));
        let Some(cluster) = cluster(meta) else {
            // Its label is empty now, and the version before is no more the last one.
            if let Some(known) = self.objects.find_mut(object, |other| other.object == object) {
                known.version = version;
            }
            return None;
        };
        let seen = ObservedVersion {
            object,
            version,
            cluster: self.hashes.hash_one(&cluster),
        };
        let listed = self.listed.as_mut();
        let is_listed = listed.is_some_and(|listed| listed.insert(object));
        let known = self.objects.find_mut(object, |other| other.object == object);
        let is_edited = if let Some(known) = known {
            std::mem::replace(known, seen).version != version
        } else {
            self.objects.insert_unique(object, seen, |seen| seen.object);
            // Objects of the first list existed before.
            self.was_filled || !is_listed
        };
        is_edited.then_some(Edit {
            cluster,
            version: Some(version),
        })
    }

    fn remove(&mut self, meta: &ObjectMeta) -> Option<Edit> {
        let object = self.object(meta);
        if let Ok(known) = self.objects.find_entry(object, |other| other.object == object) {
            known.remove();
        }
        let uid = ObjectMeta {
            uid: meta.uid.clone(),
            ..ObjectMeta::default()
        };
        Some(Edit {
            cluster: cluster(meta)?,
            version: Some(version(&self.hashes, &uid)),
        })
    }

    /// Completes the list: objects that it did not contain are deleted.
    fn filled(&mut self) -> Taken {
        self.was_filled = true;
        let Some(listed) = self.listed.take() else {
            return Taken::Nothing;
        };
        let mut clusters = HashSet::new();
        self.objects.retain(|seen| {
            let is_there = listed.contains(&seen.object);
            if !is_there {
                clusters.insert(seen.cluster);
            }
            is_there
        });
        self.objects.shrink_to_fit(|seen| seen.object);
        if clusters.is_empty() {
            return Taken::Nothing;
        }
        let hashes = self.hashes.clone();
        Taken::Gone(Gone { clusters, hashes })
    }

    fn object(&self, meta: &ObjectMeta) -> u64 {
        self.hashes.hash_one((&meta.namespace, &meta.name))
    }
}

/// Returns the Cluster that an object names.
fn cluster(meta: &ObjectMeta) -> Option<ClusterRef> {
    let name = meta.labels.as_ref()?.get(LABEL).filter(|name| !name.is_empty())?;
    Some(ClusterRef::new(meta.namespace.as_deref()?, name))
}

/// Returns a hash of the version of an object. For a deleted object it omits the resourceVersion, because API servers report different
/// ones.
pub(super) fn version(hashes: &RandomState, meta: &ObjectMeta) -> u64 {
    hashes.hash_one((&meta.uid, &meta.resource_version))
}
