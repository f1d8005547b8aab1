//! The objects that were looked up last.

use std::{collections::VecDeque, sync::Arc};

use kube::core::ObjectMeta;

use super::Kept;

/// Some objects as they were unpacked, of those that were looked up last: Cluster API asks about the same Cluster again and again.
#[derive(Debug)]
pub struct Recent<K> {
    /// Each with the bytes that it takes.
    objects: VecDeque<(Arc<K>, usize)>,
    most: usize,
    /// Bytes that all of them take.
    memory: usize,
}

/// Bytes that the objects of one kind may take.
const MEMORY: usize = 2 * 1024 * 1024;

impl<K: Kept> Recent<K> {
    /// None yet, and never more than `most`, or than take 2 MiB.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            objects: VecDeque::new(),
            most,
            memory: 0,
        }
    }

    /// The object of this name, if it was looked up lately.
    pub fn get(&mut self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        let (object, memory) = self.take(namespace, name)?;
        self.push(Arc::clone(&object), memory);
        Some(object)
    }

    /// An object was looked up that takes so many bytes.
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

    /// The object with this metadata is another one now, or gone.
    pub fn forget(&mut self, meta: &ObjectMeta) {
        let _before = self.take(
            meta.namespace.as_deref(),
            meta.name.as_deref().unwrap_or_default(),
        );
    }

    /// All are other ones now, or gone.
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
