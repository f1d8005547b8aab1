//! All objects of one kind.

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

/// What a list or a watch has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object is new, or another one than before.
    Changed,
    /// It is as it was, except for its resourceVersion.
    Same,
    /// It is not as it was, which is seen when the list is over.
    SetAside,
}

/// What a list has changed that is over.
#[derive(Debug)]
pub struct Listed<K> {
    /// Namespace and name of each object that is new, or another one than before.
    pub changed: Vec<ClusterRef>,
    /// What is there no more, or cannot be decoded any more.
    pub gone: Gone<K>,
    /// Each object that cannot be decoded, and that is new or another one than before.
    pub undecodable: Vec<Arc<Undecodable>>,
    /// What could not be decoded, and is there no more or can be decoded now.
    pub undecodable_gone: Vec<Arc<Undecodable>>,
}

/// Objects that are there no more, packed: there may be so many that they would not fit into memory otherwise.
#[derive(Debug)]
pub struct Gone<K> {
    packer: Arc<Packer<K>>,
    entries: Vec<Entry>,
}

impl<K: Kept> Gone<K> {
    /// Each object, unpacked when its turn comes.
    pub fn iter(&self) -> impl Iterator<Item = K> {
        self.entries.iter().map(|entry| unpacked(&self.packer, entry))
    }
}

/// The objects of one kind by namespace and name, packed. Those that belong to a Cluster are found by it as well.
#[derive(Debug)]
pub struct Objects<K> {
    packer: Arc<Packer<K>>,
    table: HashTable<Entry>,
    /// The Cluster by which an object is found, where it is found by one. Hashes of keys.
    placed: HashMap<u64, u64>,
    hasher: RandomState,
    /// The number of the last list.
    list: u32,
    /// Whether a list was over once, so that readers rely on all of it.
    filled: bool,
    /// What the list that is under way has changed. A list comes in the order of names, so that between two pages readers would see new
    /// states of some objects beside old ones of others, in an order that never was.
    aside: Option<Vec<Aside>>,
    /// Objects that cannot be decoded, by key, each with the number of the list after whose beginning it was last brought.
    undecodable: BTreeMap<String, (u32, Arc<Undecodable>)>,
}

/// What a list has brought that is not as it was.
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

/// An object, and where it is found.
#[derive(Debug)]
struct Placed {
    /// Hash of its key.
    own: u64,
    /// That of its Cluster, where it is found by one.
    cluster: Option<u64>,
    entry: Entry,
}

impl<K: Kept> Packer<K> {
    /// Packs an object for [`Objects::put`]: without its resourceVersion, which changes where nothing else does.
    ///
    /// # Errors
    /// It takes more than an object of the kind may.
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

/// What an object is found by.
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
    /// None yet.
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

    /// A list of all objects begins. What it changes is seen once [`Self::listed`]; of the first one, which nothing rests on before it
    /// is over, as it comes.
    pub fn list(&mut self) {
        self.list = self.list.wrapping_add(1);
        self.aside = self.filled.then(Vec::new);
    }

