//! The kinds that objects name. Tenants write these names, so those of kinds that cannot be read take a bounded room.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

use kube::core::ObjectMeta;

use crate::step::{Single, Source};

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

/// What is known of each kind, by what names it.
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
    /// What is known of a kind; `open` makes it for one that was not asked for before. Where too many cannot be read, the one that
    /// was asked for longest ago goes, and one that is being read only where very many are.
    pub fn ask(
        &mut self,
        key: K,
        now: Instant,
        standing: impl Fn(&V) -> Standing,
        open: impl FnOnce(&K) -> V,
    ) -> &V {
        if !self.knows(&key) {
            self.make_room(standing);
        }
        let named = self.0.entry(key).or_insert_with_key(|key| Named {
            kind: open(key),
            asked_at: now,
        });
        named.asked_at = now;
        &named.kind
    }

    /// Whether a kind was asked for before.
    pub fn knows(&self, key: &K) -> bool {
        self.0.contains_key(key)
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
            now,
            |standing| *standing,
            |_| {
                opened = true;
                standing
            },
        );
        opened
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
        assert!(kinds.knows(&0), "those that cannot be read go");
        for name in 201..=1000 {
            ask(&mut kinds, began, name, Standing::Reading, name);
        }
        assert_eq!(kinds.0.len(), MOST);
        assert!(
            kinds.knows(&0),
            "it is read before those that were asked for later"
        );
    }
}
