//! All objects of one kind.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use hashbrown::{HashTable, hash_table::Entry as Slot};

use super::{
    Kept, Packed, Packer,
    entry::{Entry, unpacked},
};
use crate::cluster::ClusterRef;

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
    /// What is there no more.
    pub gone: Vec<K>,
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
    aside: Option<Vec<Placed>>,
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
    /// It cannot be written as JSON.
    pub fn pack_kept(&self, object: &mut K) -> serde_json::Result<Packed> {
        let revision = object.meta_mut().resource_version.take();
        let packed = self.pack(object);
        object.meta_mut().resource_version = revision;
        packed
    }
}

/// What an object is found by.
fn key(namespace: Option<&str>, name: &str) -> String {
    format!("{}/{name}", namespace.unwrap_or_default())
}

fn key_of(object: &impl Kept) -> String {
    let meta = object.meta();
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
        let mut changed = Vec::new();
        for placed in self.aside.take().unwrap_or_default() {
            let name = placed.entry.name();
            changed.extend(name.map(|(namespace, name)| ClusterRef::new(namespace, name)));
            self.place(placed);
        }
        self.filled = true;
        let Self {
            packer,
            table,
            placed,
            hasher,
            list,
            ..
        } = self;
        let gone = table.extract_if(|entry| entry.list() != *list);
        let gone = gone.map(|entry| {
            placed.remove(&hasher.hash_one(entry.key()));
            unpacked(packer, &entry)
        });
        let gone = gone.collect();
        table.shrink_to(0, |entry| place(placed, hasher, entry.key()));
        Listed { changed, gone }
    }

    /// A list or a watch brings `object`, which was packed to `packed` by the packer of these objects.
    pub fn put(&mut self, object: &K, packed: &Packed) -> Change {
        let key = key_of(object);
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
            Some(aside) if !is_same || aside.iter().any(|before| before.own == own) => {
                aside.push(placed);
                return Change::SetAside;
            }
            _ => self.place(placed),
        }
        if is_same { Change::Same } else { Change::Changed }
    }

    /// An object takes the place of the one of its name.
    fn place(&mut self, Placed { own, cluster, entry }: Placed) {
        if self.placed.get(&own).copied() != cluster {
            // It belongs to another Cluster now.
            self.take(entry.key());
        }
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
    }

    /// The same for an object that is not packed yet.
    #[cfg(test)]
    pub(super) fn insert(&mut self, object: &K) -> Change
    where
        K: Clone,
    {
        let packed = self.packer.pack_kept(&mut object.clone()).expect("an object");
        self.put(object, &packed)
    }

    /// `object` is gone.
    pub fn remove(&mut self, object: &K) {
        self.take(key_of(object).as_bytes());
    }

    fn take(&mut self, key: &[u8]) {
        let at = place(&self.placed, &self.hasher, key);
        if let Ok(there) = self.table.find_entry(at, |entry| entry.key() == key) {
            there.remove();
        }
        self.placed.remove(&self.hasher.hash_one(key));
    }

    fn find(&self, key: &[u8]) -> Option<&Entry> {
        let at = place(&self.placed, &self.hasher, key);
        self.table.find(at, |entry| entry.key() == key)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        (self.table, self.placed, self.aside) = (HashTable::new(), HashMap::new(), None);
        self.filled = true;
    }

    /// The object of this name; kinds without namespaces have none.
    #[must_use]
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<K> {
        let found = self.find(key(namespace, name).as_bytes());
        found.map(|entry| unpacked(&self.packer, entry))
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

/// The hash by which the object with `key` is found.
fn place(placed: &HashMap<u64, u64>, hasher: &RandomState, key: &[u8]) -> u64 {
    let own = hasher.hash_one(key);
    placed.get(&own).copied().unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;
    use sluice_crds::{foreign::MachineDeployment, labels::label};

    use super::*;

    /// A worker of a Cluster in namespace `ns`.
    fn worker(name: &str, cluster: &str, version: u8) -> MachineDeployment {
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "ns", "name": name, "uid": format!("uid of {name}"), "resourceVersion": version.to_string(),
                "labels": {label::CAPI_CLUSTER_NAME: cluster},
            },
            "spec": {"template": {"spec": {"version": format!("v1.36.{version}")}}},
        }))
        .unwrap()
    }

    fn objects() -> Objects<MachineDeployment> {
        Objects::new(Arc::default())
    }

    #[test]
    fn a_list_replaces_what_was_there() {
        let mut objects = objects();
        let (one, two, again) = (
            worker("one", "a", 1),
            worker("two", "a", 1),
            worker("two", "a", 2),
        );
        objects.list();
        assert_eq!(objects.insert(&one), Change::Changed);
        assert_eq!(objects.insert(&two), Change::Changed);
        assert_eq!(objects.listed().gone, []);
        objects.list();
        assert_eq!(objects.insert(&two), Change::Same);
        assert_eq!(objects.len(), 2, "nothing is gone before the list is over");
        assert_eq!(objects.listed().gone, [one]);
        assert_eq!(objects.insert(&again), Change::Changed);
        assert_eq!(objects.get(Some("ns"), "two"), Some(again));
        assert_eq!(objects.get(Some("ns"), "one"), None);
        objects.clear();
        assert!(objects.is_empty() && objects.iter().next().is_none());
    }

    #[test]
    fn an_object_that_moves_to_another_cluster_is_found_there_only() {
        let mut objects = objects();
        objects.insert(&worker("one", "a", 1));
        let moved = worker("one", "b", 2);
        objects.insert(&moved);
        assert_eq!(objects.of_cluster("ns", "a"), []);
        assert_eq!(objects.of_cluster("ns", "b"), std::slice::from_ref(&moved));
        assert_eq!(objects.of_cluster("other", "b"), []);
        assert_eq!(objects.get(Some("ns"), "one"), Some(moved.clone()));
        objects.remove(&moved);
        assert!(objects.is_empty() && objects.placed.is_empty(), "{objects:?}");
    }

    #[test]
    fn another_object_of_the_name_is_a_change() {
        let mut objects = objects();
        let (one, mut other) = (worker("one", "a", 1), worker("one", "a", 1));
        other.metadata.uid = Some("another".to_owned());
        objects.insert(&one);
        assert_eq!(objects.insert(&other), Change::Changed);
        assert_eq!(
            objects.missing(["another", "uid of one"].into_iter()),
            ["uid of one"]
        );
    }

    /// What a server does, in the order in which a watch and lists show it.
    #[derive(Clone, Debug)]
    enum Event {
        Put(u8, u8, u8),
        Remove(u8),
        List(BTreeMap<u8, u8>),
        /// A list that ends before its last page.
        Interrupted(BTreeMap<u8, u8>),
    }

    fn event() -> impl Strategy<Value = Event> {
        let list = || proptest::collection::btree_map(0..12u8, 0..3u8, 0..12);
        prop_oneof![
            6 => (0..12u8, 0..3u8, any::<u8>()).prop_map(|(name, cluster, version)| Event::Put(name, cluster, version)),
            2 => (0..12u8).prop_map(Event::Remove),
            1 => list().prop_map(Event::List),
            1 => list().prop_map(Event::Interrupted),
        ]
    }

    proptest! {
        /// The same as a map of whole objects.
        #[test]
        fn objects_are_as_the_server_has_them(events in proptest::collection::vec(event(), 0..60)) {
            let (mut objects, mut server) = (objects(), HashMap::new());
            let object = |name: u8, cluster: u8, version| worker(&name.to_string(), &format!("c{cluster}"), version);
            for event in events {
                match event {
                    Event::Put(name, cluster, version) => {
                        let object = object(name, cluster, version);
                        objects.insert(&object);
                        server.insert(name, object);
                    }
                    Event::Remove(name) => {
                        if let Some(object) = server.remove(&name) {
                            objects.remove(&object);
                        }
                    }
                    Event::Interrupted(listed) => {
                        objects.list();
                        for (name, cluster) in listed {
                            let object = object(name, cluster, 7);
                            if objects.insert(&object) != Change::SetAside {
                                server.insert(name, object);
                            }
                        }
                        // The next one is begun at once.
                        objects.aside = None;
                    }
                    Event::List(listed) => {
                        objects.list();
                        let before = std::mem::take(&mut server);
                        for (name, cluster) in listed {
                            let object = object(name, cluster, 7);
                            objects.insert(&object);
                            server.insert(name, object);
                        }
                        let mut gone: Vec<_> = objects.listed().gone.iter().map(|gone| gone.metadata.name.clone()).collect();
                        gone.sort();
                        let mut expected: Vec<_> = before.iter().filter(|(name, _)| !server.contains_key(name))
                            .map(|(_, object)| object.metadata.name.clone()).collect();
                        expected.sort();
                        prop_assert_eq!(gone, expected);
                    }
                }
                prop_assert_eq!(objects.len(), server.len());
                prop_assert_eq!(objects.names().count(), server.len());
                for name in 0..12u8 {
                    let found = objects.get(Some("ns"), &name.to_string());
                    prop_assert_eq!(found.as_ref(), server.get(&name));
                }
                for cluster in 0..3u8 {
                    let cluster = format!("c{cluster}");
                    let mut found = objects.of_cluster("ns", &cluster);
                    found.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
                    let mut expected: Vec<_> = server.values().filter(|object| object.cluster().as_ref() == Some(&cluster)).cloned().collect();
                    expected.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
