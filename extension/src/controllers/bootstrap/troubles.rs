//! Clusters that give trouble: their passes have growing delays, and take half of the slots at most (one of one).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::backoff::Backoff;

/// The first delay before a pass that failed is repeated.
const MIN_DELAY: Duration = Duration::from_millis(500);
/// The longest one. What changes meanwhile wakes the Cluster.
const MAX_DELAY: Duration = Duration::from_mins(1);
/// A pass that takes longer waits for something that does not answer.
const SLOW: Duration = Duration::from_secs(3);

/// A quick pass may be one that did not even ask a server which does not answer, so trouble is remembered for so long. Longer than
/// such a server is left alone.
const REMEMBERED: Duration = Duration::from_mins(2);

/// The troubled Clusters, by UID.
#[derive(Debug)]
pub(super) struct Troubles {
    known: Mutex<HashMap<String, Trouble>>,
    slots: Arc<Semaphore>,
}

#[derive(Debug)]
struct Trouble {
    backoff: Backoff,
    /// When a pass failed or was slow last.
    since: Instant,
}

impl Trouble {
    fn new() -> Self {
        Self {
            backoff: backoff(),
            since: Instant::now(),
        }
    }
}

/// Whether a pass may begin.
#[derive(Debug)]
pub(super) enum Turn {
    /// It may, and a troubled Cluster holds this until it is over.
    Granted(Option<OwnedSemaphorePermit>),
    /// Other troubled Clusters have all the slots that they may have. The Cluster is looked at again after this.
    Later(Duration),
}

impl Troubles {
    /// No Cluster is known to give trouble. `concurrency` passes run at once.
    pub(super) fn new(concurrency: u16) -> Self {
        let half = usize::from(concurrency / 2).max(1);
        Self {
            known: Mutex::default(),
            slots: Arc::new(Semaphore::new(half)),
        }
    }

    /// Asks for a pass over the Cluster with this UID.
    pub(super) fn turn(&self, uid: &str) -> Turn {
        if !self.known().contains_key(uid) {
            return Turn::Granted(None);
        }
        match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(slot) => Turn::Granted(Some(slot)),
            // Half a second at least, and at random, so that all who wait have the same chance.
            Err(_) => Turn::Later(backoff().failed()),
        }
    }

    /// A pass came to its end after `took`.
    pub(super) fn passed(&self, uid: &str, took: Duration) {
        let mut known = self.known();
        if took >= SLOW {
            let trouble = known.entry(uid.to_owned()).or_insert_with(Trouble::new);
            trouble.backoff.reset();
            trouble.since = Instant::now();
        } else if known
            .get(uid)
            .is_some_and(|trouble| trouble.since.elapsed() >= REMEMBERED)
        {
            known.remove(uid);
        } else if let Some(trouble) = known.get_mut(uid) {
            trouble.backoff.reset();
        }
    }

    /// A pass failed. Says when to look again.
    pub(super) fn failed(&self, uid: &str) -> Duration {
        let mut known = self.known();
        let trouble = known.entry(uid.to_owned()).or_insert_with(Trouble::new);
        trouble.since = Instant::now();
        trouble.backoff.failed()
    }

    /// Forgets a Cluster.
    pub(super) fn forget(&self, uid: &str) {
        self.known().remove(uid);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Trouble>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn backoff() -> Backoff {
    Backoff::new(MIN_DELAY, MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    fn slots(troubles: &Troubles, uids: &[&str]) -> Vec<Option<OwnedSemaphorePermit>> {
        let granted = |uid: &&str| match troubles.turn(uid) {
            Turn::Granted(slot) => Some(slot),
            Turn::Later(_) => None,
        };
        uids.iter().filter_map(granted).collect()
    }

    #[test]
    fn troubled_clusters_get_half_of_the_slots() {
        let troubles = Troubles::new(4);
        for uid in ["a", "b", "c"] {
            troubles.failed(uid);
        }
        let taken = slots(&troubles, &["a", "b", "c"]);
        assert_eq!(taken.len(), 2);
        assert_eq!(
            slots(&troubles, &["healthy", "other"]).len(),
            2,
            "others have no limit"
        );
        drop(taken);
        assert_eq!(
            slots(&troubles, &["c"]).len(),
            1,
            "a pass that is over gives its slot back"
        );
    }

    #[test]
    fn one_slot_is_always_there_for_them() {
        let troubles = Troubles::new(1);
        troubles.failed("a");
        assert_eq!(slots(&troubles, &["a"]).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_pass_is_trouble_and_quick_ones_end_it_after_a_while() {
        let troubles = Troubles::new(2);
        let quick = Duration::from_millis(10);
        troubles.passed("a", SLOW);
        assert!(matches!(troubles.turn("a"), Turn::Granted(Some(_))));
        troubles.passed("a", quick);
        assert!(matches!(troubles.turn("a"), Turn::Granted(Some(_))));
        sleep(REMEMBERED).await;
        troubles.passed("a", quick);
        assert!(matches!(troubles.turn("a"), Turn::Granted(None)));
    }

    #[test]
    fn failures_have_growing_delays() {
        let troubles = Troubles::new(2);
        assert!(troubles.failed("a") <= MIN_DELAY * 2);
        let last = (0..40).map(|_| troubles.failed("a")).last();
        assert!(last >= Some(MAX_DELAY / 2));
        troubles.passed("a", Duration::ZERO);
        assert!(troubles.failed("a") <= MIN_DELAY * 2, "begins again");
    }
}
