//! Number of configurations by reason.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use kube::{ResourceExt as _, core::DynamicObject};

use crate::reconcile::provider::reason;

/// Reasons of configurations, by kind and by a hash of namespace and name.
#[derive(Debug, Default)]
pub struct Reasons {
    of: BTreeMap<Arc<str>, HashMap<u64, &'static str>>,
    hasher: RandomState,
}

impl Reasons {
    /// Observes an existing or deleted configuration of a kind.
    pub fn saw(&mut self, kind: &Arc<str>, config: &DynamicObject, is_there: bool) {
        let id = self.hasher.hash_one((config.namespace(), config.name_any()));
        let of_kind = self.of.entry(Arc::clone(kind)).or_default();
        match reason(&config.data).filter(|_| is_there) {
            Some(reason) => of_kind.insert(id, reason),
            None => of_kind.remove(&id),
        };
    }

    /// Returns the number of configurations by kind and reason.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(&str, &'static str), usize> {
        let mut counts = BTreeMap::new();
        for (kind, reasons) in &self.of {
            for reason in reasons.values() {
                *counts.entry((&**kind, *reason)).or_default() += 1;
            }
        }
        counts
    }
}
