//! The kinds that objects name. Tenants write these names, so those of kinds that cannot be read take a bounded room.

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

/// Kinds that cannot be read are not more than this: there are few by mistake.
const MOST_UNREADABLE: usize = 64;

/// With those that are being read for the first time they are not more than this. That takes some seconds, and a kind of which the
/// watch was ended in them would never be read while others name ever more kinds.
const MOST: usize = 4 * MOST_UNREADABLE;

/// A kind that an object names, as far as it is watched at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedKind {
    /// Its API group; empty is the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// Whether a Cluster names it: then all who may edit Clusters choose it.
    pub is_given: bool,
    /// The one object that is watched, where not all are.
    pub single: Option<Single>,
}

impl NamedKind {
    /// A kind that a Cluster names.
    #[must_use]
    pub fn given(group: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            is_given: true,
            single: None,
        }
    }

    /// The kind that a Cluster refers to; none where group or kind are longer than Kubernetes takes, so that none can be served.
    #[must_use]
    pub fn referred(reference: &ObjectReference) -> Option<Self> {
        let (group, kind) = (reference.group(), &reference.kind);
        (group.len() <= LONGEST_NAME && kind.len() <= LONGEST_LABEL).then(|| Self::given(group, kind))
    }

    /// Every object of the kind.
    #[must_use]
    pub fn every(&self) -> Source {
        Source::Every {
            group: self.group.clone(),
            kind: self.kind.clone(),
        }
    }

    /// What a change of an object concerns.
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

/// The kind whose watch shows a source.
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

/// How far a kind is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its objects are in memory.
    Readable,
    /// It is read for the first time.
    Reading,
    /// It cannot be read.
    Unreadable,
}

/// Who asks for a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// A reconcile, of an object that is in memory. A kind that cannot be read is tried again and again.
    Reconcile,
    /// A review, which anybody may send. A kind that cannot be read is tried once, and that counts for a minute.
    Review,
}

/// What is known of each kind, by what names it.
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
    /// Whether it is to be opened once more for this asker.
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
    /// What is known of a kind; `open` makes it for one that was not asked for before. Where too many cannot be read, the one that
    /// was asked for longest ago goes, and one that is being read only where very many are.
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

    /// What is known of a kind for this asker. None is opened.
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

    /// Whether a kind was asked for before, so that it need not be opened for this asker.
    pub fn knows(&self, key: &K, asker: Asker, now: Instant, standing: impl Fn(&V) -> Standing) -> bool {
        let named = self.0.get(key);
        named.is_some_and(|named| !named.is_stale(asker, standing(&named.kind), now))
    }

    /// Forgets kinds that nothing has asked for in this time.
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
            // Those that were asked for first are read first.
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
    fn a_kind_is_watched_once_for_all_that_it_shows() {
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
    fn a_change_concerns_the_object_and_its_kind() {
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

    /// Asks for a kind of this standing so many milliseconds after `began`. Whether it was not known.
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
    fn what_reviews_have_opened_is_opened_again(
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
    fn kinds_that_cannot_be_read_take_a_bounded_room() {
        let (mut kinds, began) = (NamedKinds::default(), Instant::now());
        ask(&mut kinds, began, 0, Standing::Readable, 0);
        for name in 1..=200 {
            assert!(ask(&mut kinds, began, name, Standing::Unreadable, name));
        }
        assert_eq!(kinds.0.len(), 1 + MOST_UNREADABLE);
        assert!(
            !ask(&mut kinds, began, 0, Standing::Readable, 201),
            "one that can be read stays"
        );
        assert!(
            !ask(&mut kinds, began, 200, Standing::Unreadable, 202),
            "and so do those asked for last"
        );
        assert!(
            ask(&mut kinds, began, 1, Standing::Unreadable, 203),
            "it was forgotten"
        );

        ask(&mut kinds, began, 0, Standing::Readable, 10_000);
        kinds.forget_unasked(Duration::from_secs(5), began + Duration::from_secs(10));
        assert_eq!(kinds.0.len(), 1);
    }

    /// Tenants may name one after the other, quicker than any is read.
    #[test]
    fn a_kind_that_is_being_read_does_not_go_for_others() {
        let (mut kinds, began) = (NamedKinds::default(), Instant::now());
        ask(&mut kinds, began, 0, Standing::Reading, 0);
        for name in 1..=200 {
            ask(&mut kinds, began, name, Standing::Unreadable, name);
        }
        assert_eq!(kinds.0.len(), 1 + MOST_UNREADABLE);
        assert!(knows(&kinds, began, 0), "those that cannot be read go");
        for name in 201..=1000 {
            ask(&mut kinds, began, name, Standing::Reading, name);
        }
        assert_eq!(kinds.0.len(), MOST);
        assert!(
            knows(&kinds, began, 0),
            "it is read before those that were asked for later"
        );
    }
}
