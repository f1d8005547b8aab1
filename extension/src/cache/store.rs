//! Cache of the objects of one kind: a reflector of kube-runtime, with an index by Cluster.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use kube::runtime::{
    reflector::{self, Lookup, ObjectRef, store::Writer as Reflector},
    watcher::Event,
};
use sluice_core::{
    cache::{Cached, CachedObject, Dictionary, stores::Found},
    cluster::ClusterRef,
    decode::{Item, Undecodable},
};
use tokio::sync::watch;

use crate::lock::lock;

/// Object of a store.
#[derive(Debug)]
enum Entry<K> {
    /// A decoded object.
    Decoded(CachedObject<K>),
    /// The readable part of an undecodable object.
    Undecodable(Arc<Undecodable>),
}

impl<K> Clone for Entry<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Decoded(object) => Self::Decoded(object.clone()),
            Self::Undecodable(object) => Self::Undecodable(Arc::clone(object)),
        }
    }
}

impl<K: Cached> Entry<K> {
    fn namespace(&self) -> Option<&str> {
        match self {
            Self::Decoded(object) => object.namespace(),
            Self::Undecodable(object) => object.metadata.namespace.as_deref(),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Decoded(object) => object.name(),
            Self::Undecodable(object) => object.metadata.name.as_deref().unwrap_or_default(),
        }
    }

    fn reference(&self) -> ClusterRef {
        ClusterRef::new(self.namespace().unwrap_or_default(), self.name())
    }

    fn decoded(&self) -> Option<&CachedObject<K>> {
        match self {
            Self::Decoded(object) => Some(object),
            Self::Undecodable(_) => None,
        }
    }

    fn undecodable(&self) -> Option<&Arc<Undecodable>> {
        match self {
            Self::Decoded(_) => None,
            Self::Undecodable(object) => Some(object),
        }
    }

    /// Returns whether the object is the same as `before`, except for its resourceVersion.
    fn is_same(&self, before: &Self) -> bool {
        match (self, before) {
            (Self::Decoded(now), Self::Decoded(before)) => now.is_same(before),
            (Self::Undecodable(now), Self::Undecodable(before)) => now.is_same(before),
            _ => false,
        }
    }
}

/// A store holds one kind, whose name nothing reads here. Its keys are only names.
impl<K: Cached> Lookup for Entry<K> {
    type DynamicType = ();

    fn kind((): &()) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn group((): &()) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn version((): &()) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn plural((): &()) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn name(&self) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed(Entry::name(self)))
    }

    fn namespace(&self) -> Option<Cow<'_, str>> {
        Entry::namespace(self).map(Cow::Borrowed)
    }

    fn resource_version(&self) -> Option<Cow<'_, str>> {
        None
    }

    fn uid(&self) -> Option<Cow<'_, str>> {
        None
    }
}

/// Difference that a watch event or a list made to one object.
#[derive(Debug)]
pub struct Change<K> {
    before: Option<Arc<Entry<K>>>,
    now: Option<Arc<Entry<K>>>,
}

impl<K: Cached> Change<K> {
    /// Returns the new or changed object, if it can be decoded.
    #[must_use]
    pub fn changed(&self) -> Option<K> {
        self.now.as_ref()?.decoded().map(CachedObject::parse)
    }

    /// Returns the previous object, if it could be decoded and was deleted or cannot be decoded any more.
    #[must_use]
    pub fn gone(&self) -> Option<K> {
        let is_there = self.now.as_ref().is_some_and(|now| now.decoded().is_some());
        let before = self.before.as_ref()?.decoded();
        before.filter(|_| !is_there).map(CachedObject::parse)
    }

    /// Returns the new or changed object, if it cannot be decoded.
    #[must_use]
    pub fn undecodable(&self) -> Option<&Arc<Undecodable>> {
        self.now.as_ref()?.undecodable()
    }

    /// Returns the previous object, if it could not be decoded and was deleted or corrected.
    #[must_use]
    pub fn undecodable_gone(&self) -> Option<&Arc<Undecodable>> {
        let before = self.before.as_ref()?.undecodable();
        before.filter(|_| self.undecodable().is_none())
    }
}

