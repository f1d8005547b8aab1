//! Snapshot store: the latest state of each Cluster in the order of changes, and the positions of readers.
//!
//! A reader is a position, not a queue: the store keeps each latest state once, for any number of slow readers.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, VecDeque},
    ops::Bound::{Excluded, Included, Unbounded},
};

use sluice_core::cluster::ClusterRef;

/// Number of removals kept for slow readers.
const REMOVALS: usize = 1024;

/// Key of a Cluster, ordered by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key(ClusterRef);

impl Key {
    fn parts(&self) -> (&str, &str) {
        (self.0.namespace(), self.0.name())
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug)]
struct Entry<V> {
    revision: u64,
    is_there: bool,
    value: V,
}

/// The latest state of each Cluster.
#[derive(Debug)]
pub(crate) struct SnapshotStore<V> {
    /// Revision of the latest change; 0 before the first one.
    head: u64,
    entries: BTreeMap<Key, Entry<V>>,
    by_revision: BTreeMap<u64, Key>,
    /// Revisions of removals, the oldest first, including those of Clusters that exist again.
    removals: VecDeque<u64>,
    /// Revision of the latest removal that is not kept any more.
    forgotten: u64,
}

impl<V> Default for SnapshotStore<V> {
    fn default() -> Self {
        Self {
            head: 0,
            entries: BTreeMap::new(),
            by_revision: BTreeMap::new(),
            removals: VecDeque::new(),
            forgotten: 0,
        }
    }
}

impl<V: Clone + PartialEq> SnapshotStore<V> {
    /// Stores the state of a Cluster, or its removal. Returns whether that is a change.
    pub(crate) fn put(&mut self, cluster: &ClusterRef, value: Option<V>) -> bool {
        let key = Key(cluster.clone());
        let before = self.entries.get(&key);
        let value = match (before, value) {
            (Some(entry), Some(value)) if entry.is_there && entry.value == value => return false,
            (_, Some(value)) => Ok(value),
            // Readers get the last state with the removal.
            (Some(entry), None) if entry.is_there => Err(entry.value.clone()),
            (_, None) => return false,
        };
        if let Some(entry) = before {
            self.by_revision.remove(&entry.revision);
        }
        self.head += 1;
        let is_there = value.is_ok();
        let (Ok(value) | Err(value)) = value;
        let entry = Entry {
            revision: self.head,
            is_there,
            value,
        };
        self.by_revision.insert(self.head, key.clone());
        self.entries.insert(key, entry);
        if !is_there {
            self.removals.push_back(self.head);
            self.forget();
        }
        true
    }

    fn forget(&mut self) {
        while self.removals.len() > REMOVALS {
            let Some(oldest) = self.removals.pop_front() else {
                return;
            };
            // A Cluster that exists again has another revision.
            if let Some(key) = self.by_revision.remove(&oldest) {
                self.entries.remove(&key);
                self.forgotten = oldest;
            }
        }
    }

    /// Returns all existing Clusters.
    #[must_use]
    pub(crate) fn clusters(&self) -> Vec<ClusterRef> {
        let there = self.entries.iter().filter(|(_, entry)| entry.is_there);
        there.map(|(key, _)| key.0.clone()).collect()
    }

    /// Returns the state of a Cluster, if it exists.
    #[must_use]
    pub(crate) fn get(&self, cluster: &ClusterRef) -> Option<&V> {
        let entry = self.entries.get(&Key(cluster.clone()))?;
        entry.is_there.then_some(&entry.value)
    }

    /// Lists the existing Clusters of a selection after `after`, ordered by namespace and name.
    pub(crate) fn list<'a>(
        &'a self,
        selection: &'a Selection,
        after: Option<&ClusterRef>,
    ) -> impl Iterator<Item = (&'a ClusterRef, &'a V)> + use<'a, V> {
        let first = match (after, selection) {
            (Some(after), _) => Excluded(Key(after.clone())),
            // No name is empty, so this key precedes all Clusters of the namespace.
            (None, Selection::Namespace(namespace)) => Excluded(Key(ClusterRef::new(namespace, ""))),
            (None, Selection::One(cluster)) => Included(Key(cluster.clone())),
            (None, Selection::All) => Unbounded,
        };
        self.entries
            .range((first, Unbounded))
            .take_while(|(key, _)| selection.has(&key.0))
            .filter(|(_, entry)| entry.is_there)
            .map(|(key, entry)| (&key.0, &entry.value))
    }
}

/// Selection of Clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// All Clusters.
    All,
    /// The Clusters of one namespace.
    Namespace(String),
    /// One Cluster.
    One(ClusterRef),
}

