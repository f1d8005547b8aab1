//! Recently used objects.

use std::{collections::VecDeque, sync::Arc};

use kube::core::ObjectMeta;

use super::Kept;

/// Unpacked objects of recent lookups: Cluster API repeats its hook calls for the same Cluster.
#[derive(Debug)]
pub struct Recent<K> {
    /// Objects with their size in bytes.
    objects: VecDeque<(Arc<K>, usize)>,
    most: usize,
    /// Total size in bytes.
    memory: usize,
}

/// Size limit of the objects of one kind, in bytes.
const MEMORY: usize = 2 * 1024 * 1024;

impl<K: Kept> Recent<K> {
    /// Returns an empty collection for at most `most` objects and 2 MiB.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            objects: VecDeque::new(),
            most,
            memory: 0,
        }
    }

    /// Returns the object of this name, if it was looked up recently.
    pub fn get(&mut self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        let (object, memory) = self.take(namespace, name)?;
        self.push(Arc::clone(&object), memory);
        Some(object)
    }

    /// Adds an object with its size in bytes.
    pub fn add(&mut self, object: &Arc<K>, memory: usize) {
        self.forget(object.meta());
        if memory > MEMORY {
            return;
        }
        self.push(Arc::clone(object), memory);
        while self.objects.len() > self.most || self.memory > MEMORY {
            let oldest = self.objects.pop_front();
            self.memory -= oldest.map_or(self.memory, |(_, memory)| memory);
        }
    }

    /// Drops the object with this metadata, after a change or deletion.
    pub fn forget(&mut self, meta: &ObjectMeta) {
        let _before = self.take(
            meta.namespace.as_deref(),
            meta.name.as_deref().unwrap_or_default(),
        );
    }

    /// Drops all objects.
    pub fn clear(&mut self) {
        self.objects.clear();
        self.memory = 0;
    }

    fn push(&mut self, object: Arc<K>, memory: usize) {
        self.objects.push_back((object, memory));
        self.memory += memory;
    }

    fn take(&mut self, namespace: Option<&str>, name: &str) -> Option<(Arc<K>, usize)> {
        let at = self.objects.iter().position(|(object, _)| {
            let meta = object.meta();
            meta.name.as_deref() == Some(name) && meta.namespace.as_deref() == namespace
        })?;
        let taken = self.objects.remove(at)?;
        self.memory -= taken.1;
        Some(taken)
    }
}
