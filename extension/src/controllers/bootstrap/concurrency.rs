//! The slots for passes over troubled Clusters; see [`sluice_core::reconcile::slots`].

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use sluice_core::{
    protocol::LastDriftCheck,
    reconcile::slots::{SLOW, Troubles, Turn},
};
use tokio::time::timeout;

use crate::{clock::now, lock::lock};

/// The slots, and who waits for them. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub(crate) struct Slots(Arc<Mutex<Troubles>>);

/// A slot, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Slot(Slots);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.limiter().release();
    }
}

/// The slot of a look, given back when it is dropped.
#[derive(Debug)]
pub(super) struct DriftCheckPermit(Slots, LastDriftCheck);

impl Drop for DriftCheckPermit {
    fn drop(&mut self) {
        self.0.limiter().look_over(self.1);
    }
}

impl Slots {
    /// A slot for a look at a workload whose last one came to this, if there is one.
    pub(super) fn drift_check_permit(&self, last: LastDriftCheck) -> Option<DriftCheckPermit> {
        self.limiter()
            .look(last)
            .then(|| DriftCheckPermit(self.clone(), last))
    }

    /// All slots are free. `concurrency` passes run at once.
    pub(crate) fn new(concurrency: u16) -> Self {
        Self(Arc::new(Mutex::new(Troubles::new(concurrency))))
    }

    /// What is known of troubled Clusters.
    pub(super) fn limiter(&self) -> MutexGuard<'_, Troubles> {
        lock(&self.0)
    }

    /// Asks for a pass over the Cluster with this UID, which needs a slot if it is troubled.
    ///
    /// # Errors
    /// It may not begin; this says when to look again.
    pub(super) fn turn(&self, uid: &str) -> Result<Option<Slot>, Duration> {
        match self.limiter().turn(uid, now()) {
            Turn::Granted => Ok(None),
            Turn::WithSlot => Ok(Some(Slot(self.clone()))),
            Turn::Later(wait) => Err(wait),
        }
    }

    /// Runs a pass over the Cluster with this UID, which has `slot`. One without a slot that is slow takes one. If there is none it is
    /// cut off: what a pass has done so far stands, and the next one goes on with it.
    ///
    /// # Errors
    /// It was cut off; this says when to look again.
    pub(super) async fn attend<T>(
        &self,
        uid: &str,
        slot: Option<Slot>,
        pass: impl Future<Output = T>,
    ) -> Result<T, Duration> {
        let mut pass = pin!(pass);
        let _slot = match slot {
            Some(slot) => slot,
            None => match timeout(SLOW, &mut pass).await {
                Ok(outcome) => return Ok(outcome),
                Err(_elapsed) => {
                    self.limiter().slow(uid, now())?;
                    Slot(self.clone())
                }
            },
        };
        Ok(pass.await)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use rstest::rstest;
    use sluice_core::reconcile::slots::MIN_DELAY;
    use tokio::{
        sync::Semaphore,
        task::JoinSet,
        time::{Instant, sleep},
    };

    use super::*;

    /// Whether `count` passes that never end let a healthy one through, and after which time.
    async fn healthy_after(slots: &Slots, concurrency: usize, count: usize) -> Duration {
        let controller = Arc::new(Semaphore::new(concurrency));
        let mut passes = JoinSet::new();
        for index in 0..count {
            let (slots, controller) = (slots.clone(), Arc::clone(&controller));
            passes.spawn(async move {
                let _one = controller.acquire().await;
                let uid = index.to_string();
                let Ok(slot) = slots.turn(&uid) else { return };
                let _cut_off = slots.attend(&uid, slot, pending::<()>()).await;
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
        let slots = Slots::new(concurrency);
        let waited = healthy_after(&slots, usize::from(concurrency), count).await;
        assert!(waited <= SLOW * rounds, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_is_cut_off_is_one_of_a_troubled_cluster_next() {
        let slots = Slots::new(1);
        slots.limiter().failed("another", now());
        let taken = slots.turn("another");
        let began = Instant::now();
        let cut_off = slots.attend("a", None, sleep(Duration::from_hours(1))).await;
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        assert!(cut_off.is_err_and(|wait| wait <= MIN_DELAY * 2));
        assert!(slots.turn("a").is_err(), "all are taken");

        drop(taken);
        let slot = slots.turn("a").unwrap();
        assert!(slot.is_some());
        let long = slots.attend("a", slot, sleep(SLOW * 10)).await;
        assert_eq!(long, Ok(()), "one that has a slot is not cut off here");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_pass_goes_on_where_a_slot_is_free_and_gives_it_back() {
        let slots = Slots::new(2);
        assert_eq!(slots.attend("a", None, sleep(SLOW * 10)).await, Ok(()));
        assert_eq!(slots.attend("b", None, sleep(SLOW * 10)).await, Ok(()));
    }
}