impl Selection {
    /// Returns the selection of a request: an empty namespace selects all Clusters, an empty name those of the namespace. `None` for a
    /// name without a namespace.
    #[must_use]
    pub(crate) fn of(namespace: &str, name: &str) -> Option<Self> {
        match (namespace, name) {
            ("", "") => Some(Self::All),
            ("", _) => None,
            (_, "") => Some(Self::Namespace(namespace.to_owned())),
            _ => Some(Self::One(ClusterRef::new(namespace, name))),
        }
    }

    /// Returns the namespace of the selection; empty if it spans all.
    #[must_use]
    pub(crate) fn namespace(&self) -> &str {
        match self {
            Self::All => "",
            Self::Namespace(namespace) => namespace,
            Self::One(cluster) => cluster.namespace(),
        }
    }

    /// Whether the selection contains a Cluster. Selected Clusters are adjacent in the order of namespaces and names.
    #[must_use]
    pub(crate) fn has(&self, cluster: &ClusterRef) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => cluster.namespace() == namespace,
            Self::One(one) => cluster == one,
        }
    }
}

/// Next item of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next<V> {
    /// The state of a Cluster.
    Updated(V),
    /// The last state of a removed Cluster.
    Removed(V),
    /// The reader has read all Clusters that existed at its beginning.
    Synced,
    /// No item until the next change.
    Nothing,
    /// The store dropped removals that the reader has not read. The reader must start again.
    Behind,
}

/// Position of a reader: first in the existing Clusters, by name, then in the changes since its beginning.
#[derive(Debug)]
pub(crate) struct Reader {
    selection: Selection,
    position: Position,
}

#[derive(Debug)]
enum Position {
    Listing { after: Option<ClusterRef>, began: u64 },
    Following { seen: u64 },
}

impl Reader {
    /// Creates a reader that begins now.
    #[must_use]
    pub(crate) fn begin<V>(selection: Selection, store: &SnapshotStore<V>) -> Self {
        Self {
            selection,
            position: Position::Listing {
                after: None,
                began: store.head,
            },
        }
    }

