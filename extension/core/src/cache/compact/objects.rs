//! Packed objects of one kind.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use hashbrown::{HashTable, hash_table::Entry as Slot};
use kube::core::ObjectMeta;

use super::{
    Kept, Packed, Packer, TooLarge,
    entry::{Entry, measured, unpacked},
};
use crate::{cluster::ClusterRef, decode::Undecodable};

/// Change by a list or watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object is new or changed.
    Changed,
    /// Only the resourceVersion changed.
    Same,
    /// The object changed, and readers observe the change at the end of the list.
    SetAside,
}

/// Changes by a completed list.
#[derive(Debug)]
pub struct Listed<K> {
    /// Namespace and name of each new or changed object.
    pub changed: Vec<ClusterRef>,
    /// Objects that are deleted or no longer decodable.
    pub gone: Gone<K>,
    /// New or changed undecodable objects.
    pub undecodable: Vec<Arc<Undecodable>>,
    /// Undecodable objects that are deleted or decodable again.
    pub undecodable_gone: Vec<Arc<Undecodable>>,
}

/// Deleted objects, packed: there may be too many for memory otherwise.
#[derive(Debug)]
pub struct Gone<K> {
    packer: Arc<Packer<K>>,
    entries: Vec<Entry>,
}

impl<K: Kept> Gone<K> {
    /// Returns the objects, unpacked one at a time.
    pub fn iter(&self) -> impl Iterator<Item = K> {
        self.entries.iter().map(|entry| unpacked(&self.packer, entry))
    }
}

/// Packed objects of one kind, indexed by namespace and name, and by Cluster if they belong to one.
#[derive(Debug)]
pub struct Objects<K> {
    packer: Arc<Packer<K>>,
    table: HashTable<Entry>,
    /// Cluster of each object that belongs to one, as hashes of keys.
    placed: HashMap<u64, u64>,
    hasher: RandomState,
    /// Number of the last list.
    list: u32,
    /// Whether a list completed, so that readers rely on complete content.
    filled: bool,
    /// Changes by the list in progress. A list arrives in the order of names, so between two pages readers would observe a mix of new and
    /// old states that never existed.
    aside: Option<Vec<Aside>>,
    /// Undecodable objects by key, each with the number of the latest list before its last update.
    undecodable: BTreeMap<String, (u32, Arc<Undecodable>)>,
}

/// Changed object of a list in progress.
#[derive(Debug)]
enum Aside {
    Object(Placed),
    /// With the hash of its key.
    Undecodable(u64, Arc<Undecodable>),
}

impl Aside {
    /// Hash of its key.
    fn own(&self) -> u64 {
        match self {
            Self::Object(placed) => placed.own,
            Self::Undecodable(own, _) => *own,
        }
    }
}

/// Object with its index keys.
#[derive(Debug)]
struct Placed {
    /// Hash of its key.
    own: u64,
    /// Hash of the key of its Cluster, if it belongs to one.
    cluster: Option<u64>,
    entry: Entry,
}

impl<K: Kept> Packer<K> {
    /// Packs an object for [`Objects::put`], without its resourceVersion, which may change alone.
    ///
    /// # Errors
    /// The object exceeds the size limit of its kind.
    pub fn pack_kept(&self, object: &mut K) -> Result<Packed, TooLarge> {
        let revision = object.meta_mut().resource_version.take();
        let json = serde_json::to_vec(object);
        object.meta_mut().resource_version = revision;
        let json = match json {
            Ok(json) => json,
            Err(error) => unreachable!("{:?} is no JSON: {error}", object.meta().name),
        };
        self.pack_within(json, K::KEPT)
    }
}

/// Returns the key of an object.
fn key(namespace: Option<&str>, name: &str) -> String {
    format!("{}/{name}", namespace.unwrap_or_default())
}

