//! The objects that were looked up last.

use std::{collections::VecDeque, sync::Arc};

use kube::core::ObjectMeta;

use super::Kept;

/// Some objects as they were unpacked, of those that were looked up last: Cluster API asks about the same Cluster again and again.
#[derive(Debug)]
pub struct Recent<K> {
    objects: VecDeque<Arc<K>>,
    most: usize,
}

impl<K: Kept> Recent<K> {
    /// None yet, and never more than `most`.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            objects: VecDeque::new(),
            most,
        }
    }

    /// The object of this name, if it was looked up lately.
    pub fn get(&mut self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        let object = self.take(namespace, name)?;
        self.objects.push_back(Arc::clone(&object));
        Some(object)
    }

    /// An object was looked up.
    pub fn add(&mut self, object: &Arc<K>) {
        self.forget(object.meta());
        self.objects.push_back(Arc::clone(object));
        while self.objects.len() > self.most {
            self.objects.pop_front();
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
    }

    fn take(&mut self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        let at = self.objects.iter().position(|object| {
            let meta = object.meta();
            meta.name.as_deref() == Some(name) && meta.namespace.as_deref() == namespace
        })?;
        self.objects.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_crds::foreign::Cluster;

    use super::*;
    use crate::stores::tests::object;

    fn cluster(name: &str) -> Arc<Cluster> {
        object(Some("ns"), name, &json!({}), &json!({"spec": {}}))
    }

    #[test]
    fn those_that_were_looked_up_last_are_kept() {
        let mut recent = Recent::new(2);
        let (a, b, c) = (cluster("a"), cluster("b"), cluster("c"));
        recent.add(&a);
        recent.add(&b);
        assert_eq!(recent.get(Some("ns"), "a"), Some(a));
        recent.add(&c);
        assert_eq!(recent.get(Some("ns"), "b"), None, "it was looked up longest ago");
        assert!(recent.get(Some("ns"), "a").is_some() && recent.get(Some("ns"), "c").is_some());
        assert_eq!(recent.get(Some("other"), "a"), None);
        recent.forget(&cluster("a").metadata);
        assert_eq!(recent.get(Some("ns"), "a"), None);
        recent.clear();
        assert_eq!(recent.get(Some("ns"), "c"), None);
    }

    #[test]
    fn a_store_that_keeps_none_has_none() {
        let mut recent = Recent::new(0);
        recent.add(&cluster("a"));
        assert_eq!(recent.get(Some("ns"), "a"), None);
    }
}
