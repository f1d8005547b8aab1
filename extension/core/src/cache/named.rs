//! Kinds that objects name. Tenants write these names, so the number of unreadable kinds is bounded.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

use kube::core::ObjectMeta;
use sluice_crds::foreign::cluster::ObjectReference;

use super::discoveries::PERIOD;
use crate::{
    names::{LONGEST_LABEL, LONGEST_NAME},
    protocol::{Single, Source},
};

/// Limit of unreadable kinds. Mistakes cause only few of them.
const MOST_UNREADABLE: usize = 64;

/// Limit of unreadable kinds and kinds with a first list in progress. A first list takes some seconds. If new kinds ended it early, the
/// kind would never become readable while tenants name ever more kinds.
const MOST: usize = 4 * MOST_UNREADABLE;

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

/// Origin of a request for a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// Reconcile of a cached object. An unreadable kind is retried.
    Reconcile,
    /// Admission review, which anyone may send. An unreadable kind is tried once per minute.
    Review,
}

/// State of each kind, by key.
#[derive(Debug)]
pub struct NamedKinds<K, V>(HashMap<K, Named<V>>);

#[derive(Debug)]
struct Named<V> {
    kind: V,
    opened_for: Asker,
    opened_at: Instant,
    asked_at: Instant,
}

impl<V> Named<V> {
    /// Returns whether the kind must be opened again for this asker.
    fn is_stale(&self, asker: Asker, standing: Standing, now: Instant) -> bool {
        if self.opened_for == Asker::Reconcile {
            return false;
        }
        match (asker, standing) {
            (_, Standing::Readable) | (Asker::Review, Standing::Reading) => false,
            (Asker::Reconcile, _) => true,
            (Asker::Review, Standing::Unreadable) => now.duration_since(self.opened_at) >= PERIOD,
        }
    }
}

impl<K, V> Default for NamedKinds<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash, V> NamedKinds<K, V> {
    /// Returns the state of a kind; `open` creates it at the first request. With too many unreadable kinds, the least recently requested
    /// one is dropped. A kind with a first list in progress is dropped only at the higher limit.
    pub fn ask(
        &mut self,
        key: K,
        asker: Asker,
        now: Instant,
        standing: impl Fn(&V) -> Standing,
        open: impl FnOnce(&K) -> V,
    ) -> &V {
        if !self.knows(&key, asker, now, &standing) {
            self.0.remove(&key);
            self.make_room(standing);
        }
        let named = self.0.entry(key).or_insert_with_key(|key| Named {
            kind: open(key),
            opened_for: asker,
            opened_at: now,
            asked_at: now,
        });
        named.asked_at = now;
        &named.kind
    }

    /// Returns the state of a kind for this asker, without opening it.
    pub fn known(
        &mut self,
        key: &K,
        asker: Asker,
        now: Instant,
        standing: impl Fn(&V) -> Standing,
    ) -> Option<&V> {
        let named = self.0.get_mut(key)?;
        if named.is_stale(asker, standing(&named.kind), now) {
            return None;
        }
        named.asked_at = now;
        Some(&named.kind)
    }

    /// Returns whether the kind is already open for this asker.
    pub fn knows(&self, key: &K, asker: Asker, now: Instant, standing: impl Fn(&V) -> Standing) -> bool {
        let named = self.0.get(key);
        named.is_some_and(|named| !named.is_stale(asker, standing(&named.kind), now))
    }

    /// Drops kinds without a request within this time.
    pub fn forget_unasked(&mut self, time: Duration, now: Instant) {
        self.0
            .retain(|_, named| now.duration_since(named.asked_at) < time);
    }

