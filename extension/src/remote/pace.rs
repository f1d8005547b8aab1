//! How soon the events of a workload cluster lead to one more pass over its Cluster. What changes on the management cluster is not
//! delayed here.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::AbortHandle,
    time::{Instant, sleep_until},
};

use crate::triggers::Wake;

/// The shortest rest between the end of a pass and the next one that only events of the workload cluster ask for.
pub(super) const MIN_REST: Duration = Duration::from_secs(1);

/// The longest one: a package that becomes ready is noticed within three seconds.
pub(super) const MAX_REST: Duration = Duration::from_secs(3);

/// While passes bring nothing new, the rest is this part of the time since one did: what has been waited for for less than 50 s is
/// noticed within a second.
const PART: u32 = 50;

/// How long a pace is remembered whose connection is closed: another one may be opened at once.
const KEPT: Duration = Duration::from_mins(1);

/// The pace of one Cluster. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Pace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    /// Sends what was delayed.
    task: AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
struct Shared {
    wake: Wake,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// Something happened since the last pass began.
    wanted: bool,
    passing: bool,
    /// The workload cluster asks for no pass before then.
    rests_until: Instant,
    /// When a pass brought something new last.
    news: Instant,
}

impl State {
    /// When the delayed wake-up is due, if there is one. While a pass runs, its end is waited for.
    fn due(&self) -> Option<Instant> {
        (self.wanted && !self.passing).then_some(self.rests_until)
    }

    /// Whether a wake-up may be sent now. One that is sent counts as the end of a pass, so that a controller that is late is not
    /// sent every event.
    fn sends(&mut self) -> bool {
        let now = Instant::now();
        let sends = self.due().is_some_and(|due| due <= now);
        if sends {
            self.wanted = false;
            self.rests_until = now + MIN_REST;
        }
        sends
    }
}

impl Pace {
    /// Nothing has happened yet. `wake` is for the Cluster.
    pub(super) fn new(wake: Wake) -> Self {
        let now = Instant::now();
        let shared = Arc::new(Shared {
            wake,
            state: Mutex::new(State {
                wanted: false,
                passing: false,
                rests_until: now,
                news: now,
            }),
            changed: Notify::new(),
        });
        let task = tokio::spawn(Arc::clone(&shared).send_delayed()).abort_handle();
        Self(Arc::new(Inner { shared, task }))
    }

    /// Wakes the Cluster: at once, or when the rest after its last pass is over.
    pub(super) fn wake(&self) {
        let shared = &self.0.shared;
        shared.state().wanted = true;
        shared.send();
        shared.changed.notify_one();
    }

    /// A pass over the Cluster begins.
    pub(super) fn begin(&self) -> Passing {
        let mut state = self.0.shared.state();
        (state.wanted, state.passing) = (false, true);
        drop(state);
        Passing {
            pace: self.clone(),
            began: Instant::now(),
        }
    }

    /// Whether nothing needs it any more.
    pub(super) fn is_over(&self) -> bool {
        let state = self.0.shared.state();
        Arc::strong_count(&self.0) == 1 && state.rests_until.elapsed() >= KEPT
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self) {
        if self.state().sends() {
            self.wake.wake();
        }
    }

    async fn send_delayed(self: Arc<Self>) {
        loop {
            let due = self.state().due();
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.send(),
            }
        }
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
        self.pace.0.shared.state().news = Instant::now();
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        let (shared, now) = (&self.pace.0.shared, Instant::now());
        let mut state = shared.state();
        let quiet = now.duration_since(state.news) / PART;
        // As long as the pass took, so that short passes that events ask for do not take more than half of a slot.
        let rest = quiet.max(now.duration_since(self.began));
        state.rests_until = now + rest.clamp(MIN_REST, MAX_REST);
        state.passing = false;
        drop(state);
        shared.changed.notify_one();
    }
}
