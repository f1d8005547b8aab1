//! Whose data an API server serves, whatever its address is: the UID of its namespace `kube-system`.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// How long a UID is believed while nothing unusual is seen.
const BELIEVED: Duration = Duration::from_secs(10);

/// What the API server behind a connection turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Served {
    /// The data that the connection was opened for, by UID.
    Same(String),
    /// Other data. What this connection keeps in memory is not theirs, so another one has to be opened.
    Replaced,
}

/// The UID that was read first, and whether it has to be read again.
#[derive(Debug, Default)]
pub(super) struct Identity {
    known: Option<KnownServer>,
    unread_since: Option<Timestamp>,
}

#[derive(Debug)]
struct KnownServer {
    uid: String,
    at: Instant,
    disturbances: u64,
}

impl Identity {
    /// The UID, if it was read a moment ago and the watches have neither failed nor been filled since: `disturbances` counts
    /// how often they were.
    pub(super) fn known(&self, disturbances: u64, now: Instant) -> Option<&str> {
        let known = self.known.as_ref()?;
        let believed = known.disturbances == disturbances && now.duration_since(known.at) < BELIEVED;
        believed.then_some(known.uid.as_str())
    }

    /// `uid` was read at `now`, after so many `disturbances`.
    pub(super) fn read(&mut self, uid: String, disturbances: u64, now: Instant) -> Served {
        self.unread_since = None;
        if self.known.as_ref().is_some_and(|known| known.uid != uid) {
            return Served::Replaced;
        }
        self.known = Some(KnownServer {
            uid: uid.clone(),
            at: now,
            disturbances,
        });
        Served::Same(uid)
    }

    /// The UID could not be read at `now`. Since when, if it could be read before.
    pub(super) fn unread(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.known.as_ref()?;
        Some(*self.unread_since.get_or_insert(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(uid: &str) -> Served {
        Served::Same(uid.to_owned())
    }

    #[test]
    fn a_uid_is_read_again_after_a_while_and_after_each_disturbance() {
        let (mut identity, began) = (Identity::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(identity.known(0, at(0)), None, "never read");
        assert_eq!(identity.read("a".to_owned(), 0, at(0)), same("a"));
        assert_eq!(identity.known(0, at(9)), Some("a"));
        assert_eq!(identity.known(0, at(10)), None, "too long ago");
        assert_eq!(
            identity.known(1, at(1)),
            None,
            "a watch failed or was filled again"
        );
        assert_eq!(identity.read("a".to_owned(), 1, at(1)), same("a"));
        assert_eq!(identity.known(1, at(2)), Some("a"));
    }

    #[test]
    fn another_uid_is_never_taken_over() {
        let (mut identity, now) = (Identity::default(), Instant::now());
        assert_eq!(identity.read("a".to_owned(), 0, now), same("a"));
        assert_eq!(identity.read("b".to_owned(), 1, now), Served::Replaced);
        assert_eq!(identity.known(1, now), None);
        assert_eq!(identity.read("b".to_owned(), 1, now), Served::Replaced);
    }

    #[test]
    fn a_uid_that_cannot_be_read_any_more_is_missed_since_the_first_failure() {
        let (mut identity, now) = (Identity::default(), Instant::now());
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(identity.unread(at(1)), None, "it was never known");
        identity.read("a".to_owned(), 0, now);
        assert_eq!(identity.unread(at(2)), Some(at(2)));
        assert_eq!(identity.unread(at(3)), Some(at(2)));
        identity.read("a".to_owned(), 0, now);
        assert_eq!(identity.unread(at(4)), Some(at(4)));
    }
}
