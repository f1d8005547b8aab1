//! Wakes a Cluster for the events of its workload cluster, at the pace of [`walls::Pace`].

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use sluice_core::walls;
use tokio::runtime::Handle;

use crate::{
    clock::{later, now},
    lock::lock,
    triggers::Wake,
};

/// The pace of one Cluster. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    state: Arc<Mutex<walls::Pace>>,
    wake: Wake,
    /// Waits until a delay is over, wherever a pass ends.
    runtime: Handle,
}

impl Pace {
    /// Nothing has happened yet. `wake` is for the Cluster.
    pub(super) fn new(wake: Wake) -> Self {
        Self {
            state: Arc::new(Mutex::new(walls::Pace::new(now()))),
            wake,
            runtime: Handle::current(),
        }
    }

    /// Wakes the Cluster: at once, or when the rest after its last pass is over.
    pub(super) fn wake(&self) {
        let is_first = self.state().want();
        if is_first && !self.wakes() {
            self.wake_later();
        }
    }

    /// A pass over the Cluster begins.
    pub(super) fn begin(&self) -> Passing {
        self.state().begin();
        Passing {
            pace: self.clone(),
            began: now(),
        }
    }

    /// Whether nothing needs it any more.
    pub(super) fn is_over(&self) -> bool {
        Arc::strong_count(&self.state) == 1 && self.state().is_over(now())
    }

    fn wakes(&self) -> bool {
        let wakes = self.state().wakes(now());
        if wakes {
            self.wake.wake();
        }
        wakes
    }

    /// Wakes the Cluster when that is due. Whatever delays it meanwhile calls this again.
    fn wake_later(&self) {
        let due = self.state().due();
        if let Some(due) = due {
            let pace = self.clone();
            self.runtime.spawn(async move {
                later(Some(due)).await;
                pace.wakes();
            });
        }
    }

    fn state(&self) -> MutexGuard<'_, walls::Pace> {
        lock(&self.state)
    }
}

/// A pass over a Cluster, until this is dropped.
#[derive(Debug)]
pub struct Passing {
    pace: Pace,
    began: Instant,
}

impl Passing {
    /// The pass changed what is known of the Cluster.
    pub fn brought_news(&self) {
        self.pace.state().brought_news(now());
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.pace.state().end(self.began, now());
        self.pace.wake_later();
    }
}
