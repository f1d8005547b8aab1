//! What a replica remembers for its answers beside its stores.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Answers;
use crate::{gate::stuck::Counted, reasons::Hold};

/// What is noted beside the stores.
#[derive(Debug, Default)]
pub struct Noted {
    /// The Clusters that were held at the last look.
    pub held: Counted,
    /// What was answered last.
    pub answers: Answers,
    /// What keeps a Cluster from having a record at all, by UID. Only the leader knows.
    holds: HashMap<String, Hold>,
}

impl Noted {
    /// Notes what keeps the Cluster with this UID from having a record, if anything does. Says whether that is news.
    pub fn note(&mut self, uid: &str, hold: Option<Hold>) -> bool {
        let next = hold.clone();
        let before = match hold {
            Some(hold) => self.holds.insert(uid.to_owned(), hold),
            None => self.holds.remove(uid),
        };
        before != next
    }

    /// What was noted of the Cluster with this UID.
    #[must_use]
    pub fn noted(&self, uid: &str) -> Option<Hold> {
        self.holds.get(uid).cloned()
    }
}

/// Whether something is so, as it was said last. At first it is not.
#[derive(Debug, Default)]
pub struct LogOnChange(AtomicBool);

impl LogOnChange {
    /// What has to be said now, if it is another thing than before. Every call asks, and hardly ever is there any.
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
    fn a_change_is_said_once() {
        let said = LogOnChange::default();
        let steps = [false, true, true, false, false, true];
        let news = steps.map(|is_so| said.changed(is_so));
        assert_eq!(news, [None, Some(true), None, Some(false), None, Some(true)]);
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
