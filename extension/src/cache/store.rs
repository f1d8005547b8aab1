//! Cache of the objects of one kind.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use kube::core::ObjectMeta;
use sluice_core::{
    cache::{
        compact::{Change, Kept, Listed, Objects, Packed, Packer, Recent},
        stores::Found,
    },
    cluster::ClusterRef,
    decode::{Item, Undecodable},
};
use tokio::sync::watch;

use crate::lock::lock;

/// Cached objects of one kind. Clones share the same objects.
pub struct Store<K> {
    objects: Arc<RwLock<Objects<K>>>,
    /// Changed only under the other lock, so that no outdated object enters it.
    recent: Arc<Mutex<Recent<K>>>,
    filled: watch::Receiver<bool>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            objects: Arc::clone(&self.objects),
            recent: Arc::clone(&self.recent),
            filled: self.filled.clone(),
        }
    }
}

impl<K> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl<K: Kept> Store<K> {
    /// Returns the object of this name; kinds without namespaces have no namespace.
    ///
    /// # Errors
    /// The object cannot be decoded.
    pub fn found(&self, namespace: Option<&str>, name: &str) -> Found<K> {
        // Under one lock: otherwise an object that is corrected or damaged between two reads would appear absent.
        let objects = self.read();
        if let Some(undecodable) = objects.undecodable(namespace, name) {
            return Err(undecodable);
        }
        if let Some(found) = lock(&self.recent).get(namespace, name) {
            return Ok(Some(found));
        }
        let Some((found, memory)) = objects.measured(namespace, name) else {
            return Ok(None);
        };
        let found = Arc::new(found);
        lock(&self.recent).add(&found, memory);
        Ok(Some(found))
    }

