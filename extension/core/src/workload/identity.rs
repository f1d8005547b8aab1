//! Identity of the cluster behind an API server, independent of its address: the UID of namespace `kube-system`.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// Time that a UID stays valid without a disturbance.
const BELIEVED: Duration = Duration::from_secs(10);

/// Identity of the server behind a connection, compared with the first read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Served {
    /// The server still serves the cluster of the connection, with this UID.
    Same(String),
    /// The server serves another cluster. The cache of this connection does not belong to it, so another connection is needed.
    Replaced,
}

/// First UID of a connection, and its validity.
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
    /// Returns the UID while it is valid: it was read recently, and no watch failed or completed a list since. `disturbances` counts those.
    pub(super) fn known(&self, disturbances: u64, now: Instant) -> Option<&str> {
        let known = self.known.as_ref()?;
        let believed = known.disturbances == disturbances && now.duration_since(known.at) < BELIEVED;
        believed.then_some(known.uid.as_str())
    }

    /// Records a successful read of `uid`, requested after `disturbances` disturbances.
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

    /// Records a failed read. Returns the time of the first failed read, if an earlier read succeeded.
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
        assert_eq!(identity.known(0, at(10)), None, "expired");
        assert_eq!(
            identity.known(1, at(1)),
            None,
            "a watch failed or completed a list"
        );
        assert_eq!(identity.read("a".to_owned(), 1, at(1)), same("a"));
        assert_eq!(identity.known(1, at(2)), Some("a"));
    }

    #[test]
    fn another_uid_is_never_accepted() {
        let (mut identity, now) = (Identity::default(), Instant::now());
        assert_eq!(identity.read("a".to_owned(), 0, now), same("a"));
        assert_eq!(identity.read("b".to_owned(), 1, now), Served::Replaced);
        assert_eq!(identity.known(1, now), None);
        assert_eq!(identity.read("b".to_owned(), 1, now), Served::Replaced);
    }

    #[test]
    fn failed_reads_count_from_the_first_one() {
        let (mut identity, now) = (Identity::default(), Instant::now());
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(identity.unread(at(1)), None, "no read succeeded");
        identity.read("a".to_owned(), 0, now);
        assert_eq!(identity.unread(at(2)), Some(at(2)));
        assert_eq!(identity.unread(at(3)), Some(at(2)));
        identity.read("a".to_owned(), 0, now);
        assert_eq!(identity.unread(at(4)), Some(at(4)));
    }
}
