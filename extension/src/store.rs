//! The objects of one kind in memory.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use sluice_core::{
    cluster::ClusterRef,
    compact::{Change, Kept, Objects, Packer, Recent},
};
use tokio::sync::watch;

use crate::lock::lock;

/// What is in memory of one kind. Cheap to clone; all clones are one.
pub struct Store<K> {
    objects: Arc<RwLock<Objects<K>>>,
    /// Changed only by those who hold the other lock, so that nothing outdated gets into it.
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
    /// The object of this name; kinds without namespaces have none.
    #[must_use]
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        let objects = self.read();
        if let Some(found) = lock(&self.recent).get(namespace, name) {
            return Some(found);
        }
        let found = Arc::new(objects.get(namespace, name)?);
        lock(&self.recent).add(&found);
        Some(found)
    }

    /// The same, which is not kept unpacked: for those who look at one object after the other.
    #[must_use]
    pub fn peek(&self, namespace: Option<&str>, name: &str) -> Option<K> {
        self.read().get(namespace, name)
    }

    /// The objects that belong to a Cluster, of kinds that say so.
    #[must_use]
    pub fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<K> {
        self.read().of_cluster(namespace, cluster)
    }

    /// All objects.
    #[must_use]
    pub fn state(&self) -> Vec<Arc<K>> {
        self.read().iter().map(Arc::new).collect()
    }

    /// Namespace and name of each object.
    #[must_use]
    pub fn names(&self) -> Vec<ClusterRef> {
        let objects = self.read();
        objects
            .names()
            .map(|(namespace, name)| ClusterRef::new(namespace, name))
            .collect()
    }

    /// Those of `uids` that no object has.
    pub fn missing<'a>(&self, uids: impl Iterator<Item = &'a str>) -> Vec<String> {
        self.read().missing(uids)
    }

    /// Whether it was filled once.
    #[must_use]
    pub fn is_filled(&self) -> bool {
        *self.filled.borrow()
    }

    /// Waits until it was filled. Also ends when it is followed no more.
    pub async fn filled(&self) {
        let mut filled = self.filled.clone();
        let _followed_no_more = filled.wait_for(|filled| *filled).await;
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writing side of a store.
pub struct Writer<K> {
    packer: Arc<Packer<K>>,
    store: Store<K>,
    filled: watch::Sender<bool>,
}

impl<K: Kept> Writer<K> {
    /// The writer of an empty store, which keeps so many objects unpacked that were looked up last.
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

    /// What it writes to.
    #[must_use]
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// A list begins.
    pub(crate) fn list(&self) {
        self.write().list();
    }

    /// An object is there, as it was pruned.
    pub(crate) fn put(&self, object: &K) -> Change {
        // Packed without the lock, so that readers wait only for the write.
        match self.packer.pack(object) {
            Ok(packed) => {
                let mut objects = self.write();
                lock(&self.store.recent).forget(object);
                objects.put(object, &packed)
            }
            Err(error) => unreachable!("{:?} is no JSON: {error}", object.meta().name),
        }
    }

    /// An object is gone.
    pub(crate) fn remove(&self, object: &K) {
        let mut objects = self.write();
        lock(&self.store.recent).forget(object);
        objects.remove(object);
    }

    /// The list is over. Returns what is gone.
    pub(crate) fn listed(&self) -> Vec<K> {
        let mut objects = self.write();
        let gone = objects.listed();
        for object in &gone {
            lock(&self.store.recent).forget(object);
        }
        drop(objects);
        self.filled.send_replace(true);
        gone
    }

    /// Nothing is known to be there.
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

    /// Whichever way it changes, and whether or not it was looked up before.
    #[test]
    fn what_is_looked_up_is_as_it_is_now() {
        let writer = Writer::<Cluster>::new(Arc::default(), 2);
        let store = writer.store();
        let paused = |name: &str| store.get(Some("ns"), name).map(|cluster| cluster.spec.paused);
        for name in ["a", "b"] {
            writer.put(&cluster(name, false));
            assert_eq!((paused(name), paused(name)), (Some(false), Some(false)));
        }
        writer.put(&cluster("a", true));
        assert_eq!((paused("a"), paused("b")), (Some(true), Some(false)));
        writer.remove(&cluster("a", true));
        assert_eq!(paused("a"), None);
        writer.list();
        assert_eq!(paused("b"), Some(false));
        assert_eq!(writer.listed().len(), 1);
        assert_eq!(paused("b"), None, "the list did not bring it");
        writer.put(&cluster("c", false));
        assert_eq!(paused("c"), Some(false));
        writer.clear();
        assert_eq!(paused("c"), None);
    }
}
