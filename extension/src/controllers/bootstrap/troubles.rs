//! Clusters that give trouble: their passes have growing delays, and take half of the slots at most (one of one). A pass that turns
//! out to be slow needs one of those too, so all other slots are free again after seconds, whatever happens.

mod queue;

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sluice_core::{
    hold::{GateReason, Hold},
    walls::Backoff,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

use queue::Queue;

use crate::clock::now;

/// The first delay before a pass that failed is repeated.
const MIN_DELAY: Duration = Duration::from_millis(500);
/// The longest one. What changes meanwhile wakes the Cluster.
const MAX_DELAY: Duration = Duration::from_mins(1);
/// A pass that takes longer waits for something that does not answer.
pub(super) const SLOW: Duration = Duration::from_secs(3);

/// A quick pass may be one that did not even ask a server which does not answer, so trouble is remembered for so long. Longer than
/// such a server is left alone.
const REMEMBERED: Duration = Duration::from_mins(2);

/// A Cluster that waits for a slot for so long says nothing any more. A silent workload's proofs are believed for as long.
const UNSEEN: Duration = Duration::from_mins(1);

/// The troubled Clusters, by UID.
#[derive(Debug)]
pub(super) struct Troubles {
    known: Mutex<HashMap<String, Trouble>>,
    waiting: Mutex<Queue>,
    unfinished: Mutex<HashMap<String, Unfinished>>,
    slots: Arc<Semaphore>,
}

#[derive(Debug)]
struct Trouble {
    backoff: Backoff,
    /// When a pass failed or was slow last.
    since: Instant,
}

/// A Cluster of which no pass has come to its end for a while.
#[derive(Debug)]
struct Unfinished {
    since: Instant,
    /// Passes that ended with an error, and when the first of them began.
    failures: u32,
    failing_since: Option<Instant>,
    /// Why the last one came to no end.
    hold: Option<Hold>,
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
            waiting: Mutex::default(),
            unfinished: Mutex::default(),
            slots: Arc::new(Semaphore::new(half)),
        }
    }

    /// Asks for a pass over the Cluster with this UID.
    pub(super) fn turn(&self, uid: &str) -> Turn {
        if !self.known().contains_key(uid) {
            return Turn::Granted(None);
        }
        let (now, mut waiting) = (Instant::now(), self.waiting());
        let since = waiting.ask(uid, now);
        // Free slots belong to those who have waited longest.
        let slot = (!waiting.fills(self.slots.available_permits(), since, now))
            .then(|| Arc::clone(&self.slots).try_acquire_owned().ok())
            .flatten();
        let Some(slot) = slot else {
            drop(waiting);
            self.unfinish(uid, now, |_| {});
            return Turn::Later(backoff().failed(now.into_std()));
        };
        waiting.leave(uid);
        Turn::Granted(Some(slot))
    }

    /// Why a Cluster that waits for a slot may not be as its record says: its last pass came to no end, or it waits for long.
    pub(super) fn unseen(&self, uid: &str) -> Option<Hold> {
        let unfinished = self.unfinished();
        let unfinished = unfinished.get(uid)?;
        let waits_long = unfinished.since.elapsed() >= UNSEEN;
        unfinished.hold.clone().or_else(|| waits_long.then(cut_off))
    }

    /// Runs a pass over the Cluster with this UID, which has `slot`. One without a slot that is slow takes one. If there is none it is
    /// cut off, and the next one is a troubled Cluster's: what a pass has done so far stands, and the next one goes on with it.
    ///
    /// # Errors
    /// It was cut off; this says when to look again.
    pub(super) async fn attend<T>(
        &self,
        uid: &str,
        slot: Option<OwnedSemaphorePermit>,
        pass: impl Future<Output = T>,
    ) -> Result<T, Duration> {
        let mut pass = pin!(pass);
        let _slot = match slot {
            Some(slot) => slot,
            None => match timeout(SLOW, &mut pass).await {
                Ok(outcome) => return Ok(outcome),
                Err(_elapsed) => match Arc::clone(&self.slots).try_acquire_owned() {
                    Ok(slot) => slot,
                    Err(_all_taken) => return Err(self.cut_off(uid)),
                },
            },
        };
        Ok(pass.await)
    }

    /// A pass came to its end after `took`.
    pub(super) fn passed(&self, uid: &str, took: Duration) {
        self.unfinished().remove(uid);
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
        trouble.backoff.failed(now())
    }

    /// A pass that `began` then ended with an error, which is `hold`. Says whether `patience` of them did before it, or the first of
    /// them began some seconds ago.
    pub(super) fn failed_again(&self, uid: &str, patience: u32, began: Instant, hold: Hold) -> bool {
        self.unfinish(uid, began, |unfinished| {
            unfinished.failures = unfinished.failures.saturating_add(1);
            let since = unfinished.failing_since.get_or_insert(began);
            let again = unfinished.failures > patience || since.elapsed() > SLOW;
            // The next pass may have to wait for its slot; one after a few conflicts mostly comes to its end.
            if again || patience < 2 {
                unfinished.hold = Some(hold);
            }
            again
        })
    }

    /// How many passes have ended with an error since one came to its end.
    pub(super) fn failures(&self, uid: &str) -> u32 {
        self.unfinished()
            .get(uid)
            .map_or(0, |unfinished| unfinished.failures)
    }

    fn cut_off(&self, uid: &str) -> Duration {
        self.unfinish(uid, Instant::now(), |unfinished| {
            unfinished.hold = Some(cut_off());
        });
        self.failed(uid)
    }

    fn unfinish<T>(&self, uid: &str, since: Instant, note: impl FnOnce(&mut Unfinished) -> T) -> T {
        let mut unfinished = self.unfinished();
        let fresh = Unfinished {
            since,
            failures: 0,
            failing_since: None,
            hold: None,
        };
        note(unfinished.entry(uid.to_owned()).or_insert(fresh))
    }

    /// Forgets a Cluster.
    pub(super) fn forget(&self, uid: &str) {
        self.unfinished().remove(uid);
        self.known().remove(uid);
        self.waiting().leave(uid);
    }

    fn waiting(&self) -> MutexGuard<'_, Queue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unfinished(&self) -> MutexGuard<'_, HashMap<String, Unfinished>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Trouble>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cut_off() -> Hold {
    Hold::new(
        GateReason::ReconcileTimedOut,
        "a pass over the Cluster took long while others did; it is made again when one of those is over",
    )
}