/// Cached objects of one kind. Clones share the same objects.
pub struct Store<K: Cached + 'static> {
    objects: reflector::Store<Entry<K>>,
    /// Locked for writing while the objects change.
    index: Arc<RwLock<Index>>,
    recent: Arc<Mutex<Recent<K>>>,
    filled: watch::Receiver<bool>,
}

/// Recently parsed objects, the latest last.
type Recent<K> = VecDeque<(Arc<Entry<K>>, Arc<K>)>;

/// Number of recently parsed objects: about as many as Clusters with hook calls in one second.
const RECENT: usize = 32;

/// Largest size of a recently parsed object in the cache, in bytes.
const RECENT_BYTES: usize = 8 * 1024;

/// Names of objects by other properties than their name.
#[derive(Debug, Default)]
struct Index {
    /// Names of the objects that belong to each Cluster.
    of_cluster: HashMap<ClusterRef, BTreeSet<String>>,
    undecodable: BTreeSet<ClusterRef>,
}

impl Index {
    fn add<K: Cached>(&mut self, entry: &Entry<K>) {
        let reference = entry.reference();
        if let Some(cluster) = cluster_of(entry) {
            let names = self.of_cluster.entry(cluster).or_default();
            names.insert(reference.name().to_owned());
        }
        if entry.undecodable().is_some() {
            self.undecodable.insert(reference);
        }
    }

    fn remove<K: Cached>(&mut self, entry: &Entry<K>) {
        let reference = entry.reference();
        if let Some(cluster) = cluster_of(entry)
            && let Some(names) = self.of_cluster.get_mut(&cluster)
        {
            names.remove(reference.name());
            if names.is_empty() {
                self.of_cluster.remove(&cluster);
            }
        }
        self.undecodable.remove(&reference);
    }
}

/// Returns the Cluster that an object belongs to.
fn cluster_of<K: Cached>(entry: &Entry<K>) -> Option<ClusterRef> {
    let cluster = match entry {
        Entry::Decoded(object) => object.cluster(),
        Entry::Undecodable(object) => K::cluster_of(&object.metadata),
    };
    let namespace = entry.namespace().unwrap_or_default();
    cluster.map(|cluster| ClusterRef::new(namespace, &cluster))
}

fn key<K: Cached>(namespace: Option<&str>, name: &str) -> ObjectRef<Entry<K>> {
    let key = ObjectRef::new(name);
    match namespace {
        Some(namespace) => key.within(namespace),
        None => key,
    }
}

impl<K: Cached> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            index: Arc::clone(&self.index),
            recent: Arc::clone(&self.recent),
            filled: self.filled.clone(),
        }
    }
}

impl<K: Cached> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl<K: Cached> Store<K> {
    /// Returns the store of a kind that this installation does not watch: without objects, and filled.
    #[must_use]
    pub(crate) fn unwatched() -> Self {
        let writer = Writer::default();
        writer.set_filled();
        writer.store()
    }

    /// Returns the object of this name; kinds without namespaces have no namespace.
    ///
    /// # Errors
    /// The object cannot be decoded.
    pub fn found(&self, namespace: Option<&str>, name: &str) -> Found<K> {
        let Some(entry) = self.entry(namespace, name) else {
            return Ok(None);
        };
        match &*entry {
            Entry::Decoded(object) => Ok(Some(self.parsed(&entry, object))),
            Entry::Undecodable(object) => Err(Arc::clone(object)),
        }
    }

