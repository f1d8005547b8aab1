//! The latest state of each Cluster in the order of changes, and how far one reader is.
//!
//! A reader is a position, not a queue: however slow it is, and however many there are, only the latest states are kept, once.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, VecDeque},
    ops::Bound::{Excluded, Included, Unbounded},
};

use crate::cluster::ClusterRef;

/// Removals that are kept for readers that are behind.
const REMOVALS: usize = 1024;

/// A Cluster, in the order of namespaces and, within one, of names.
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
pub struct SnapshotStore<V> {
    /// Of the latest change; 0 before the first one.
    head: u64,
    entries: BTreeMap<Key, Entry<V>>,
    by_revision: BTreeMap<u64, Key>,
    /// Revisions of removals, the oldest first, with those of Clusters that are there again.
    removals: VecDeque<u64>,
    /// Of the latest removal that is not kept any more.
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
    /// A Cluster is there in this state, or is gone. Returns whether that is a change.
    pub fn put(&mut self, cluster: &ClusterRef, value: Option<V>) -> bool {
        let key = Key(cluster.clone());
        let before = self.entries.get(&key);
        let value = match (before, value) {
            (Some(entry), Some(value)) if entry.is_there && entry.value == value => return false,
            (_, Some(value)) => Ok(value),
            // The state before is kept, for those who are to see that it is gone.
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
            // One that is there again has another revision.
            if let Some(key) = self.by_revision.remove(&oldest) {
                self.entries.remove(&key);
                self.forgotten = oldest;
            }
        }
    }

    /// Every Cluster that is there.
    #[must_use]
    pub fn clusters(&self) -> Vec<ClusterRef> {
        let there = self.entries.iter().filter(|(_, entry)| entry.is_there);
        there.map(|(key, _)| key.0.clone()).collect()
    }

    /// The state of one Cluster, if it is there.
    #[must_use]
    pub fn get(&self, cluster: &ClusterRef) -> Option<&V> {
        let entry = self.entries.get(&Key(cluster.clone()))?;
        entry.is_there.then_some(&entry.value)
    }

    /// What is there of a selection, in the order of namespaces and names, from behind `after` on.
    pub fn list<'a>(
        &'a self,
        selection: &'a Selection,
        after: Option<&ClusterRef>,
    ) -> impl Iterator<Item = (&'a ClusterRef, &'a V)> + use<'a, V> {
        let first = match (after, selection) {
            (Some(after), _) => Excluded(Key(after.clone())),
            // No name is empty, so this is before all of them.
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

/// Some of the Clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All of them.
    All,
    /// Those of one namespace.
    Namespace(String),
    /// One of them.
    One(ClusterRef),
}

impl Selection {
    /// The Clusters that a request names; an empty namespace means all of them, an empty name those of the namespace. None for a
    /// name without its namespace.
    #[must_use]
    pub fn of(namespace: &str, name: &str) -> Option<Self> {
        match (namespace, name) {
            ("", "") => Some(Self::All),
            ("", _) => None,
            (_, "") => Some(Self::Namespace(namespace.to_owned())),
            _ => Some(Self::One(ClusterRef::new(namespace, name))),
        }
    }

    /// The namespace in which all of it is; empty if it is in all.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Self::All => "",
            Self::Namespace(namespace) => namespace,
            Self::One(cluster) => cluster.namespace(),
        }
    }

    /// Whether a Cluster is one of them. They are beside one another in the order of namespaces and names.
    #[must_use]
    pub fn has(&self, cluster: &ClusterRef) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => cluster.namespace() == namespace,
            Self::One(one) => cluster == one,
        }
    }
}

/// What a reader gets next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next<V> {
    /// A Cluster is in this state.
    Updated(V),
    /// A Cluster is gone, which was in this state.
    Removed(V),
    /// All that was there at the beginning was read.
    Synced,
    /// There is no more until something changes.
    Nothing,
    /// Removals were forgotten that it has not read. It has to begin again.
    Behind,
}

/// How far one reader is: through what is there at first, by name, and then through the changes since it began.
#[derive(Debug)]
pub struct Reader {
    selection: Selection,
    position: Position,
}

#[derive(Debug)]
enum Position {
    Listing { after: Option<ClusterRef>, began: u64 },
    Following { seen: u64 },
}

impl Reader {
    /// A reader that begins now.
    #[must_use]
    pub fn begin<V>(selection: Selection, board: &SnapshotStore<V>) -> Self {
        Self {
            selection,
            position: Position::Listing {
                after: None,
                began: board.head,
            },
        }
    }