    /// The list has brought all objects.
    pub fn listed(&mut self) -> Listed<K> {
        let (mut changed, mut gone) = (Vec::new(), Vec::new());
        let (mut undecodable, mut undecodable_gone) = (Vec::new(), Vec::new());
        let aside = self.aside.take().unwrap_or_default();
        // An object that is edited while the list comes is in it twice. An event for each would report as gone what the second brings.
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

    /// A list or a watch brings `object`, which was packed to `packed` by the packer of these objects. It takes the place of the one of its
    /// name, which is returned if it could not be decoded.
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
            // A list that is streamed may bring an object again, as it is known.
            Some(aside) if !is_same || aside.iter().any(|before| before.own() == own) => {
                aside.push(Aside::Object(placed));
                return (Change::SetAside, None);
            }
            _ => {}
        }
        let mended = self.place(placed);
        (if is_same { Change::Same } else { Change::Changed }, mended)
    }

    /// A list or a watch brings an object that cannot be decoded. It takes the place of the one of its name, which is returned if it could
    /// be decoded: what is known of it is out of date.
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

    /// An object takes the place of the one of its name, which is returned if it could not be decoded.
    fn place(&mut self, Placed { own, cluster, entry }: Placed) -> Option<Arc<Undecodable>> {
        if self.placed.get(&own).copied() != cluster {
            // It belongs to another Cluster now.
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

    /// The same for an object that is not packed yet.
    #[cfg(test)]
    pub(super) fn insert(&mut self, object: &K) -> Change
    where
        K: Clone,
    {
        let packed = self.packer.pack_kept(&mut object.clone()).expect("an object");
        self.put(object, &packed).0
    }

    /// The object with this metadata is gone. Returns what was there, decoded or not.
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

    /// Forgets all.
    pub fn clear(&mut self) {
        (self.table, self.placed, self.aside) = (HashTable::new(), HashMap::new(), None);
        self.undecodable.clear();
        self.filled = true;
    }

    /// The object of this name; kinds without namespaces have none.
    #[must_use]
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<K> {
        self.measured(namespace, name).map(|(object, _)| object)
    }

    /// The same, and how many bytes of memory it takes.
    #[must_use]
    pub fn measured(&self, namespace: Option<&str>, name: &str) -> Option<(K, usize)> {
        let found = self.find(key(namespace, name).as_bytes());
        found.map(|entry| measured(&self.packer, entry))
    }

    /// The objects that belong to a Cluster.
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

    /// The object of this name, if there is one that cannot be decoded.
    #[must_use]
    pub fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
        if self.undecodable.is_empty() {
            return None;
        }
        let (_, found) = self.undecodable.get(&key(namespace, name))?;
        Some(Arc::clone(found))
    }

    /// The first object that belongs to a Cluster and cannot be decoded, if there is one.
    #[must_use]
    pub fn undecodable_of(&self, namespace: &str, cluster: &str) -> Option<Arc<Undecodable>> {
        let belongs = |meta: &ObjectMeta| {
            meta.namespace.as_deref() == Some(namespace) && K::cluster_of(meta).as_deref() == Some(cluster)
        };
        let mut all = self.all_undecodable();
        all.find(|object| belongs(&object.metadata)).cloned()
    }

    /// All objects that cannot be decoded, by namespace and name.
    pub fn all_undecodable(&self) -> impl Iterator<Item = &Arc<Undecodable>> {
        self.undecodable.values().map(|(_, object)| object)
    }

    /// All objects, one after the other: each is unpacked when its turn comes.
    pub fn iter(&self) -> impl Iterator<Item = K> {
        self.table.iter().map(|entry| unpacked(&self.packer, entry))
    }

    /// Namespace and name of each object.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.table.iter().filter_map(Entry::name)
    }

    /// Those of `uids` that no object has.
    pub fn missing<'a>(&self, uids: impl Iterator<Item = &'a str>) -> Vec<String> {
        let there: HashSet<u64> = self.table.iter().map(|entry| entry.uid).collect();
        let missing = uids.filter(|uid| !there.contains(&self.hash_of_uid(uid)));
        missing.map(str::to_owned).collect()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    fn hash_of_uid(&self, uid: &str) -> u64 {
        self.hasher.hash_one(uid)
    }
}

/// Whether an object that cannot be decoded is as it was, except for its resourceVersion.
fn is_same(before: &Undecodable, now: &Undecodable) -> bool {
    let content = |object: &Undecodable| {
        let mut object = object.clone();
        object.metadata.resource_version = None;
        object
    };
    content(before) == content(now)
}

/// The hash by which the object with `key` is found.
fn place(placed: &HashMap<u64, u64>, hasher: &RandomState, key: &[u8]) -> u64 {
    let own = hasher.hash_one(key);
    placed.get(&own).copied().unwrap_or(own)
}

#[cfg(test)]
mod tests;