    /// Returns the next item.
    pub(crate) fn next<V: Clone + PartialEq>(&mut self, store: &SnapshotStore<V>) -> Next<V> {
        match &mut self.position {
            Position::Listing { after, began } => {
                if let Some((cluster, value)) = store.list(&self.selection, after.as_ref()).next() {
                    *after = Some(cluster.clone());
                    return Next::Updated(value.clone());
                }
                self.position = Position::Following { seen: *began };
                Next::Synced
            }
            Position::Following { seen } => {
                if store.forgotten > *seen {
                    return Next::Behind;
                }
                let found = match &self.selection {
                    Selection::One(one) => {
                        let entry = store.entries.get(&Key(one.clone()));
                        entry.filter(|entry| entry.revision > *seen)
                    }
                    selection => {
                        let mut later = store.by_revision.range((Excluded(*seen), Unbounded));
                        let mine = later.find(|(_, key)| selection.has(&key.0));
                        mine.and_then(|(_, key)| store.entries.get(key))
                    }
                };
                let Some(entry) = found else {
                    *seen = store.head;
                    return Next::Nothing;
                };
                *seen = entry.revision;
                let value = entry.value.clone();
                if entry.is_there {
                    Next::Updated(value)
                } else {
                    Next::Removed(value)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn at(name: &str) -> ClusterRef {
        let (namespace, name) = name.split_once('/').unwrap();
        ClusterRef::new(namespace, name)
    }

    fn store(names: &[&'static str]) -> SnapshotStore<&'static str> {
        let mut store = SnapshotStore::default();
        for name in names {
            store.put(&at(name), Some(*name));
        }
        store
    }

    fn all<V: Clone + PartialEq>(reader: &mut Reader, store: &SnapshotStore<V>) -> Vec<Next<V>> {
        let next = || Some(reader.next(store)).filter(|next| !matches!(next, Next::Nothing | Next::Behind));
        std::iter::from_fn(next).collect()
    }

    #[rstest]
    #[case::all("", "", &["a/x", "a/y", "a-b/x", "b/x"])]
    #[case::of_one_namespace("a", "", &["a/x", "a/y"])]
    #[case::one("a", "y", &["a/y"])]
    #[case::none("a", "z", &[])]
    #[case::no_such_namespace("c", "", &[])]
    fn clusters_are_listed_by_namespace_and_name(
        #[case] namespace: &str,
        #[case] name: &str,
        #[case] wanted: &[&'static str],
    ) {
        let store = store(&["b/x", "a-b/x", "a/y", "a/x"]);
        let selection = Selection::of(namespace, name).unwrap();
        let listed: Vec<_> = store.list(&selection, None).map(|(_, value)| *value).collect();
        assert_eq!(listed, wanted);
        let mut reader = Reader::begin(selection.clone(), &store);
        let mut read: Vec<_> = wanted.iter().copied().map(Next::Updated).collect();
        read.push(Next::Synced);
        assert_eq!(all(&mut reader, &store), read);
        let rest: Vec<_> = wanted.iter().skip(1).copied().collect();
        let after = wanted.first().map(|first| at(first));
        let behind: Vec<_> = store
            .list(&selection, after.as_ref())
            .map(|(_, value)| *value)
            .collect();
        assert!(after.is_none() || behind == rest, "{behind:?}");
        assert_eq!(Selection::of("", "x"), None);
    }

    #[test]
    fn a_slow_reader_gets_the_latest_state_of_each_once() {
        let mut store = store(&["a/x", "a/y"]);
        let mut reader = Reader::begin(Selection::Namespace("a".to_owned()), &store);
        all(&mut reader, &store);
        for state in ["1", "2", "3"] {
            assert!(store.put(&at("a/x"), Some(state)));
            store.put(&at("b/x"), Some(state));
        }
        assert!(!store.put(&at("a/x"), Some("3")), "nothing has changed");
        store.put(&at("a/z"), Some("new"));
        assert!(store.put(&at("a/y"), None));
        assert!(!store.put(&at("a/y"), None), "it is gone already");
        let read = all(&mut reader, &store);
        assert_eq!(
            read,
            [Next::Updated("3"), Next::Updated("new"), Next::Removed("a/y")]
        );
        assert_eq!(reader.next(&store), Next::Nothing);
        store.put(&at("a/y"), Some("again"));
        assert_eq!(all(&mut reader, &store), [Next::Updated("again")]);
        assert_eq!(store.clusters(), ["a/x", "a/y", "a/z", "b/x"].map(at));
    }

    /// A change during the initial read is not lost, whether before its end or after it.
    #[test]
    fn a_change_behind_a_reader_that_begins_is_read() {
        let mut store = store(&["a/x", "a/y"]);
        let mut reader = Reader::begin(Selection::All, &store);
        assert_eq!(reader.next(&store), Next::Updated("a/x"));
        store.put(&at("a/x"), None);
        store.put(&at("a/a"), Some("early"));
        assert_eq!(
            all(&mut reader, &store),
            [
                Next::Updated("a/y"),
                Next::Synced,
                Next::Removed("a/x"),
                Next::Updated("early")
            ]
        );
    }

    #[test]
    fn removals_are_kept_for_a_while() {
        let mut store = SnapshotStore::default();
        let mut reader = Reader::begin(Selection::One(at("a/first")), &store);
        all(&mut reader, &store);
        let churn = |store: &mut SnapshotStore<usize>, times: usize| {
            for number in 0..times {
                let name = ClusterRef::new("b", &number.to_string());
                store.put(&name, Some(number));
                store.put(&name, None);
            }
        };
        churn(&mut store, REMOVALS);
        let mut idle = Reader::begin(Selection::All, &store);
        all(&mut idle, &store);
        assert_eq!(reader.next(&store), Next::Nothing);
        churn(&mut store, REMOVALS + 1);
        assert_eq!(reader.next(&store), Next::Behind);
        assert_eq!(store.entries.len(), REMOVALS, "no more are kept");
        assert_eq!(store.by_revision.len(), REMOVALS);
    }

    proptest! {
        /// After any changes during its reads, a reader at the end knows all existing Clusters.
        #[test]
        fn a_reader_at_the_end_has_all_clusters(
            steps in prop::collection::vec((0usize..4, prop::option::of(0u8..3), 0usize..3), 0..60),
        ) {
            let names = ["a/x", "a/y", "a-b/x", "b/x"].map(at);
            let mut store: SnapshotStore<(usize, u8)> = SnapshotStore::default();
            let mut reader = Reader::begin(Selection::All, &store);
            let mut known = BTreeMap::new();
            let mut read = |reader: &mut Reader, store: &SnapshotStore<(usize, u8)>, most: usize| {
                for _ in 0..most {
                    match reader.next(store) {
                        Next::Updated(state) => drop(known.insert(state.0, state)),
                        Next::Removed(state) => drop(known.remove(&state.0)),
                        Next::Synced => {}
                        Next::Nothing | Next::Behind => break,
                    }
                }
                known.clone()
            };
            for (name, state, reads) in steps {
                store.put(&names[name], state.map(|state| (name, state)));
                read(&mut reader, &store, reads);
            }
            let known = read(&mut reader, &store, usize::MAX);
            let there: BTreeMap<_, _> = store.list(&Selection::All, None).map(|(_, state)| (state.0, *state)).collect();
            prop_assert_eq!(known, there);
        }
    }
}