    fn make_room(&mut self, standing: impl Fn(&V) -> Standing) {
        let standing = &standing;
        let of = |wanted: Standing| {
            let is_wanted = move |named: &Named<V>| standing(&named.kind) == wanted;
            self.0.iter().filter(move |(_, named)| is_wanted(named))
        };
        let unreadable = of(Standing::Unreadable).count();
        let is_full = unreadable + of(Standing::Reading).count() >= MOST;
        let goes = if unreadable >= MOST_UNREADABLE || (is_full && unreadable > 0) {
            of(Standing::Unreadable).min_by_key(|(_, named)| named.asked_at)
        } else if is_full {
            // The earliest requests are read first.
            of(Standing::Reading).max_by_key(|(_, named)| named.asked_at)
        } else {
            None
        };
        if let Some(key) = goes.map(|(key, _)| key.clone()) {
            self.0.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;
    use rstest::rstest;
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
        kinds.ask(
            name,
            Asker::Reconcile,
            now,
            |standing| *standing,
            |_| {
                opened = true;
                standing
            },
        );
        opened
    }

    fn knows(kinds: &NamedKinds<u64, Standing>, now: Instant, name: u64) -> bool {
        kinds.knows(&name, Asker::Reconcile, now, |standing| *standing)
    }

    #[rstest]
    #[case::of_a_reconcile(Asker::Reconcile, Standing::Unreadable, Asker::Reconcile, 3600, false)]
    #[case::of_a_reconcile_for_a_review(Asker::Reconcile, Standing::Unreadable, Asker::Review, 3600, false)]
    #[case::readable(Asker::Review, Standing::Readable, Asker::Review, 3600, false)]
    #[case::readable_for_a_reconcile(Asker::Review, Standing::Readable, Asker::Reconcile, 3600, false)]
    #[case::being_read(Asker::Review, Standing::Reading, Asker::Review, 3600, false)]
    #[case::being_read_for_a_reconcile(Asker::Review, Standing::Reading, Asker::Reconcile, 0, true)]
    #[case::unreadable_for_a_reconcile(Asker::Review, Standing::Unreadable, Asker::Reconcile, 0, true)]
    #[case::unreadable_for_a_minute(Asker::Review, Standing::Unreadable, Asker::Review, 59, false)]
    #[case::unreadable_after_a_minute(Asker::Review, Standing::Unreadable, Asker::Review, 60, true)]
    fn kinds_opened_by_reviews_are_opened_again(
        #[case] first: Asker,
        #[case] standing: Standing,
        #[case] second: Asker,
        #[case] after: u64,
        #[case] again: bool,
    ) {
        let (mut kinds, began) = (NamedKinds::default(), Instant::now());
        let now = began + Duration::from_secs(after);
        kinds.ask(0, first, began, |standing| *standing, |_| standing);
        let known = kinds.known(&0, second, now, |standing| *standing);
        assert_eq!(known.is_none(), again);
        let mut opened = false;
        let open = |_: &u64| {
            opened = true;
            Standing::Reading
        };
        kinds.ask(0, second, now, |standing| *standing, open);
        assert_eq!(opened, again);
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
    fn the_number_of_unreadable_kinds_is_bounded() {
        let (mut kinds, began) = (NamedKinds::default(), Instant::now());
        ask(&mut kinds, began, 0, Standing::Readable, 0);
        for name in 1..=200 {
            assert!(ask(&mut kinds, began, name, Standing::Unreadable, name));
        }
        assert_eq!(kinds.0.len(), 1 + MOST_UNREADABLE);
        assert!(
            !ask(&mut kinds, began, 0, Standing::Readable, 201),
            "a readable kind stays"
        );
        assert!(
            !ask(&mut kinds, began, 200, Standing::Unreadable, 202),
            "the latest requests stay"
        );
        assert!(
            ask(&mut kinds, began, 1, Standing::Unreadable, 203),
            "it was dropped"
        );

        ask(&mut kinds, began, 0, Standing::Readable, 10_000);
        kinds.forget_unasked(Duration::from_secs(5), began + Duration::from_secs(10));
        assert_eq!(kinds.0.len(), 1);
    }

    /// Tenants may name kinds faster than Sluice reads them.
    #[test]
    fn a_first_list_is_not_dropped_for_other_kinds() {
        let (mut kinds, began) = (NamedKinds::default(), Instant::now());
        ask(&mut kinds, began, 0, Standing::Reading, 0);
        for name in 1..=200 {
            ask(&mut kinds, began, name, Standing::Unreadable, name);
        }
        assert_eq!(kinds.0.len(), 1 + MOST_UNREADABLE);
        assert!(knows(&kinds, began, 0), "unreadable kinds are dropped");
        for name in 201..=1000 {
            ask(&mut kinds, began, name, Standing::Reading, name);
        }
        assert_eq!(kinds.0.len(), MOST);
        assert!(knows(&kinds, began, 0), "it is read before later ones");
    }
}