    /// Returns the object of this name, where the cause of its absence does not matter.
    #[must_use]
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        self.found(namespace, name).ok().flatten()
    }

    /// Returns the same without keeping it unpacked: for iterations over many objects.
    #[must_use]
    pub fn peek(&self, namespace: Option<&str>, name: &str) -> Option<K> {
        self.read().get(namespace, name)
    }

    /// Returns the objects that belong to a Cluster, of kinds with an owner.
    #[must_use]
    pub fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<K> {
        self.read().of_cluster(namespace, cluster)
    }

    /// Returns the undecodable object of this name, if any.
    #[must_use]
    pub fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
        self.read().undecodable(namespace, name)
    }

    /// Returns the first undecodable object, if any.
    #[must_use]
    pub fn first_undecodable(&self) -> Option<Arc<Undecodable>> {
        self.read().all_undecodable().next().cloned()
    }

    /// Returns the first undecodable object that belongs to a Cluster, if any, of kinds with an owner.
    #[must_use]
    pub fn undecodable_of(&self, namespace: &str, cluster: &str) -> Option<Arc<Undecodable>> {
        self.read().undecodable_of(namespace, cluster)
    }

    /// Returns all objects.
    #[must_use]
    pub fn state(&self) -> Vec<Arc<K>> {
        self.read().iter().map(Arc::new).collect()
    }

    /// Returns namespace and name of each object.
    #[must_use]
    pub fn names(&self) -> Vec<ClusterRef> {
        let objects = self.read();
        objects
            .names()
            .map(|(namespace, name)| ClusterRef::new(namespace, name))
            .collect()
    }

    /// Returns the same, including undecodable objects.
    #[must_use]
    pub fn all_names(&self) -> Vec<ClusterRef> {
        let objects = self.read();
        let names = objects
            .names()
            .map(|(namespace, name)| ClusterRef::new(namespace, name));
        let undecodable = objects.all_undecodable().map(|object| object.reference());
        names.chain(undecodable).collect()
    }

    /// Returns those of `uids` that belong to no object.
    pub fn missing<'a>(&self, uids: impl Iterator<Item = &'a str>) -> Vec<String> {
        self.read().missing(uids)
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

    fn read(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Write handle of a store.
pub struct Writer<K> {
    packer: Arc<Packer<K>>,
    store: Store<K>,
    filled: watch::Sender<bool>,
}

impl<K: Kept> Writer<K> {
    /// Creates an empty store that keeps this many recently used objects unpacked.
    #[must_use]
    pub fn new(packer: Arc<Packer<K>>, recent: usize) -> Self {
        let (sender, filled) = watch::channel(false);
        let objects = Arc::new(RwLock::new(Objects::new(Arc::clone(&packer))));
        Self {
            packer,
            store: Store {
                objects,
                recent: Arc::new(Mutex::new(Recent::new(recent))),
                filled,
            },
            filled: sender,
        }
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Starts a list.
    pub(crate) fn list(&self) {
        self.write().list();
    }

    /// Packs an object without the lock, so that readers wait only for the write.
    pub(crate) fn pack(&self, item: &mut Item<K>) -> Option<Packed> {
        item.pack(&self.packer)
    }

    /// Stores an object that is not packed yet.
    #[cfg(test)]
    pub(crate) fn insert(&self, object: &K) -> Change
    where
        K: Clone,
    {
        let packed = self.pack(&mut Item::Decoded(object.clone()));
        self.put(object, &packed.expect("a small object")).0
    }

    /// Stores a packed object. Also returns the undecodable object of its name that it replaces.
    pub(crate) fn put(&self, object: &K, packed: &Packed) -> (Change, Option<Arc<Undecodable>>) {
        let mut objects = self.write();
        lock(&self.store.recent).forget(object.meta());
        objects.put(object, packed)
    }

    /// Stores an undecodable object. Also returns the object of its name that it replaces.
    pub(crate) fn put_undecodable(&self, object: &Undecodable) -> (Change, Option<K>) {
        let mut objects = self.write();
        lock(&self.store.recent).forget(&object.metadata);
        objects.put_undecodable(object)
    }

    /// Removes the object with this metadata. Returns the removed object, decoded or not.
    pub(crate) fn remove(&self, meta: &ObjectMeta) -> (Option<K>, Option<Arc<Undecodable>>) {
        let mut objects = self.write();
        lock(&self.store.recent).forget(meta);
        objects.remove(meta)
    }

    /// Ends a list.
    pub(crate) fn listed(&self) -> Listed<K> {
        let mut objects = self.write();
        lock(&self.store.recent).clear();
        let listed = objects.listed();
        drop(objects);
        self.filled.send_replace(true);
        listed
    }

    /// Empties the store.
    pub(crate) fn clear(&self) {
        let mut objects = self.write();
        lock(&self.store.recent).clear();
        objects.clear();
        drop(objects);
        self.filled.send_replace(true);
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects<K>> {
        self.store.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_crds::foreign::Cluster;

    use super::*;

    fn cluster(name: &str, paused: bool) -> Cluster {
        let meta =
            json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": paused.to_string()});
        serde_json::from_value(json!({"metadata": meta, "spec": {"paused": paused}})).unwrap()
    }

    fn put(writer: &Writer<Cluster>, cluster: &Cluster) -> Change {
        writer.insert(cluster)
    }

    /// A gate may depend on two objects. A watch shows changes in their order, a list in the order of names.
    #[test]
    fn what_a_list_has_changed_is_seen_all_at_once() {
        let writer = Writer::<Cluster>::new(Arc::default(), 2);
        let store = writer.store();
        let paused = || ["a", "b"].map(|name| store.get(Some("ns"), name).map(|cluster| cluster.spec.paused));
        writer.list();
        for name in ["a", "b"] {
            put(&writer, &cluster(name, false));
        }
        writer.listed();
        // The first of these is interrupted.
        for _ in 0..2 {
            writer.list();
            put(&writer, &cluster("a", true));
            assert_eq!(paused(), [Some(false), Some(false)], "a page of two");
        }
        put(&writer, &cluster("b", true));
        writer.listed();
        assert_eq!(paused(), [Some(true), Some(true)]);
    }

    /// A restored etcd counts revisions as it did before.
    #[test]
    fn an_object_is_another_one_by_its_content() {
        let writer = Writer::<Cluster>::new(Arc::default(), 2);
        let revised = |paused, revision: &str| {
            let mut cluster = cluster("a", paused);
            cluster.metadata.resource_version = Some(revision.to_owned());
            cluster
        };
        put(&writer, &revised(false, "7"));
        assert_eq!(put(&writer, &revised(true, "7")), Change::Changed);
        assert_eq!(put(&writer, &revised(true, "8")), Change::Same);
        let found = writer.store().get(Some("ns"), "a").unwrap();
        assert_eq!(
            found.metadata.resource_version.as_deref(),
            Some("8"),
            "writes name it"
        );
    }

    /// For every kind of change, with and without an earlier lookup.
    #[test]
    fn what_is_looked_up_is_as_it_is_now() {
        let writer = Writer::<Cluster>::new(Arc::default(), 2);
        let store = writer.store();
        let paused = |name: &str| store.get(Some("ns"), name).map(|cluster| cluster.spec.paused);
        for name in ["a", "b"] {
            put(&writer, &cluster(name, false));
            assert_eq!((paused(name), paused(name)), (Some(false), Some(false)));
        }
        put(&writer, &cluster("a", true));
        assert_eq!((paused("a"), paused("b")), (Some(true), Some(false)));
        writer.remove(&cluster("a", true).metadata);
        assert_eq!(paused("a"), None);
        writer.list();
        assert_eq!(paused("b"), Some(false));
        assert_eq!(writer.listed().gone.iter().count(), 1);
        assert_eq!(paused("b"), None, "the list did not bring it");
        put(&writer, &cluster("c", false));
        assert_eq!(paused("c"), Some(false));
        writer.clear();
        assert_eq!(paused("c"), None);
    }
}
