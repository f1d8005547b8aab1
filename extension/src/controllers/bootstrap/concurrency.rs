//! Concurrency limiter of slow and failing Clusters; see [`sluice_core::reconcile::slots`].

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

/// Slots and their waiting Clusters. Clones share the state.
#[derive(Debug, Clone)]
pub(crate) struct Slots(Arc<Mutex<Troubles>>);

/// Slot that is released when dropped.
#[derive(Debug)]
pub(super) struct Slot(Slots);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.limiter().release();
    }
}

/// Slot of a drift check that is released when dropped.
#[derive(Debug)]
pub(super) struct DriftCheckPermit(Slots, LastDriftCheck);

impl Drop for DriftCheckPermit {
    fn drop(&mut self) {
        self.0.limiter().look_over(self.1);
    }
}

impl Slots {
    /// Returns a slot for a drift check of a workload cluster, by the result of its last one, if any is free.
    pub(super) fn drift_check_permit(&self, last: LastDriftCheck) -> Option<DriftCheckPermit> {
        self.limiter()
            .look(last)
            .then(|| DriftCheckPermit(self.clone(), last))
    }

    /// Returns free slots for `concurrency` concurrent reconciles.
    pub(crate) fn new(concurrency: u16) -> Self {
        Self(Arc::new(Mutex::new(Troubles::new(concurrency))))
    }

    /// Returns the state of slow and failing Clusters.
    pub(super) fn limiter(&self) -> MutexGuard<'_, Troubles> {
        lock(&self.0)
    }

    /// Requests a reconcile of the Cluster with this UID, which needs a slot if it is slow or failing.
    ///
    /// # Errors
    /// The delay after which the Cluster is requeued, because no slot is free.
    pub(super) fn turn(&self, uid: &str) -> Result<Option<Slot>, Duration> {
        match self.limiter().turn(uid, now()) {
            Turn::Granted => Ok(None),
            Turn::WithSlot => Ok(Some(Slot(self.clone()))),
            Turn::Later(wait) => Err(wait),
        }
    }

    /// Runs a reconcile of the Cluster with this UID, which may hold `slot`. A slow reconcile without a slot takes one, and is canceled if
    /// none is free. Its writes stand, and the next reconcile continues from them.
    ///
    /// # Errors
    /// The delay after which the Cluster is requeued, because the reconcile was canceled.
    pub(super) async fn attend<T>(
        &self,
        uid: &str,
        slot: Option<Slot>,
        reconcile: impl Future<Output = T>,
    ) -> Result<T, Duration> {
        let mut reconcile = pin!(reconcile);
        let _slot = match slot {
            Some(slot) => slot,
            None => match timeout(SLOW, &mut reconcile).await {
                Ok(outcome) => return Ok(outcome),
                Err(_elapsed) => {
                    self.limiter().slow(uid, now())?;
                    Slot(self.clone())
                }
            },
        };
        Ok(reconcile.await)
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

    /// Returns the time until a healthy reconcile runs beside `count` endless ones.
    async fn healthy_after(slots: &Slots, concurrency: usize, count: usize) -> Duration {
        let controller = Arc::new(Semaphore::new(concurrency));
        let mut reconciles = JoinSet::new();
        for index in 0..count {
            let (slots, controller) = (slots.clone(), Arc::clone(&controller));
            reconciles.spawn(async move {
                let _one = controller.acquire().await;
                let uid = index.to_string();
                let Ok(slot) = slots.turn(&uid) else { return };
                let _cut_off = slots.attend(&uid, slot, pending::<()>()).await;
            });
        }
        tokio::task::yield_now().await;
        let began = Instant::now();
        // Ends the test if the endless reconciles block it.
        let _one = timeout(Duration::from_hours(1), controller.acquire()).await;
        began.elapsed()
    }

    #[rstest]
    #[case::as_many_as_slots(4, 4, 1)]
    #[case::many_more(4, 20, 9)]
    #[tokio::test(start_paused = true)]
    async fn slow_reconciles_leave_half_of_the_slots_free(
        #[case] concurrency: u16,
        #[case] count: usize,
        #[case] rounds: u32,
    ) {
        let slots = Slots::new(concurrency);
        let waited = healthy_after(&slots, usize::from(concurrency), count).await;
        assert!(waited <= SLOW * rounds, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_canceled_reconcile_needs_a_slot_next() {
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
    async fn a_slow_reconcile_takes_a_free_slot_and_releases_it() {
        let slots = Slots::new(2);
        assert_eq!(slots.attend("a", None, sleep(SLOW * 10)).await, Ok(()));
        assert_eq!(slots.attend("b", None, sleep(SLOW * 10)).await, Ok(()));
    }
}