    /// Returns the object of this name, where the cause of its absence does not matter.
    #[must_use]
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        self.found(namespace, name).ok().flatten()
    }

    /// Returns the objects that belong to a Cluster, of kinds with an owner.
    #[must_use]
    pub fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Arc<K>> {
        let entries = self.entries_of_cluster(namespace, cluster);
        let decoded = entries.iter().filter_map(|entry| entry.decoded());
        decoded.map(|object| Arc::new(object.parse())).collect()
    }

    /// Returns the undecodable object of this name, if any.
    #[must_use]
    pub fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
        self.entry(namespace, name)?.undecodable().cloned()
    }

    /// Returns the first undecodable object, if any.
    #[must_use]
    pub fn first_undecodable(&self) -> Option<Arc<Undecodable>> {
        let first = self.index().undecodable.first().cloned()?;
        let namespace = Some(first.namespace()).filter(|namespace| !namespace.is_empty());
        self.undecodable(namespace, first.name())
    }

    /// Returns the first undecodable object that belongs to a Cluster, if any, of kinds with an owner.
    #[must_use]
    pub fn undecodable_of(&self, namespace: &str, cluster: &str) -> Option<Arc<Undecodable>> {
        let entries = self.entries_of_cluster(namespace, cluster);
        entries.iter().find_map(|entry| entry.undecodable().cloned())
    }

    /// Returns all objects.
    #[must_use]
    pub fn state(&self) -> Vec<Arc<K>> {
        let entries = self.objects.state();
        let decoded = entries.iter().filter_map(|entry| entry.decoded());
        decoded.map(|object| Arc::new(object.parse())).collect()
    }

    /// Returns namespace and name of each object.
    #[must_use]
    pub fn names(&self) -> Vec<ClusterRef> {
        let decoded = self.objects.state_filter(|entry| entry.decoded().is_some());
        decoded.iter().map(|entry| entry.reference()).collect()
    }

    /// Returns the same, including undecodable objects.
    #[must_use]
    pub fn all_names(&self) -> Vec<ClusterRef> {
        self.objects
            .state()
            .iter()
            .map(|entry| entry.reference())
            .collect()
    }

    /// Returns those of `uids` that belong to no object.
    pub fn missing<'a>(&self, uids: impl Iterator<Item = &'a str>) -> Vec<String> {
        let entries = self.objects.state();
        let there: HashSet<&str> = entries
            .iter()
            .filter_map(|entry| entry.decoded()?.uid())
            .collect();
        uids.filter(|uid| !there.contains(uid))
            .map(str::to_owned)
            .collect()
    }

    /// Returns whether the store was filled once.
    #[must_use]
    pub fn is_filled(&self) -> bool {
        *self.filled.borrow()
    }

    /// Waits until the store is filled or its watch has ended.
    pub async fn filled(&self) {
        let mut filled = self.filled.clone();
        let _followed_no_more = filled.wait_for(|filled| *filled).await;
    }

    fn entry(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Entry<K>>> {
        let found = self.objects.get(&key(namespace, name));
        // A reflector also finds objects without a namespace.
        found.filter(|found| found.namespace() == namespace)
    }

    fn entries_of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Arc<Entry<K>>> {
        let index = self.index();
        let names = index.of_cluster.get(&ClusterRef::new(namespace, cluster));
        let names = names.into_iter().flatten();
        names
            .filter_map(|name| self.objects.get(&key(Some(namespace), name)))
            .collect()
    }

    /// Parses the object of an entry, or returns it as parsed recently: Cluster API repeats its hook calls for the same Cluster.
    fn parsed(&self, entry: &Arc<Entry<K>>, object: &CachedObject<K>) -> Arc<K> {
        if !K::IS_KEPT_PARSED || object.bytes() > RECENT_BYTES {
            return Arc::new(object.parse());
        }
        let mut recent = lock(&self.recent);
        let at = recent.iter().position(|(cached, _)| Arc::ptr_eq(cached, entry));
        if let Some(found) = at.and_then(|at| recent.remove(at)) {
            let parsed = Arc::clone(&found.1);
            recent.push_back(found);
            return parsed;
        }
        // Other calls do not wait for the parser.
        drop(recent);
        let parsed = Arc::new(object.parse());
        let mut recent = lock(&self.recent);
        recent.push_back((Arc::clone(entry), Arc::clone(&parsed)));
        if recent.len() > RECENT {
            recent.pop_front();
        }
        parsed
    }

    fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Write handle of a store.
pub struct Writer<K: Cached + 'static> {
    objects: Reflector<Entry<K>>,
    store: Store<K>,
    dictionary: Dictionary,
    filled: watch::Sender<bool>,
}

