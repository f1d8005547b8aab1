//! Local state of a replica for its decisions, in addition to its stores.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Answers;
use crate::{gate::stuck::Counted, reasons::Hold};

/// Local state in addition to the stores.
#[derive(Debug, Default)]
pub struct Noted {
    /// Clusters that were held at the last count.
    pub held: Counted,
    /// Last decisions.
    pub answers: Answers,
    /// Hold that prevents the record of a Cluster, by UID. Only the leader knows it.
    holds: HashMap<String, Hold>,
}

impl Noted {
    /// Notes the hold that prevents a record of the Cluster with this UID. Returns whether it has changed.
    pub fn note(&mut self, uid: &str, hold: Option<Hold>) -> bool {
        let next = hold.clone();
        let before = match hold {
            Some(hold) => self.holds.insert(uid.to_owned(), hold),
            None => self.holds.remove(uid),
        };
        before != next
    }

    /// Returns the noted hold of the Cluster with this UID.
    #[must_use]
    pub fn noted(&self, uid: &str) -> Option<Hold> {
        self.holds.get(uid).cloned()
    }
}

/// Last logged state of a flag; initially false.
#[derive(Debug, Default)]
pub struct LogOnChange(AtomicBool);

impl LogOnChange {
    /// Returns the state if it differs from the last logged one. Every call checks it, and it hardly ever changes.
    pub fn changed(&self, is_so: bool) -> Option<bool> {
        let is_new =
            self.0.load(Ordering::Relaxed) != is_so && self.0.swap(is_so, Ordering::Relaxed) != is_so;
        is_new.then_some(is_so)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reasons::GateReason;

    #[test]
    fn a_change_is_reported_once() {
        let said = LogOnChange::default();
        let steps = [false, true, true, false, false, true];
        let changes = steps.map(|is_so| said.changed(is_so));
        assert_eq!(changes, [None, Some(true), None, Some(false), None, Some(true)]);
    }

    #[test]
    fn a_note_is_of_one_cluster_until_it_is_taken_back() {
        let mut noted = Noted::default();
        let hold = |message: &str| Some(Hold::new(GateReason::TKRNotFound, message));
        noted.note("a", hold("one"));
        noted.note("b", hold("two"));
        assert_eq!((noted.noted("a"), noted.noted("c")), (hold("one"), None));
        noted.note("a", hold("three"));
        assert_eq!(noted.noted("a"), hold("three"));
        noted.note("a", None);
        noted.note("c", None);
        assert_eq!((noted.noted("a"), noted.noted("b")), (None, hold("two")));
    }
}
