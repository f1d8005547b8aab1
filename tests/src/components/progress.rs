//! Output of a build of components: one line for each step with the time left, and a sign of life between them.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::recorded;
use crate::processes::notice;

/// Longest time without a line.
const HEARTBEAT: Duration = Duration::from_secs(20);

/// Progress of a build with several components.
#[derive(Debug)]
pub(super) struct Progress {
    state: Mutex<State>,
    total: usize,
}

#[derive(Debug)]
struct State {
    /// Recorded seconds of the components that are not built yet.
    left: BTreeMap<String, f64>,
    running: BTreeMap<String, Running>,
    done: usize,
    estimate: Estimate,
    last_line: Instant,
}

#[derive(Debug)]
struct Running {
    since: Instant,
    packages: usize,
}

impl Progress {
    /// Begins a build of these components, in as many lanes.
    pub(super) fn begin<'a>(names: impl Iterator<Item = &'a str>, lanes: usize, cores: usize) -> Self {
        let left: BTreeMap<String, f64> = names
            .map(|name| (name.to_owned(), recorded::seconds(name)))
            .collect();
        Self {
            total: left.len(),
            state: Mutex::new(State {
                left,
                running: BTreeMap::new(),
                done: 0,
                estimate: Estimate::new(lanes, cores),
                last_line: Instant::now(),
            }),
        }
    }

    /// Prints a line whenever nothing was printed for a while, until the guard is dropped.
    pub(super) fn watch<'scope>(&'scope self, scope: &'scope thread::Scope<'scope, '_>) -> Sender<()> {
        let (guard, ended) = mpsc::channel();
        scope.spawn(move || {
            while ended.recv_timeout(HEARTBEAT / 4) == Err(RecvTimeoutError::Timeout) {
                self.beat();
            }
        });
        guard
    }

    pub(super) fn started(&self, name: &str) {
        let mut state = self.state();
        let running = Running {
            since: Instant::now(),
            packages: 0,
        };
        state.running.insert(name.to_owned(), running);
        let left = state.time_left();
        state.say(&format!("{name}: building; {left}"));
    }

    /// Takes a line that `go build -v` prints: a package that it compiles, or a module that it downloads.
    pub(super) fn printed(&self, name: &str, line: &str) {
        // A line with a space is a message; the others are packages.
        if !line.contains(' ')
            && let Some(running) = self.state().running.get_mut(name)
        {
            running.packages += 1;
        }
    }

    /// Ends a component. Returns the seconds that it took.
    pub(super) fn ended(&self, name: &str, error: Option<&anyhow::Error>) -> f64 {
        let mut state = self.state();
        let recorded = state.left.remove(name).unwrap_or_default();
        let running = state.running.remove(name);
        let seconds = running.map_or(0.0, |running| running.since.elapsed().as_secs_f64());
        if error.is_none() {
            state.done += 1;
            state.estimate.measured(recorded, seconds);
        }
        let (number, total, left) = (state.done, self.total, state.time_left());
        match error {
            None => state.say(&format!(
                "[{number}/{total}] {name}: built in {seconds:.0} s; {left}"
            )),
            Some(error) => state.say(&format!("{name}: failed after {seconds:.0} s: {error:#}")),
        }
        seconds
    }

    fn beat(&self) {
        let mut state = self.state();
        if state.last_line.elapsed() < HEARTBEAT {
            return;
        }
        let running: Vec<String> = state
            .running
            .iter()
            .map(|(name, Running { since, packages })| {
                format!(
                    "{name} ({:.0} s, {packages} packages)",
                    since.elapsed().as_secs_f64()
                )
            })
            .collect();
        let left = state.time_left();
        state.say(&format!("building {}; {left}", running.join(" and ")));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn time_left(&self) -> String {
        let work = self.left.iter().map(|(name, recorded)| {
            let spent = self.running.get(name).map(|running| running.since.elapsed());
            self.estimate
                .of(*recorded, spent.unwrap_or_default().as_secs_f64())
        });
        in_minutes(self.estimate.in_lanes(&work.collect::<Vec<_>>()))
    }

    fn say(&mut self, text: &str) {
        self.last_line = Instant::now();
        notice(text);
    }
}

/// Turns recorded seconds into expected ones.
#[derive(Debug)]
struct Estimate {
    lanes: f64,
    /// Recorded and measured seconds, which start with an assumption about the cores of this machine.
    recorded: f64,
    measured: f64,
}

impl Estimate {
    /// Weight of the assumption, in recorded seconds.
    const ASSUMED: f64 = 30.0;

    fn new(lanes: usize, cores: usize) -> Self {
        let cores = u32::try_from(cores.max(1)).map_or(2.0, f64::from);
        Self {
            lanes: u32::try_from(lanes.max(1)).map_or(1.0, f64::from),
            recorded: Self::ASSUMED,
            measured: Self::ASSUMED * recorded::cores() / cores,
        }
    }

    fn measured(&mut self, recorded: f64, seconds: f64) {
        self.recorded += recorded;
        self.measured += seconds;
    }

    /// Expected seconds of a component that has run for `spent` seconds. One that takes longer than expected is about to end.
    fn of(&self, recorded: f64, spent: f64) -> f64 {
        (recorded * self.measured / self.recorded - spent).max(1.0)
    }

    /// Time until all components with these expected seconds are built. The longest one has one lane.
    fn in_lanes(&self, seconds: &[f64]) -> f64 {
        let longest = seconds.iter().copied().fold(0.0, f64::max);
        longest.max(seconds.iter().sum::<f64>() / self.lanes)
    }
}

/// `about 3 min left`.
fn in_minutes(seconds: f64) -> String {
    if seconds < 2.0 {
        "almost done".to_owned()
    } else if seconds < 90.0 {
        format!("about {seconds:.0} s left")
    } else {
        format!("about {:.0} min left", seconds / 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() < 0.1
    }

    #[test]
    fn the_number_of_cores_scales_the_recorded_times() {
        assert!(near(Estimate::new(2, 2).of(60.0, 0.0), 60.0));
        assert!(near(Estimate::new(2, 8).of(60.0, 0.0), 15.0));
        assert!(near(Estimate::new(2, 8).of(60.0, 10.0), 5.0));
        assert!(near(Estimate::new(2, 8).of(60.0, 100.0), 1.0));
        assert!(near(Estimate::new(2, 2).in_lanes(&[20.0, 20.0, 20.0]), 30.0));
        assert!(near(Estimate::new(2, 2).in_lanes(&[50.0, 10.0]), 50.0));
    }

    #[test]
    fn measured_steps_correct_the_others() {
        let mut estimate = Estimate::new(1, 2);
        // Three times as slow as recorded.
        estimate.measured(270.0, 810.0);
        assert!(near(estimate.of(100.0, 0.0), 280.0));
    }

    #[test]
    fn the_time_left_is_a_round_figure() {
        assert_eq!(in_minutes(42.4), "about 42 s left");
        assert_eq!(in_minutes(100.0), "about 2 min left");
        assert_eq!(in_minutes(0.0), "almost done");
    }
}