fn key_of(meta: &ObjectMeta) -> String {
    key(
        meta.namespace.as_deref(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

impl<K: Kept> Objects<K> {
    /// Returns an empty collection.
    #[must_use]
    pub fn new(packer: Arc<Packer<K>>) -> Self {
        Self {
            packer,
            table: HashTable::new(),
            placed: HashMap::new(),
            hasher: RandomState::new(),
            list: 0,
            filled: false,
            aside: None,
            undecodable: BTreeMap::new(),
        }
    }

    /// Starts a list of all objects. Readers observe its changes after [`Self::listed`]. Changes of the first list are visible immediately,
    /// because no reader depends on an incomplete first list.
    pub fn list(&mut self) {
        self.list = self.list.wrapping_add(1);
        self.aside = self.filled.then(Vec::new);
    }

    /// Completes the list.
    pub fn listed(&mut self) -> Listed<K> {
        let (mut changed, mut gone) = (Vec::new(), Vec::new());
        let (mut undecodable, mut undecodable_gone) = (Vec::new(), Vec::new());
        let aside = self.aside.take().unwrap_or_default();
        // An object that is edited during the list occurs twice in it. An event for each would report the second as deleted.
        let last: HashMap<u64, usize> = aside
            .iter()
            .enumerate()
            .map(|(at, aside)| (aside.own(), at))
            .collect();
        for (at, aside) in aside.into_iter().enumerate() {
            if last.get(&aside.own()) != Some(&at) {
                continue;
            }
            match aside {
                Aside::Object(placed) => {
                    let name = placed.entry.name();
                    changed.extend(name.map(|(namespace, name)| ClusterRef::new(namespace, name)));
                    undecodable_gone.extend(self.place(placed));
                }
                Aside::Undecodable(_, object) => {
                    gone.extend(self.place_undecodable(Arc::clone(&object)));
                    undecodable.push(object);
                }
            }
        }
        self.filled = true;
        let current = self.list;
        self.undecodable.retain(|_, (list, object)| {
            let is_there = *list == current;
            if !is_there {
                undecodable_gone.push(Arc::clone(object));
            }
            is_there
        });
        let Self {
            packer,
            table,
            placed,
            hasher,
            list,
            ..
        } = self;
        let not_listed = table.extract_if(|entry| entry.list() != *list);
        gone.extend(not_listed.inspect(|entry| {
            placed.remove(&hasher.hash_one(entry.key()));
        }));
        table.shrink_to(0, |entry| place(placed, hasher, entry.key()));
        Listed {
            changed,
            gone: Gone {
                packer: Arc::clone(packer),
                entries: gone,
            },
            undecodable,
            undecodable_gone,
        }
    }

    /// Stores `object` of a list or watch, with `packed` from the packer of these objects. Returns the replaced object if it was
    /// undecodable.
    pub fn put(&mut self, object: &K, packed: &Packed) -> (Change, Option<Arc<Undecodable>>) {
        let key = key_of(object.meta());
        let own = self.hasher.hash_one(key.as_bytes());
        let cluster = object.cluster().map(|cluster| {
            let by = self::key(object.meta().namespace.as_deref(), &cluster);
            self.hasher.hash_one(by.as_bytes())
        });
        let uid = self.hash_of_uid(object.meta().uid.as_deref().unwrap_or_default());
        let revision = object.meta().resource_version.as_deref().unwrap_or_default();
        let entry = Entry::new(&key, revision, packed, self.list, uid);
        let is_same = self
            .find(key.as_bytes())
            .is_some_and(|there| there.content == packed.content);
        let placed = Placed { own, cluster, entry };
        match &mut self.aside {
            // A streamed list may deliver an unchanged object again.
            Some(aside) if !is_same || aside.iter().any(|before| before.own() == own) => {
                aside.push(Aside::Object(placed));
                return (Change::SetAside, None);
            }
            _ => {}
        }
        let mended = self.place(placed);
        (if is_same { Change::Same } else { Change::Changed }, mended)
    }

    /// Stores an undecodable object of a list or watch. Returns the replaced object if it was decodable, because its state is outdated.
    pub fn put_undecodable(&mut self, object: &Undecodable) -> (Change, Option<K>) {
        let key = key_of(&object.metadata);
        let own = self.hasher.hash_one(key.as_bytes());
        let is_same = self
            .undecodable
            .get(&key)
            .is_some_and(|(_, there)| is_same(there, object));
        match &mut self.aside {
            Some(aside) if !is_same || aside.iter().any(|before| before.own() == own) => {
                aside.push(Aside::Undecodable(own, Arc::new(object.clone())));
                return (Change::SetAside, None);
            }
            _ => {}
        }
        let before = self.place_undecodable(Arc::new(object.clone()));
        let before = before.map(|entry| unpacked(&self.packer, &entry));
        (if is_same { Change::Same } else { Change::Changed }, before)
    }

    fn place_undecodable(&mut self, object: Arc<Undecodable>) -> Option<Entry> {
        let key = key_of(&object.metadata);
        let before = self.take(key.as_bytes());
        self.undecodable.insert(key, (self.list, object));
        before
    }

    /// Replaces the object of the same key. Returns the replaced object if it was undecodable.
    fn place(&mut self, Placed { own, cluster, entry }: Placed) -> Option<Arc<Undecodable>> {
        if self.placed.get(&own).copied() != cluster {
            // The object belongs to another Cluster now.
            self.take(entry.key());
        }
        let mended = entry.name().filter(|_| !self.undecodable.is_empty());
        let mended =
            mended.and_then(|(namespace, name)| self.undecodable.remove(&key(Some(namespace), name)));
        let Self {
            table,
            placed,
            hasher,
            ..
        } = self;
        let at = cluster.unwrap_or(own);
        let hash = |entry: &Entry| place(placed, hasher, entry.key());
        match table.entry(at, |there| there.key() == entry.key(), hash) {
            Slot::Occupied(mut there) => *there.get_mut() = entry,
            Slot::Vacant(free) => drop(free.insert(entry)),
        }
        if let Some(cluster) = cluster {
            placed.insert(own, cluster);
        }
        mended.map(|(_, object)| object)
    }

    /// Packs and stores an object.
    #[cfg(test)]
    pub(super) fn insert(&mut self, object: &K) -> Change
    where
        K: Clone,
    {
        let packed = self.packer.pack_kept(&mut object.clone()).expect("an object");
        self.put(object, &packed).0
    }

    /// Removes the object with this metadata. Returns the removed object, decodable or not.
    pub fn remove(&mut self, meta: &ObjectMeta) -> (Option<K>, Option<Arc<Undecodable>>) {
        let key = key_of(meta);
        let before = self
            .take(key.as_bytes())
            .map(|entry| unpacked(&self.packer, &entry));
        let undecodable = self.undecodable.remove(&key);
        (before, undecodable.map(|(_, object)| object))
    }

    fn take(&mut self, key: &[u8]) -> Option<Entry> {
        let at = place(&self.placed, &self.hasher, key);
        let there = self.table.find_entry(at, |entry| entry.key() == key).ok();
        let taken = there.map(|there| there.remove().0);
        self.placed.remove(&self.hasher.hash_one(key));
        taken
    }

    fn find(&self, key: &[u8]) -> Option<&Entry> {
        let at = place(&self.placed, &self.hasher, key);
        self.table.find(at, |entry| entry.key() == key)
    }

    /// Removes all objects.
    pub fn clear(&mut self) {
        (self.table, self.placed, self.aside) = (HashTable::new(), HashMap::new(), None);
        self.undecodable.clear();
        self.filled = true;
    }

    /// Returns the object of this name; the namespace is `None` for cluster-scoped kinds.
    #[must_use]
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<K> {
        self.measured(namespace, name).map(|(object, _)| object)
    }

    /// Returns the object of this name and its size in memory, in bytes.
    #[must_use]
    pub fn measured(&self, namespace: Option<&str>, name: &str) -> Option<(K, usize)> {
        let found = self.find(key(namespace, name).as_bytes());
        found.map(|entry| measured(&self.packer, entry))
    }

    /// Returns the objects that belong to a Cluster.
    #[must_use]
    pub fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<K> {
        let at = self.hasher.hash_one(key(Some(namespace), cluster).as_bytes());
        let belongs = |object: &K| {
            object.meta().namespace.as_deref() == Some(namespace)
                && object.cluster().as_deref() == Some(cluster)
        };
        let near = self.table.iter_hash(at);
        near.map(|entry| unpacked(&self.packer, entry))
            .filter(belongs)
            .collect()
    }

    /// Returns the object of this name, if it cannot be decoded.
    #[must_use]
    pub fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
        if self.undecodable.is_empty() {
            return None;
        }
        let (_, found) = self.undecodable.get(&key(namespace, name))?;
        Some(Arc::clone(found))
    }

    /// Returns the first object that belongs to a Cluster and cannot be decoded, if there is one.
    #[must_use]
    pub fn undecodable_of(&self, namespace: &str, cluster: &str) -> Option<Arc<Undecodable>> {
        let belongs = |meta: &ObjectMeta| {
            meta.namespace.as_deref() == Some(namespace) && K::cluster_of(meta).as_deref() == Some(cluster)
        };
        let mut all = self.all_undecodable();
        all.find(|object| belongs(&object.metadata)).cloned()
    }

    /// Returns all undecodable objects, by namespace and name.
    pub fn all_undecodable(&self) -> impl Iterator<Item = &Arc<Undecodable>> {
        self.undecodable.values().map(|(_, object)| object)
    }

    /// Returns all objects, unpacked one at a time.
    pub fn iter(&self) -> impl Iterator<Item = K> {
        self.table.iter().map(|entry| unpacked(&self.packer, entry))
    }

    /// Returns namespace and name of each object.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.table.iter().filter_map(Entry::name)
    }

    /// Returns the UIDs of `uids` without an object.
    pub fn missing<'a>(&self, uids: impl Iterator<Item = &'a str>) -> Vec<String> {
        let there: HashSet<u64> = self.table.iter().map(|entry| entry.uid).collect();
        let missing = uids.filter(|uid| !there.contains(&self.hash_of_uid(uid)));
        missing.map(str::to_owned).collect()
    }

    /// Returns the number of decodable objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there is no decodable object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    fn hash_of_uid(&self, uid: &str) -> u64 {
        self.hasher.hash_one(uid)
    }
}

/// Returns whether two undecodable objects differ only in their resourceVersion.
fn is_same(before: &Undecodable, now: &Undecodable) -> bool {
    let content = |object: &Undecodable| {
        let mut object = object.clone();
        object.metadata.resource_version = None;
        object
    };
    content(before) == content(now)
}

/// Returns the hash of the index entry of the object with `key`.
fn place(placed: &HashMap<u64, u64>, hasher: &RandomState, key: &[u8]) -> u64 {
    let own = hasher.hash_one(key);
    placed.get(&own).copied().unwrap_or(own)
}

#[cfg(test)]
mod tests;
