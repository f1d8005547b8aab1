//! How old a store is: since when it has missed no change, as complete answers of the API server prove.
//!
//! A list proves that nothing was missed until it was asked for, once all of it is in the store. So does a watch, once it has
//! ended as the server ends it: whatever had happened before it was asked for has been delivered by then. Its beginning
//! proves nothing, because the connection may break before what happened meanwhile is delivered, and neither does an
//! event, which may be the first of many that are outstanding or may have waited in a buffer.

use std::time::{Duration, Instant};

/// What a watch is asked to last, in seconds. An idle store is at most two watches old, so [`RELIST_AFTER`] leaves room for
/// one that breaks.
pub const WATCH_SECONDS: u32 = 10;

/// A store of this age is listed again, whatever its watch seems to do, so that it is current before its age is over the limit.
pub const RELIST_AFTER: Duration = Duration::from_secs(30);

/// A list that brings nothing for this long is asked for again, over another connection. kube-apiserver gives up one that it
/// cannot answer after 60 s.
const LIST_SILENCE: Duration = Duration::from_secs(70);

/// A watch of [`WATCH_SECONDS`] has lasted at least so long at its end. A server may end one early, when it stops or when its
/// reader is too slow, and then not all was delivered.
const COMPLETE: Duration = Duration::from_secs(9);

/// For how long the API server is asked to keep a watch that begins with a list, and ends behind it.
pub const LIST_SECONDS: u32 = 600;

/// What becomes of a watch that the API server has answered with success.
#[derive(Clone, Copy, Debug)]
pub enum WatchAnswer {
    /// It is only now asked for, and brings a list.
    Lists,
    /// It has begun.
    Begun,
    /// It was asked for then and has ended as the server ends it. kube-runtime reads on only when all that it has read is in the
    /// store, so all is.
    Ended {
        /// When it was asked for.
        asked: Instant,
    },
}

/// The age of one store.
#[derive(Debug, Default)]
pub struct Age {
    /// Nothing that happened before was missed.
    proven: Option<Instant>,
    /// When something went wrong last: no proof that was under way then counts.
    doubted: Option<Instant>,
    /// Since when the store is being filled; none while it is watched.
    filling: Option<Instant>,
    /// When the list or watch said something last.
    heard: Option<Instant>,
    /// When the store was filled last.
    filled: Option<Instant>,
}

impl Age {
    /// Up to when the store has missed nothing; none if it was never filled.
    #[must_use]
    pub fn proven(&self) -> Option<Instant> {
        self.proven
    }

    /// A list is asked for.
    pub fn list(&mut self, now: Instant) {
        (self.filling, self.heard) = (Some(now), Some(now));
    }

    /// A list begins, which may have been asked for before.
    pub fn list_begins(&mut self, now: Instant) {
        if self.filling.is_none_or(|asked| self.is_doubted(asked)) {
            self.filling = Some(now);
        }
        self.heard = Some(now);
    }

    /// All of the list is in the store.
    pub fn filled(&mut self, now: Instant) {
        (self.heard, self.filled) = (Some(now), Some(now));
        if let Some(asked) = self.filling.take() {
            self.prove(asked);
        }
    }

    /// An object of the list or watch is in the store.
    pub fn heard(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// The list or watch failed: what was asked for until now proves nothing any more.
    pub fn failed(&mut self, now: Instant) {
        (self.heard, self.doubted) = (Some(now), Some(now));
    }

    /// The watch that was asked for then has ended in good order, and what it brought is in the store.
    pub fn watch_ended(&mut self, asked: Instant, now: Instant) {
        if now.duration_since(asked) >= COMPLETE {
            self.prove(asked);
        }
    }

    /// When to begin again with a list; none if none was asked for yet.
    #[must_use]
    pub fn relist_at(&self) -> Option<Instant> {
        match (self.filling, self.proven) {
            // A list that took long proves an old age, and the watch that follows proves a young one.
            (None, Some(proven)) => {
                Some(self.filled.map_or(proven, |filled| proven.max(filled)) + RELIST_AFTER)
            }
            _ => Some(self.heard? + LIST_SILENCE),
        }
    }

    /// All that happened before `asked` is in the store.
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

    /// A server begins to answer after it has read how new the list is.
    #[test]
    fn a_list_that_has_begun_is_as_old_as_its_question() {
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
    fn a_list_proves_what_was_there_when_it_was_asked_for() {
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