fn backoff() -> Backoff {
    Backoff::new(MIN_DELAY, MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use rstest::rstest;
    use tokio::{task::JoinSet, time::sleep};

    use super::{queue::ASKS, *};

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

    /// Whether `count` passes that never end let a healthy one through, and after which time.
    async fn healthy_after(troubles: &Arc<Troubles>, concurrency: usize, count: usize) -> Duration {
        let controller = Arc::new(Semaphore::new(concurrency));
        let mut passes = JoinSet::new();
        for index in 0..count {
            let (troubles, controller) = (Arc::clone(troubles), Arc::clone(&controller));
            passes.spawn(async move {
                let _one = controller.acquire().await;
                let uid = index.to_string();
                let Turn::Granted(slot) = troubles.turn(&uid) else {
                    return;
                };
                let _cut_off = troubles.attend(&uid, slot, pending::<()>()).await;
            });
        }
        tokio::task::yield_now().await;
        let began = Instant::now();
        // Without a limit a test of passes that never end would not end either.
        let _one = timeout(Duration::from_hours(1), controller.acquire()).await;
        began.elapsed()
    }

    #[rstest]
    #[case::as_many_as_slots(4, 4, 1)]
    #[case::many_more(4, 20, 9)]
    #[tokio::test(start_paused = true)]
    async fn slow_passes_of_clusters_without_trouble_keep_half_of_the_slots(
        #[case] concurrency: u16,
        #[case] count: usize,
        #[case] rounds: u32,
    ) {
        let troubles = Arc::new(Troubles::new(concurrency));
        let waited = healthy_after(&troubles, usize::from(concurrency), count).await;
        assert!(waited <= SLOW * rounds, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_is_cut_off_is_one_of_a_troubled_cluster_next() {
        let troubles = Troubles::new(1);
        let taken = Arc::clone(&troubles.slots).try_acquire_owned().unwrap();
        let began = Instant::now();
        let cut_off = troubles.attend("a", None, sleep(Duration::from_hours(1))).await;
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        assert!(cut_off.is_err_and(|wait| wait <= MIN_DELAY * 2));
        assert!(matches!(troubles.turn("a"), Turn::Later(_)), "all are taken");

        drop(taken);
        let Turn::Granted(slot) = troubles.turn("a") else {
            panic!("a slot is free")
        };
        assert!(slot.is_some());
        let long = troubles.attend("a", slot, sleep(SLOW * 10)).await;
        assert_eq!(long, Ok(()), "one that has a slot is not cut off here");
        assert!(troubles.unseen("a").is_some());
        troubles.passed("a", SLOW * 10);
        assert!(troubles.unseen("a").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_free_slot_is_for_the_cluster_that_has_waited_longest() {
        let troubles = Troubles::new(1);
        for uid in ["a", "b", "c"] {
            troubles.failed(uid);
        }
        let asks = |uid| matches!(troubles.turn(uid), Turn::Granted(Some(_)));
        let taken = slots(&troubles, &["a"]);
        assert!(!asks("b"));
        sleep(ASKS / 2).await;
        assert!(!asks("c") && !asks("b"));
        drop(taken);
        assert!(!asks("c"), "b has waited longer");
        assert!(asks("b") && asks("c"));

        let taken = slots(&troubles, &["a"]);
        assert!(!asks("b"));
        sleep(ASKS / 2).await;
        assert!(!asks("c"));
        sleep(ASKS / 2).await;
        drop(taken);
        assert!(asks("c"), "b does not ask any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_pass_goes_on_where_a_slot_is_free_and_gives_it_back() {
        let troubles = Troubles::new(2);
        assert_eq!(troubles.attend("a", None, sleep(SLOW * 10)).await, Ok(()));
        assert_eq!(troubles.attend("b", None, sleep(SLOW * 10)).await, Ok(()));
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
