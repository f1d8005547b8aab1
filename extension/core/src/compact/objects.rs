//! All objects of one kind.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use hashbrown::{HashTable, hash_table::Entry as Slot};

use super::{Kept, Packed, Packer};

/// What a list or a watch has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object is new, or another one than before.
    Changed,
    /// It is as it was.
    Same,
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
}

/// One object. There are hundreds of thousands: see [`Head`] for what is in front of the packed bytes.
#[derive(Debug)]
struct Entry {
    /// Head, key and packed object.
    bytes: Box<[u8]>,
    /// Hash of its UID.
    uid: u64,
    /// Hash of its UID and its resourceVersion.
    revision: u64,
}

/// What is in front of the key.
#[derive(Debug, Clone, Copy)]
struct Head {
    /// The number of the list after whose beginning it was last brought.
    list: u32,
    /// Length of the key.
    key: u32,
    /// Length of the object's JSON where it is compressed, else 0.
    json: u32,
}

impl Head {
    const LENGTH: usize = 12;

    fn bytes(self) -> impl Iterator<Item = u8> {
        let numbers = [self.list, self.key, self.json];
        numbers.into_iter().flat_map(u32::to_le_bytes)
    }

    fn of(bytes: &[u8]) -> Self {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            u32::from_le_bytes(bytes.unwrap_or_default())
        };
        Self {
            list: number(0),
            key: number(4),
            json: number(8),
        }
    }
}

impl Entry {
    fn new(key: &str, packed: &Packed, list: u32, (uid, revision): (u64, u64)) -> Self {
        let head = Head {
            list,
            key: u32::try_from(key.len()).unwrap_or(u32::MAX),
            json: packed.length,
        };
        let parts = head.bytes().chain(key.bytes());
        let mut bytes = Vec::with_capacity(Head::LENGTH + key.len() + packed.bytes.len());
        bytes.extend(parts);
        bytes.extend_from_slice(&packed.bytes);
        Self {
            bytes: bytes.into_boxed_slice(),
            uid,
            revision,
        }
    }

    fn head(&self) -> Head {
        Head::of(&self.bytes)
    }

    /// The key and the packed object.
    fn parts(&self) -> (&[u8], &[u8]) {
        let key = usize::try_from(self.head().key).unwrap_or(usize::MAX);
        let rest = self.bytes.get(Head::LENGTH..).unwrap_or_default();
        rest.split_at_checked(key).unwrap_or((rest, &[]))
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
        }
    }

    /// A list of all objects begins. Those that it does not bring are there until [`Self::listed`].
    pub fn list(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// The list has brought all objects. Returns those that are there no more.
    pub fn listed(&mut self) -> Vec<K> {
        let Self {
            packer,
            table,
            placed,
            hasher,
            list,
        } = self;
        let gone = table.extract_if(|entry| entry.head().list != *list);
        let gone = gone.map(|entry| {
            placed.remove(&hasher.hash_one(entry.parts().0));
            unpacked(packer, &entry)
        });
        let gone = gone.collect();
        table.shrink_to(0, |entry| place(placed, hasher, entry.parts().0));
        gone
    }

    /// A list or a watch brings `object`, which was packed to `packed` by the packer of these objects.
    pub fn put(&mut self, object: &K, packed: &Packed) -> Change {
        let key = key_of(object);
        let own = self.hasher.hash_one(key.as_bytes());
        let cluster = object.cluster().map(|cluster| {
            let by = self::key(object.meta().namespace.as_deref(), &cluster);
            self.hasher.hash_one(by.as_bytes())
        });
        if self.placed.get(&own).copied() != cluster {
            // It belongs to another Cluster now.
            self.remove(object);
        }
        let uid = self.hash_of_uid(object.meta().uid.as_deref().unwrap_or_default());
        let revision = self.hasher.hash_one((uid, &object.meta().resource_version));
        let Self {
            table,
            placed,
            hasher,
            list,
            ..
        } = self;
        let mut entry = Entry::new(&key, packed, *list, (uid, revision));
        let at = cluster.unwrap_or(own);
        let hash = |entry: &Entry| place(placed, hasher, entry.parts().0);
        let change = match table.entry(at, |entry| entry.parts().0 == key.as_bytes(), hash) {
            Slot::Occupied(mut there) => {
                let there = there.get_mut();
                std::mem::swap(there, &mut entry);
                if entry.revision == there.revision {
                    Change::Same
                } else {
                    Change::Changed
                }
            }
            Slot::Vacant(free) => {
                free.insert(entry);
                Change::Changed
            }
        };
        if let Some(cluster) = cluster {
            placed.insert(own, cluster);
        }
        change
    }

    /// The same for an object that is not packed yet.
    #[cfg(test)]
    pub(super) fn insert(&mut self, object: &K) -> Change {
        let packed = self.packer.pack(object).expect("an object");
        self.put(object, &packed)
    }

    /// `object` is gone.
    pub fn remove(&mut self, object: &K) {
        let key = key_of(object);
        let at = place(&self.placed, &self.hasher, key.as_bytes());
        if let Ok(there) = self
            .table
            .find_entry(at, |entry| entry.parts().0 == key.as_bytes())
        {
            there.remove();
        }
        self.placed.remove(&self.hasher.hash_one(key.as_bytes()));
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        (self.table, self.placed) = (HashTable::new(), HashMap::new());
    }

    /// The object of this name; kinds without namespaces have none.
    #[must_use]
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<K> {
        let key = key(namespace, name);
        let at = place(&self.placed, &self.hasher, key.as_bytes());
        let found = self.table.find(at, |entry| entry.parts().0 == key.as_bytes());
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
        let keys = self.table.iter().map(|entry| entry.parts().0);
        keys.filter_map(|key| std::str::from_utf8(key).ok()?.split_once('/'))
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

/// The object, which the same packer has packed. Anything else is a bug, and an object that is taken for absent may open a gate.
fn unpacked<K: Kept>(packer: &Packer<K>, entry: &Entry) -> K {
    let (key, content) = entry.parts();
    match packer.unpack(content, entry.head().json) {
        Ok(object) => object,
        Err(error) => unreachable!("object {:?} in memory: {error}", String::from_utf8_lossy(key)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
            "spec": {"template": {"spec": {"version": "v1.36.3"}}},
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
        assert_eq!(objects.listed(), []);
        objects.list();
        assert_eq!(objects.insert(&two), Change::Same);
        assert_eq!(objects.len(), 2, "nothing is gone before the list is over");
        assert_eq!(objects.listed(), [one]);
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
        List(BTreeSet<(u8, u8)>),
        /// A list that ends before its last page.
        Interrupted(BTreeSet<(u8, u8)>),
    }

    fn event() -> impl Strategy<Value = Event> {
        let list = || proptest::collection::btree_set((0..12u8, 0..3u8), 0..12);
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
                            objects.insert(&object);
                            server.insert(name, object);
                        }
                    }
                    Event::List(listed) => {
                        objects.list();
                        let before = std::mem::take(&mut server);
                        for (name, cluster) in listed {
                            let object = object(name, cluster, 7);
                            objects.insert(&object);
                            server.insert(name, object);
                        }
                        let mut gone: Vec<_> = objects.listed().iter().map(|gone| gone.metadata.name.clone()).collect();
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
