//! Log limiter: logs the first event of a series of a peer, not its repetitions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time without an event after which a series has ended.
const ENDED: Duration = Duration::from_mins(10);

/// Maximum number of tracked series. All further peers count as one.
const TRACKED: usize = 1024;

/// Tracks series of events by peer and kind, and logs the first event of each. For any number of calls and addresses, the log gets at
/// most one line per tracked series within ten minutes, and one more per kind.
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
    /// Records an event of a peer. Returns, if a series begins now, the number of events that were not logged since the last line.
    pub fn begins(&self, peer: IpAddr, kind: K, now: Instant) -> Option<u64> {
        let mut tracked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (peer, kind);
        if tracked.len() >= TRACKED && !tracked.contains_key(&key) {
            tracked.retain(|_, seen| !seen.has_ended(now));
            if tracked.len() >= TRACKED {
                key.0 = Ipv4Addr::UNSPECIFIED.into();
            }
        }
        match tracked.entry(key) {
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
        let peers = 1..=4 * u32::try_from(TRACKED).unwrap();
        let lines = |now: Instant| {
            let begin = |peer: &u32| repeats.begins(address(*peer), "empty", now).is_some();
            peers.clone().filter(begin).count()
        };
        assert_eq!(lines(now), TRACKED + 1);
        assert_eq!(repeats.0.lock().unwrap().len(), TRACKED + 1);
        assert_eq!(lines(now + ENDED / 2), 0, "each goes on");
        assert_eq!(lines(now + ENDED * 2), TRACKED + 1, "after an end all are new");
        assert_eq!(repeats.0.lock().unwrap().len(), TRACKED + 1);
    }
}
