//! All objects of one kind.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use hashbrown::{HashTable, hash_table::Entry as Slot};
use kube::core::ObjectMeta;

use super::{
    Kept, Packed, Packer,
    entry::{Entry, unpacked},
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
    pub gone: Vec<K>,
    /// Each object that cannot be decoded, and that is new or another one than before.
    pub undecodable: Vec<Arc<Undecodable>>,
    /// What could not be decoded, and is there no more or can be decoded now.
    pub undecodable_gone: Vec<Arc<Undecodable>>,
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
        for aside in self.aside.take().unwrap_or_default() {
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
        gone.extend(not_listed.map(|entry| {
            placed.remove(&hasher.hash_one(entry.key()));
            unpacked(packer, &entry)
        }));
        table.shrink_to(0, |entry| place(placed, hasher, entry.key()));
        Listed {
            changed,
            gone,
            undecodable,
            undecodable_gone,
        }
    }

    /// A list or a watch brings `object`, which was packed to `packed` by the packer of these objects.
    pub fn put(&mut self, object: &K, packed: &Packed) -> Change {
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
                return Change::SetAside;
            }
            _ => drop(self.place(placed)),
        }
        if is_same { Change::Same } else { Change::Changed }
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
        (if is_same { Change::Same } else { Change::Changed }, before)
    }

    fn place_undecodable(&mut self, object: Arc<Undecodable>) -> Option<K> {
        let key = key_of(&object.metadata);
        let before = self
            .take(key.as_bytes())
            .map(|entry| unpacked(&self.packer, &entry));
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
        self.put(object, &packed)
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

    fn undecodable(name: &str, cluster: &str, revision: &str, why: &str) -> Undecodable {
        let metadata = json!({
            "namespace": "ns", "name": name, "resourceVersion": revision, "labels": {label::CAPI_CLUSTER_NAME: cluster},
        });
        Undecodable {
            kind: "MachineDeployment".to_owned(),
            metadata: serde_json::from_value(metadata).unwrap(),
            why: why.to_owned(),
        }
    }

    #[test]
    fn an_object_that_cannot_be_decoded_takes_the_place_of_the_one_of_its_name() {
        let mut objects = objects();
        let (good, odd) = (worker("one", "a", 1), undecodable("one", "a", "2", "deep"));
        objects.insert(&good);
        assert_eq!(
            objects.put_undecodable(&odd),
            (Change::Changed, Some(good.clone()))
        );
        assert_eq!(objects.get(Some("ns"), "one"), None, "it is out of date");
        assert!(objects.of_cluster("ns", "a").is_empty());
        assert_eq!(objects.undecodable(Some("ns"), "one").as_deref(), Some(&odd));
        assert_eq!(objects.undecodable_of("ns", "a").as_deref(), Some(&odd));
        assert_eq!(objects.undecodable_of("ns", "b"), None);
        let touched = undecodable("one", "a", "3", "deep");
        assert_eq!(objects.put_undecodable(&touched), (Change::Same, None));
        assert_eq!(objects.insert(&good), Change::Changed);
        assert_eq!(objects.undecodable(Some("ns"), "one"), None, "it was corrected");
        objects.put_undecodable(&odd);
        objects.remove(&odd.metadata);
        assert_eq!((objects.len(), objects.all_undecodable().count()), (0, 0));
    }

    #[test]
    fn a_list_brings_objects_that_cannot_be_decoded_and_takes_them_away() {
        let mut objects = objects();
        let odd = |name: &str, revision: &str| undecodable(name, "a", revision, "deep");
        objects.list();
        objects.insert(&worker("one", "a", 1));
        objects.put_undecodable(&odd("two", "1"));
        let first = objects.listed();
        assert_eq!(first.undecodable, [], "seen as it came");
        objects.list();
        assert_eq!(objects.put_undecodable(&odd("two", "2")), (Change::Same, None));
        assert_eq!(
            objects.put_undecodable(&odd("one", "2")),
            (Change::SetAside, None)
        );
        assert!(
            objects.get(Some("ns"), "one").is_some(),
            "nothing is seen before the list is over"
        );
        let second = objects.listed();
        assert_eq!(second.undecodable, [Arc::new(odd("one", "2"))]);
        assert_eq!(second.gone, [worker("one", "a", 1)]);
        assert_eq!(second.undecodable_gone, []);
        objects.list();
        objects.insert(&worker("one", "a", 3));
        let third = objects.listed();
        assert_eq!(third.changed, [ClusterRef::new("ns", "one")]);
        let mut gone: Vec<_> = third
            .undecodable_gone
            .iter()
            .map(|object| object.reference())
            .collect();
        gone.sort();
        assert_eq!(gone, [ClusterRef::new("ns", "one"), ClusterRef::new("ns", "two")]);
        assert_eq!(objects.all_undecodable().count(), 0);
        objects.put_undecodable(&odd("two", "4"));
        objects.clear();
        assert_eq!(objects.all_undecodable().count(), 0);
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
        objects.remove(&moved.metadata);
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
                            objects.remove(&object.metadata);
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
