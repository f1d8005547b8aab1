//! Troubled Clusters that wait for a slot, the one that has waited longest first.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

/// A Cluster that has not asked for a slot for so long does not wait for one any more.
pub(super) const ASKS: Duration = Duration::from_secs(3);

/// Those that wait, by UID. As many may wait as there are Clusters, and each of them asks again and again, so none looks at all others.
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
    /// The Cluster with this UID asks for a slot. Returns since when it waits for one.
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

    /// Whether those that wait for longer than `since` take so many slots. Those among them that do not ask any more are forgotten.
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

    /// A Cluster does not wait any more.
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
    fn those_that_have_waited_longest_come_first() {
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
    fn those_that_do_not_ask_any_more_are_forgotten() {
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
