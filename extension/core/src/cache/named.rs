//! Kinds that objects name. Tenants write these names, so their number is bounded.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

use kube::core::ObjectMeta;
use sluice_crds::foreign::cluster::ObjectReference;

use crate::{
    names::{LONGEST_LABEL, LONGEST_NAME},
    protocol::{Single, Source},
};

/// Limit of kinds. Readable kinds stay beyond it: the API server has only few of them.
const MOST: usize = 256;

/// Kind that an object names, in the scope of one watch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedKind {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Whether a Cluster names the kind, so that everyone with write access to Clusters can choose it.
    pub is_given: bool,
    /// Watched object, if Sluice watches a single one.
    pub single: Option<Single>,
}

impl NamedKind {
    /// Returns a kind that a Cluster names.
    #[must_use]
    pub fn given(group: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            is_given: true,
            single: None,
        }
    }

    /// Returns the kind of a Cluster's reference; `None` if group or kind exceed the length limits of Kubernetes.
    #[must_use]
    pub fn referred(reference: &ObjectReference) -> Option<Self> {
        let (group, kind) = (reference.group(), &reference.kind);
        (group.len() <= LONGEST_NAME && kind.len() <= LONGEST_LABEL).then(|| Self::given(group, kind))
    }

    /// Returns the source of all objects of the kind.
    #[must_use]
    pub fn every(&self) -> Source {
        Source::Every {
            group: self.group.clone(),
            kind: self.kind.clone(),
        }
    }

    /// Returns the sources that a change of an object affects.
    #[must_use]
    pub fn sources(&self, changed: &ObjectMeta) -> [Source; 2] {
        let object = Source::Object {
            group: self.group.clone(),
            kind: self.kind.clone(),
            namespace: changed.namespace.clone(),
            name: changed.name.clone().unwrap_or_default(),
            kind_is_given: self.is_given,
        };
        [self.every(), object]
    }
}

/// Converts a source to the kind whose watch covers it.
impl From<&Source> for NamedKind {
    fn from(source: &Source) -> Self {
        let (group, kind) = source.group_kind();
        Self {
            is_given: source.kind_is_given(),
            single: source.single(),
            ..Self::given(group, kind)
        }
    }
}

/// State of a kind, without its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its objects are in the cache.
    Readable,
    /// Its first list is in progress.
    Reading,
    /// It cannot be read.
    Unreadable,
}

/// State of each kind, by key.
#[derive(Debug)]
pub struct NamedKinds<K, V>(HashMap<K, Named<V>>);

#[derive(Debug)]
struct Named<V> {
    kind: V,
    asked_at: Instant,
}

impl<K, V> Default for NamedKinds<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash, V> NamedKinds<K, V> {
    /// Returns the state of a kind, if it is watched.
    pub fn get(&mut self, key: &K, now: Instant) -> Option<&mut V> {
        let named = self.0.get_mut(key)?;
        named.asked_at = now;
        Some(&mut named.kind)
    }

    /// Returns the state of a kind; `open` creates it at the first request. Beyond the limit it drops the least recently requested
    /// unreadable kind. Without one, it drops the latest kind with a first list in progress: a list takes some seconds, and would never
    /// complete while tenants name ever more kinds.
    pub fn ask(
        &mut self,
        key: K,
        now: Instant,
        standing: impl Fn(&V) -> Standing,
        open: impl FnOnce(&K) -> V,
    ) -> &mut V {
        if !self.0.contains_key(&key) && self.0.len() >= MOST {
            self.make_room(standing);
        }
        let named = self.0.entry(key).or_insert_with_key(|key| Named {
            kind: open(key),
            asked_at: now,
        });
        named.asked_at = now;
        &mut named.kind
    }

    /// Drops a kind.
    pub fn remove(&mut self, key: &K) {
        self.0.remove(key);
    }

    /// Drops kinds without a request within this time.
    pub fn forget_unasked(&mut self, time: Duration, now: Instant) {
        self.0
            .retain(|_, named| now.duration_since(named.asked_at) < time);
    }

    /// Drops kinds for which `stays` returns false.
    pub fn retain(&mut self, stays: impl Fn(&V) -> bool) {
        self.0.retain(|_, named| stays(&named.kind));
    }

