//! Queue of slow or failing Clusters that wait for a slot, longest wait first.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

/// Time after its last request for a slot at which a Cluster leaves the queue.
pub(super) const ASKS: Duration = Duration::from_secs(3);

/// Waiting Clusters, by UID. Every Cluster may wait and repeats its request, so a request never scans the whole queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waits: HashMap<String, Wait>,
    order: BTreeSet<(Instant, String)>,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    since: Instant,
    asked: Instant,
}

impl Wait {
    fn asks(&self, now: Instant) -> bool {
        now.duration_since(self.asked) < ASKS
    }
}

impl Queue {
    /// Requests a slot for the Cluster with this UID. Returns the start of its wait.
    pub(super) fn ask(&mut self, uid: &str, now: Instant) -> Instant {
        if !self.waits.get(uid).is_some_and(|wait| wait.asks(now)) {
            self.leave(uid);
            self.order.insert((now, uid.to_owned()));
        }
        let fresh = Wait {
            since: now,
            asked: now,
        };
        let wait = self.waits.entry(uid.to_owned()).or_insert(fresh);
        wait.asked = now;
        wait.since
    }

    /// Returns whether Clusters that wait since before `since` need this many slots. Drops those that no longer request a slot.
    pub(super) fn fills(&mut self, slots: usize, since: Instant, now: Instant) -> bool {
        let (mut before, mut gone) = (0, Vec::new());
        for (began, uid) in &self.order {
            if before == slots || *began >= since {
                break;
            }
            if self.waits.get(uid).is_some_and(|wait| wait.asks(now)) {
                before += 1;
            } else {
                gone.push(uid.clone());
            }
        }
        for uid in gone {
            self.leave(&uid);
        }
        before == slots
    }

    /// Removes a Cluster from the queue.
    pub(super) fn leave(&mut self, uid: &str) {
        if let Some(wait) = self.waits.remove(uid) {
            self.order.remove(&(wait.since, uid.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_comes_first() {
        let (mut queue, began) = (Queue::default(), Instant::now());
        let at = |millis| began + Duration::from_millis(millis);
        for (millis, uid) in [(0, "a"), (1, "b"), (2, "c")] {
            assert_eq!(queue.ask(uid, at(millis)), at(millis));
        }
        assert_eq!(queue.ask("b", at(10)), at(1), "it still waits");
        let fills = |queue: &mut Queue, slots| queue.fills(slots, at(1), at(10));
        assert!(fills(&mut queue, 0), "no slot is free");
        assert!(fills(&mut queue, 1), "it is for a");
        assert!(!fills(&mut queue, 2));
        queue.leave("a");
        assert!(!fills(&mut queue, 1));
    }

    #[test]
    fn clusters_without_requests_leave_the_queue() {
        let (mut queue, began) = (Queue::default(), Instant::now());
        for number in 0..100 {
            queue.ask(&number.to_string(), began);
        }
        let later = began + ASKS;
        let since = queue.ask("late", later);
        assert!(!queue.fills(1, since, later));
        assert_eq!((queue.waits.len(), queue.order.len()), (1, 1));
        assert_eq!(queue.ask("0", later), later, "it waits from now on");
    }
}
