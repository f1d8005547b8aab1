//! Requeues a Cluster for the events of its workload cluster, limited by [`workload::Pace`].

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use sluice_core::workload::{self, Weight};
use tokio::runtime::Handle;

use crate::{
    clock::{later, now},
    lock::lock,
    queue::requeues::{ClusterRef, Requeues},
};

/// Rate limit of the requeues of one Cluster. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    state: Arc<Mutex<workload::Pace>>,
    cluster: ClusterRef,
    triggers: Requeues,
    /// Runs delayed requeues, wherever a reconcile ends.
    runtime: Handle,
}

impl Pace {
    /// Creates a pace without any events.
    pub(super) fn new(cluster: ClusterRef, triggers: Requeues) -> Self {
        Self {
            state: Arc::new(Mutex::new(workload::Pace::new(now()))),
            cluster,
            triggers,
            runtime: Handle::current(),
        }
    }

    /// Requeues the Cluster: at once, unless its earlier reconciles require a longer pause.
    pub(super) fn wake(&self, weight: Weight) {
        let due = self.state().want(weight);
        self.wake_at(due);
    }

    /// Starts a reconcile of the Cluster.
    pub(super) fn begin(&self) -> Passing {
        self.state().begin(now());
        Passing(self.clone())
    }

    /// Returns whether the pace is unused.
    pub(super) fn is_over(&self) -> bool {
        Arc::strong_count(&self.state) == 1 && self.state().is_over(now())
    }

    /// Requeues the Cluster when due. Each new delay calls this function again.
    fn wake_at(&self, due: Option<Instant>) {
        let Some(due) = due else { return };
        if due > now() {
            let pace = self.clone();
            self.runtime.spawn(async move {
                later(Some(due)).await;
                pace.wake_if_due();
            });
        } else {
            self.wake_if_due();
        }
    }

    fn wake_if_due(&self) {
        if self.state().wakes(now()) {
            self.triggers.enqueue(self.cluster.clone());
        }
    }

    fn state(&self) -> MutexGuard<'_, workload::Pace> {
        lock(&self.state)
    }
}

/// Guard of a reconcile; dropping it ends the reconcile.
#[derive(Debug)]
pub struct Passing(Pace);

impl Passing {
    /// Records that the reconcile changed the local state of the Cluster.
    pub fn brought_changes(&self) {
        self.0.state().brought_changes(now());
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        let due = self.0.state().end(now());
        self.0.wake_at(due);
    }
}