    fn make_room(&mut self, standing: impl Fn(&V) -> Standing) {
        let standing = &standing;
        let of = |wanted: Standing| {
            let is_wanted = move |named: &Named<V>| standing(&named.kind) == wanted;
            self.0.iter().filter(move |(_, named)| is_wanted(named))
        };
        let goes = of(Standing::Unreadable)
            .min_by_key(|(_, named)| named.asked_at)
            .or_else(|| of(Standing::Reading).max_by_key(|(_, named)| named.asked_at));
        if let Some(key) = goes.map(|(key, _)| key.clone()) {
            self.0.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;
    use sluice_crds::foreign::cluster::ObjectReference;

    use super::*;

    #[test]
    fn all_objects_of_a_kind_share_a_watch() {
        let every = |group: &str, kind: &str| Source::Every {
            group: group.to_owned(),
            kind: kind.to_owned(),
        };
        let reference = ObjectReference {
            api_group: Some("apps".to_owned()),
            kind: "Deployment".to_owned(),
            name: "one".to_owned(),
            ..ObjectReference::default()
        };
        let known = Source::namespaced("apps", "Deployment", "a", "one");
        let known_kind = NamedKind::from(&known);
        assert_eq!(known_kind, NamedKind::from(&every("apps", "Deployment")));
        assert_eq!(
            known_kind,
            NamedKind::from(&Source::namespaced("apps", "Deployment", "b", "two"))
        );
        let given = Source::referred("a", &reference);
        assert_eq!(NamedKind::from(&given), NamedKind::given("apps", "Deployment"));
        assert_ne!(NamedKind::from(&given), known_kind, "it may not be read yet");
        let single = NamedKind::from(&Source::namespaced("", "ConfigMap", "a", "one")).single;
        assert_eq!(single, Some((Some("a".to_owned()), "one".to_owned())));
    }

    #[test]
    fn a_change_affects_the_object_and_its_kind() {
        let of = |source: &Source| {
            let object = ConfigMap {
                metadata: ObjectMeta {
                    namespace: Some("a".to_owned()),
                    name: Some("one".to_owned()),
                    ..ObjectMeta::default()
                },
                ..ConfigMap::default()
            };
            let named = NamedKind::from(source);
            let [every, object] = named.sources(&object.metadata);
            assert_eq!(every, named.every());
            object
        };
        let known = Source::namespaced("apps", "Deployment", "a", "one");
        assert_eq!(of(&known), known);
        let reference = ObjectReference {
            api_group: Some("apps".to_owned()),
            kind: "Deployment".to_owned(),
            name: "one".to_owned(),
            ..ObjectReference::default()
        };
        let given = Source::referred("a", &reference);
        assert_eq!(of(&given), given);
    }

    /// Requests a kind of this standing, some milliseconds after `began`. Returns whether it was opened.
    fn ask(
        kinds: &mut NamedKinds<u64, Standing>,
        began: Instant,
        name: u64,
        standing: Standing,
        at: u64,
    ) -> bool {
        let mut opened = false;
        let now = began + Duration::from_millis(at);
        let open = |_: &u64| {
            opened = true;
            standing
        };
        kinds.ask(name, now, |standing| *standing, open);
        opened
    }

    #[test]
    fn a_name_that_is_too_long_is_no_kind() {
        let reference = |group: usize, kind: usize| ObjectReference {
            api_group: Some("g".repeat(group)),
            kind: "k".repeat(kind),
            ..ObjectReference::default()
        };
        assert!(NamedKind::referred(&reference(253, 63)).is_some());
        assert!(NamedKind::referred(&reference(254, 1)).is_none());
        assert!(NamedKind::referred(&reference(1, 64)).is_none());
    }

    #[test]
    fn unreadable_kinds_are_dropped_before_readable_ones() {
        let (mut kinds, began) = (NamedKinds::default(), Instant::now());
        ask(&mut kinds, began, 0, Standing::Readable, 0);
        for name in 1..=1000 {
            assert!(ask(&mut kinds, began, name, Standing::Unreadable, name));
        }
        assert_eq!(kinds.0.len(), MOST);
        assert!(kinds.0.contains_key(&0), "a readable kind stays");
        assert!(kinds.0.contains_key(&1000), "the latest requests stay");
        assert!(!kinds.0.contains_key(&1), "it was dropped");
    }

    /// Tenants may name kinds faster than Sluice reads them.
    #[test]
    fn a_first_list_is_not_dropped_for_other_kinds() {
        let (mut kinds, began) = (NamedKinds::default(), Instant::now());
        for name in 0..1000 {
            ask(&mut kinds, began, name, Standing::Reading, name);
        }
        assert_eq!(kinds.0.len(), MOST);
        assert!(kinds.0.contains_key(&0), "it is read before later ones");
    }

    /// An object depends on each of them.
    #[test]
    fn readable_kinds_are_not_dropped_for_others() {
        let (mut kinds, began) = (NamedKinds::default(), Instant::now());
        for name in 0..300 {
            ask(&mut kinds, began, name, Standing::Readable, name);
        }
        assert_eq!(kinds.0.len(), 300);
    }

    #[test]
    fn unused_kinds_are_dropped() {
        let (mut kinds, began) = (NamedKinds::default(), Instant::now());
        for name in [0, 1] {
            ask(&mut kinds, began, name, Standing::Readable, 0);
        }
        let at = |second| began + Duration::from_secs(second);
        assert!(kinds.get(&1, at(30)).is_some());
        kinds.forget_unasked(Duration::from_secs(50), at(60));
        assert!(kinds.get(&0, at(60)).is_none());
        assert!(kinds.get(&1, at(60)).is_some());
        kinds.retain(|standing| *standing != Standing::Readable);
        assert!(kinds.get(&1, at(60)).is_none());
    }
}