    /// What it gets next.
    pub fn next<V: Clone + PartialEq>(&mut self, board: &SnapshotStore<V>) -> Next<V> {
        match &mut self.position {
            Position::Listing { after, began } => {
                if let Some((cluster, value)) = board.list(&self.selection, after.as_ref()).next() {
                    *after = Some(cluster.clone());
                    return Next::Updated(value.clone());
                }
                self.position = Position::Following { seen: *began };
                Next::Synced
            }
            Position::Following { seen } => {
                if board.forgotten > *seen {
                    return Next::Behind;
                }
                let found = match &self.selection {
                    Selection::One(one) => {
                        let entry = board.entries.get(&Key(one.clone()));
                        entry.filter(|entry| entry.revision > *seen)
                    }
                    selection => {
                        let mut later = board.by_revision.range((Excluded(*seen), Unbounded));
                        let mine = later.find(|(_, key)| selection.has(&key.0));
                        mine.and_then(|(_, key)| board.entries.get(key))
                    }
                };
                let Some(entry) = found else {
                    *seen = board.head;
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

    fn board(names: &[&'static str]) -> SnapshotStore<&'static str> {
        let mut board = SnapshotStore::default();
        for name in names {
            board.put(&at(name), Some(*name));
        }
        board
    }

    fn all<V: Clone + PartialEq>(reader: &mut Reader, board: &SnapshotStore<V>) -> Vec<Next<V>> {
        let next = || Some(reader.next(board)).filter(|next| !matches!(next, Next::Nothing | Next::Behind));
        std::iter::from_fn(next).collect()
    }

    #[rstest]
    #[case::all("", "", &["a/x", "a/y", "a-b/x", "b/x"])]
    #[case::of_one_namespace("a", "", &["a/x", "a/y"])]
    #[case::one("a", "y", &["a/y"])]
    #[case::none("a", "z", &[])]
    #[case::no_such_namespace("c", "", &[])]
    fn what_is_there_comes_by_namespace_and_name(
        #[case] namespace: &str,
        #[case] name: &str,
        #[case] wanted: &[&'static str],
    ) {
        let board = board(&["b/x", "a-b/x", "a/y", "a/x"]);
        let selection = Selection::of(namespace, name).unwrap();
        let listed: Vec<_> = board.list(&selection, None).map(|(_, value)| *value).collect();
        assert_eq!(listed, wanted);
        let mut reader = Reader::begin(selection.clone(), &board);
        let mut read: Vec<_> = wanted.iter().copied().map(Next::Updated).collect();
        read.push(Next::Synced);
        assert_eq!(all(&mut reader, &board), read);
        let rest: Vec<_> = wanted.iter().skip(1).copied().collect();
        let after = wanted.first().map(|first| at(first));
        let behind: Vec<_> = board
            .list(&selection, after.as_ref())
            .map(|(_, value)| *value)
            .collect();
        assert!(after.is_none() || behind == rest, "{behind:?}");
        assert_eq!(Selection::of("", "x"), None);
    }

    #[test]
    fn a_slow_reader_gets_the_latest_state_of_each_once() {
        let mut board = board(&["a/x", "a/y"]);
        let mut reader = Reader::begin(Selection::Namespace("a".to_owned()), &board);
        all(&mut reader, &board);
        for state in ["1", "2", "3"] {
            assert!(board.put(&at("a/x"), Some(state)));
            board.put(&at("b/x"), Some(state));
        }
        assert!(!board.put(&at("a/x"), Some("3")), "nothing has changed");
        board.put(&at("a/z"), Some("new"));
        assert!(board.put(&at("a/y"), None));
        assert!(!board.put(&at("a/y"), None), "it is gone already");
        let read = all(&mut reader, &board);
        assert_eq!(
            read,
            [Next::Updated("3"), Next::Updated("new"), Next::Removed("a/y")]
        );
        assert_eq!(reader.next(&board), Next::Nothing);
        board.put(&at("a/y"), Some("again"));
        assert_eq!(all(&mut reader, &board), [Next::Updated("again")]);
        assert_eq!(board.clusters(), ["a/x", "a/y", "a/z", "b/x"].map(at));
    }

    /// A change while the first states are read is not lost: before the end of them or after it.
    #[test]
    fn a_change_behind_a_reader_that_begins_is_read() {
        let mut board = board(&["a/x", "a/y"]);
        let mut reader = Reader::begin(Selection::All, &board);
        assert_eq!(reader.next(&board), Next::Updated("a/x"));
        board.put(&at("a/x"), None);
        board.put(&at("a/a"), Some("early"));
        assert_eq!(
            all(&mut reader, &board),
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
        let mut board = SnapshotStore::default();
        let mut reader = Reader::begin(Selection::One(at("a/first")), &board);
        all(&mut reader, &board);
        let churn = |board: &mut SnapshotStore<usize>, times: usize| {
            for number in 0..times {
                let name = ClusterRef::new("b", &number.to_string());
                board.put(&name, Some(number));
                board.put(&name, None);
            }
        };
        churn(&mut board, REMOVALS);
        let mut idle = Reader::begin(Selection::All, &board);
        all(&mut idle, &board);
        assert_eq!(reader.next(&board), Next::Nothing);
        churn(&mut board, REMOVALS + 1);
        assert_eq!(reader.next(&board), Next::Behind);
        assert_eq!(board.entries.len(), REMOVALS, "no more are kept");
        assert_eq!(board.by_revision.len(), REMOVALS);
    }

    proptest! {
        /// Whatever happens while it reads, a reader that has read all knows what is there.
        #[test]
        fn a_reader_that_has_read_all_knows_what_is_there(
            steps in prop::collection::vec((0usize..4, prop::option::of(0u8..3), 0usize..3), 0..60),
        ) {
            let names = ["a/x", "a/y", "a-b/x", "b/x"].map(at);
            let mut board: SnapshotStore<(usize, u8)> = SnapshotStore::default();
            let mut reader = Reader::begin(Selection::All, &board);
            let mut known = BTreeMap::new();
            let mut read = |reader: &mut Reader, board: &SnapshotStore<(usize, u8)>, most: usize| {
                for _ in 0..most {
                    match reader.next(board) {
                        Next::Updated(state) => drop(known.insert(state.0, state)),
                        Next::Removed(state) => drop(known.remove(&state.0)),
                        Next::Synced => {}
                        Next::Nothing | Next::Behind => break,
                    }
                }
                known.clone()
            };
            for (name, state, reads) in steps {
                board.put(&names[name], state.map(|state| (name, state)));
                read(&mut reader, &board, reads);
            }
            let known = read(&mut reader, &board, usize::MAX);
            let there: BTreeMap<_, _> = board.list(&Selection::All, None).map(|(_, state)| (state.0, *state)).collect();
            prop_assert_eq!(known, there);
        }
    }
}
