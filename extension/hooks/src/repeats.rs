//! What is worth a line of the log: what a peer begins to do, not what it goes on doing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What was not seen for so long has ended, and is new when it comes back.
const ENDED: Duration = Duration::from_mins(10);

/// So many are remembered. Beyond that all other peers count as one.
const REMEMBERED: usize = 1024;

/// Kinds of trouble with peers, each of which is logged when it begins. However many calls a peer makes, and from however many
/// addresses, so many lines are logged within ten minutes as are remembered, and one more for each kind.
#[derive(Debug)]
pub struct Repeats<K>(Mutex<HashMap<(IpAddr, K), LogWindow>>);

#[derive(Debug)]
struct LogWindow {
    last: Instant,
    left_out: u64,
}

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Copy + Eq + Hash> Repeats<K> {
    /// Notes what a peer did. If it begins with that now, how often it went on after the line before.
    pub fn begins(&self, peer: IpAddr, kind: K, now: Instant) -> Option<u64> {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (peer, kind);
        if remembered.len() >= REMEMBERED && !remembered.contains_key(&key) {
            remembered.retain(|_, seen| !seen.has_ended(now));
            if remembered.len() >= REMEMBERED {
                key.0 = Ipv4Addr::UNSPECIFIED.into();
            }
        }
        match remembered.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(LogWindow {
                    last: now,
                    left_out: 0,
                });
                Some(0)
            }
            Entry::Occupied(mut entry) => {
                let seen = entry.get_mut();
                let begins = seen.has_ended(now);
                seen.last = now;
                if begins {
                    return Some(std::mem::take(&mut seen.left_out));
                }
                seen.left_out += 1;
                None
            }
        }
    }
}

impl LogWindow {
    fn has_ended(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) >= ENDED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from(number).into()
    }

    #[test]
    fn what_goes_on_is_counted_until_it_has_ended() {
        let (repeats, began) = (Repeats::default(), Instant::now());
        let at = |minutes: u64| began + Duration::from_mins(minutes);
        assert_eq!(repeats.begins(address(1), "empty", at(0)), Some(0));
        assert_eq!(repeats.begins(address(1), "late", at(0)), Some(0), "another kind");
        assert_eq!(
            repeats.begins(address(2), "empty", at(0)),
            Some(0),
            "another peer"
        );
        for minutes in [0, 9, 18] {
            assert_eq!(repeats.begins(address(1), "empty", at(minutes)), None);
        }
        assert_eq!(repeats.begins(address(1), "empty", at(28)), Some(3));
        assert_eq!(repeats.begins(address(1), "empty", at(28)), None);
        assert_eq!(repeats.begins(address(1), "empty", at(38)), Some(1));
    }

    #[test]
    fn neither_lines_nor_memory_grow_with_the_number_of_peers() {
        let (repeats, now) = (Repeats::default(), Instant::now());
        let peers = 1..=4 * u32::try_from(REMEMBERED).unwrap();
        let lines = |now: Instant| {
            let begin = |peer: &u32| repeats.begins(address(*peer), "empty", now).is_some();
            peers.clone().filter(begin).count()
        };
        assert_eq!(lines(now), REMEMBERED + 1);
        assert_eq!(repeats.0.lock().unwrap().len(), REMEMBERED + 1);
        assert_eq!(lines(now + ENDED / 2), 0, "each goes on");
        assert_eq!(lines(now + ENDED * 2), REMEMBERED + 1, "after an end all are new");
        assert_eq!(repeats.0.lock().unwrap().len(), REMEMBERED + 1);
    }
}