impl<K: Cached> Default for Writer<K> {
    /// Creates an empty store.
    fn default() -> Self {
        let (sender, filled) = watch::channel(false);
        let objects = Reflector::new(());
        let store = Store {
            objects: objects.as_reader(),
            index: Arc::default(),
            recent: Arc::default(),
            filled,
        };
        Self {
            objects,
            store,
            dictionary: Dictionary::default(),
            filled: sender,
        }
    }
}

impl<K: Cached> Writer<K> {
    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Applies an event of a list or watch. Returns the changes that readers observe from now on: those of a list at its end. An object
    /// with another resourceVersion only is updated without a change.
    pub fn apply(&mut self, event: Event<Item<K>>) -> Vec<Change<K>> {
        match event {
            Event::Init => {
                // The new objects may have more in common.
                self.dictionary = Dictionary::default();
                self.objects.apply_watcher_event(&Event::Init);
            }
            Event::InitApply(item) => {
                let entry = self.entry(item);
                self.objects.apply_watcher_event(&Event::InitApply(entry));
            }
            Event::InitDone => return self.listed(),
            Event::Apply(item) => {
                let entry = self.entry(item);
                return self.put(entry);
            }
            Event::Delete(item) => {
                let entry = self.entry(item);
                return self.remove(entry);
            }
        }
        Vec::new()
    }

    /// Marks the store as filled. Call it after a list once its changes are handled, because readers rely on what handlers have copied.
    pub fn set_filled(&self) {
        self.filled.send_replace(true);
    }

    /// Empties the store.
    pub fn clear(&mut self) {
        self.objects.apply_watcher_event(&Event::Init);
        self.listed();
        self.set_filled();
    }

    fn put(&mut self, now: Entry<K>) -> Vec<Change<K>> {
        let key = now.to_object_ref(());
        let before = self.store.objects.get(&key);
        if before.as_ref().is_some_and(|before| now.is_same(before)) {
            self.objects.apply_watcher_event(&Event::Apply(now));
            return Vec::new();
        }
        let mut index = self.store.index_mut();
        if let Some(before) = &before {
            index.remove(before);
        }
        index.add(&now);
        self.objects.apply_watcher_event(&Event::Apply(now));
        drop(index);
        let now = self.store.objects.get(&key);
        vec![Change { before, now }]
    }

    fn remove(&mut self, deleted: Entry<K>) -> Vec<Change<K>> {
        // The event may show another state than the cached one.
        let Some(before) = self.store.objects.get(&deleted.to_object_ref(())) else {
            return Vec::new();
        };
        let mut index = self.store.index_mut();
        index.remove(&before);
        self.objects.apply_watcher_event(&Event::Delete(deleted));
        drop(index);
        vec![Change {
            before: Some(before),
            now: None,
        }]
    }

    fn listed(&mut self) -> Vec<Change<K>> {
        let before = self.store.objects.state();
        let mut before: HashMap<ClusterRef, Arc<Entry<K>>> = before
            .into_iter()
            .map(|entry| (entry.reference(), entry))
            .collect();
        let mut index = self.store.index_mut();
        self.objects.apply_watcher_event(&Event::InitDone);
        let now = self.store.objects.state();
        *index = Index::default();
        for entry in &now {
            index.add(&**entry);
        }
        drop(index);
        let mut changes = Vec::new();
        for now in now {
            let before = before.remove(&now.reference());
            if !before.as_ref().is_some_and(|before| now.is_same(before)) {
                let now = Some(now);
                changes.push(Change { before, now });
            }
        }
        let gone = before.into_values().map(|before| Change {
            before: Some(before),
            now: None,
        });
        changes.extend(gone);
        changes
    }

    fn entry(&mut self, item: Item<K>) -> Entry<K> {
        match item {
            Item::Decoded(object) => Entry::Decoded(CachedObject::of(object, &mut self.dictionary)),
            Item::Undecodable(object) => Entry::Undecodable(Arc::from(object)),
        }
    }
}

#[cfg(test)]
mod tests;
