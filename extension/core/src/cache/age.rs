//! Age of a store: time up to which it contains every change, as complete responses of the API server prove.
//!
//! A list proves the store current up to the list request, once the whole list is in the store. A watch proves it up to the watch
//! request, once the server has ended it regularly: the server has delivered all earlier changes by then. The start of a watch proves
//! nothing, because the connection may break before the delivery of outstanding changes. An event proves nothing either: more events
//! may be outstanding, or it may have waited in a buffer.

use std::time::{Duration, Instant};

/// Requested duration of a watch, in seconds. An idle store is at most two watches old, so [`RELIST_AFTER`] tolerates one broken watch.
pub const WATCH_SECONDS: u32 = 10;

/// Age at which a store is listed again, independent of its watch, so that it is current before its age exceeds the limit.
pub const RELIST_AFTER: Duration = Duration::from_secs(30);

/// Silence after which a list is requested again, over another connection. kube-apiserver gives up a list without a response after 60 s.
const LIST_SILENCE: Duration = Duration::from_secs(70);

/// Shortest duration of a watch of [`WATCH_SECONDS`] that ended regularly. A server that stops or whose reader is too slow ends a watch
/// early, without delivering all changes.
const COMPLETE: Duration = Duration::from_secs(9);

/// Requested duration of a watch that starts with a list and ends after it, in seconds.
pub const LIST_SECONDS: u32 = 600;

/// Progress of a watch that the API server accepted.
#[derive(Clone, Copy, Debug)]
pub enum WatchAnswer {
    /// The watch is requested now and starts with a list.
    Lists,
    /// The watch has started.
    Begun,
    /// The server has ended the watch regularly. kube-runtime reads on only after it has stored all earlier events, so the store is
    /// complete.
    Ended {
        /// Time of the watch request.
        asked: Instant,
    },
}

/// Age of one store.
#[derive(Debug, Default)]
pub struct Age {
    /// Time up to which no change is missing.
    proven: Option<Instant>,
    /// Time of the last failure. A proof that was in progress then does not count.
    doubted: Option<Instant>,
    /// Time since which the store is being filled; `None` while it is watched.
    filling: Option<Instant>,
    /// Time of the last event of the list or watch.
    heard: Option<Instant>,
    /// Time of the last completed list.
    filled: Option<Instant>,
}

impl Age {
    /// Returns the time up to which no change is missing; `None` if the store was never filled.
    #[must_use]
    pub fn proven(&self) -> Option<Instant> {
        self.proven
    }

    /// Records the request of a list.
    pub fn list(&mut self, now: Instant) {
        (self.filling, self.heard) = (Some(now), Some(now));
    }

    /// Records the start of a list, whose request may be recorded already.
    pub fn list_begins(&mut self, now: Instant) {
        if self.filling.is_none_or(|asked| self.is_doubted(asked)) {
            self.filling = Some(now);
        }
        self.heard = Some(now);
    }

    /// Records that the complete list is in the store.
    pub fn filled(&mut self, now: Instant) {
        (self.heard, self.filled) = (Some(now), Some(now));
        if let Some(asked) = self.filling.take() {
            self.prove(asked);
        }
    }

    /// Records that an object of the list or watch is in the store.
    pub fn heard(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// Records a failure of the list or watch: no earlier request proves anything any more.
    pub fn failed(&mut self, now: Instant) {
        (self.heard, self.doubted) = (Some(now), Some(now));
    }

    /// Records the regular end of the watch requested at `asked`, with all its events in the store.
    pub fn watch_ended(&mut self, asked: Instant, now: Instant) {
        if now.duration_since(asked) >= COMPLETE {
            self.prove(asked);
        }
    }

    /// Returns the time of the next list; `None` before the first request.
    #[must_use]
    pub fn relist_at(&self) -> Option<Instant> {
        match (self.filling, self.proven) {
            // A slow list proves an old age, and the following watch proves a young one.
            (None, Some(proven)) => {
                Some(self.filled.map_or(proven, |filled| proven.max(filled)) + RELIST_AFTER)
            }
            _ => Some(self.heard? + LIST_SILENCE),
        }
    }

    /// Records that the store contains all changes before `asked`.
    fn prove(&mut self, asked: Instant) {
        if !self.is_doubted(asked) {
            self.proven = self.proven.max(Some(asked));
        }
    }

    fn is_doubted(&self, asked: Instant) -> bool {
        self.doubted.is_some_and(|doubted| doubted >= asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds() -> impl Fn(u64) -> Instant {
        let began = Instant::now();
        move |second| began + Duration::from_secs(second)
    }

    #[test]
    fn an_older_or_doubted_proof_changes_nothing() {
        let (mut age, at) = (Age::default(), seconds());
        age.watch_ended(at(1), at(20));
        age.watch_ended(at(0), at(20));
        assert_eq!(age.proven(), Some(at(1)));
        age.failed(at(30));
        age.watch_ended(at(29), at(40));
        age.watch_ended(at(30), at(40));
        assert_eq!(age.proven(), Some(at(1)));
        age.watch_ended(at(31), at(41));
        assert_eq!(age.proven(), Some(at(31)));
    }

    #[test]
    fn a_watch_that_ends_early_proves_nothing() {
        let (mut age, at) = (Age::default(), seconds());
        age.watch_ended(at(0), at(8));
        assert_eq!(age.proven(), None);
        age.watch_ended(at(0), at(9));
        assert_eq!(age.proven(), Some(at(0)));
    }

    /// A server starts its response after it has determined the resourceVersion of the list.
    #[test]
    fn a_started_list_is_as_old_as_its_request() {
        let (mut age, at) = (Age::default(), seconds());
        age.list(at(0));
        age.list_begins(at(5));
        age.filled(at(6));
        assert_eq!(age.proven(), Some(at(0)));
        age.list(at(10));
        age.failed(at(11));
        age.list_begins(at(12));
        age.filled(at(13));
        assert_eq!(age.proven(), Some(at(12)), "another one, after that has failed");
    }

    #[test]
    fn a_list_proves_the_state_at_its_request() {
        let (mut age, at) = (Age::default(), seconds());
        assert_eq!(age.relist_at(), None);
        age.list(at(0));
        age.heard(at(60));
        assert_eq!(
            (age.proven(), age.relist_at()),
            (None, Some(at(60) + LIST_SILENCE))
        );
        age.filled(at(65));
        assert_eq!(age.proven(), Some(at(0)));
        assert_eq!(
            age.relist_at(),
            Some(at(65) + RELIST_AFTER),
            "the watch has time to prove a younger age"
        );
        age.watch_ended(at(70), at(80));
        age.heard(at(90));
        assert_eq!(
            age.relist_at(),
            Some(at(70) + RELIST_AFTER),
            "events prove nothing"
        );
        age.list(at(100));
        assert_eq!(age.relist_at(), Some(at(100) + LIST_SILENCE));
        age.failed(at(101));
        age.filled(at(102));
        assert_eq!(age.proven(), Some(at(70)), "a list that failed");
    }
}
