//! Undisturbed releases of a stack, and possible delays of the others.
//!
//! A release is undisturbed if no disturbance of its Cluster, and none that all Clusters share, was under way at its last proof or
//! later, or had ended so shortly before that it may still have been waited for ([`Happened::quiet`]). One that began only when the
//! release was late already is no excuse, or the longest waits would be left out: they meet most disturbances. Disturbances that
//! found no object have not happened. All times are of one clock, that of the harness; which came first, the end of a disturbance or
//! a write, is decided by revisions.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::act::Happened;
use super::disturbance::Kind;
use super::figures::Released;
use super::run::Outcome;
use crate::pace::Goals;
use crate::scenario::HookAnswer;

/// How many seconds an undisturbed release may take.
pub(super) const GOALS: Goals = Goals { p50: None, p95: 2.5 };

/// A release is late after this.
const LATE: Duration = Duration::from_millis(2_500);

/// Time within which watches show a reverted disturbance, and Cluster API repeats a held call.
const SHOWN: Duration = Duration::from_secs(3);

/// A lease of the extension lasts 12 s. The next leader reads it each second, and then reconciles all Clusters.
const LEASE: Duration = Duration::from_secs(15);

/// A release, and whether it was disturbed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Weighed {
    #[serde(flatten)]
    pub(super) released: Released,
    /// Seconds from the last proof to the write.
    pub(super) lag: f64,
    /// What disturbed it; none if it was undisturbed.
    pub(super) cause: Option<Cause>,
}

/// Of all that disturbed a release, what ended last before the write, or else was under way then; and what the extension was asked
/// from its end, or the last proof, to the write.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Cause {
    pub(super) kind: Kind,
    /// Seed and number of the run that it belongs to.
    pub(super) run: (u64, u64),
    pub(super) ended: Timestamp,
    /// Whether it ended before the write.
    pub(super) is_over: bool,
    /// Seconds from its end, or the last proof if that came later, to the write.
    pub(super) since_all_was_good: f64,
    /// After how many of these Cluster API asked for the first time; none if it did not.
    pub(super) first_call_after: Option<f64>,
    /// How often it was answered that it has to wait.
    pub(super) holds: usize,
    /// The reason of the last of these answers.
    pub(super) reason: Option<String>,
}

/// A disturbance of one run.
#[derive(Clone, Copy)]
struct Felt<'a> {
    happened: &'a Happened,
    run: (u64, u64),
}

/// Weighs the releases of all runs of one stack against all that happened on it.
pub(super) fn weigh(outcomes: &mut [Outcome]) {
    let weighed: Vec<Vec<Weighed>> = outcomes
        .iter()
        .map(|outcome| {
            let felt: Vec<Felt<'_>> = felt_by(outcome, outcomes).collect();
            let releases = outcome.released.iter();
            releases
                .map(|released| Weighed::of(*released, &felt, &outcome.answers))
                .collect()
        })
        .collect();
    for (outcome, weighed) in outcomes.iter_mut().zip(weighed) {
        outcome.weighed = weighed;
    }
}

/// What happened to the Cluster of a run, and what its stack's runs did to all Clusters.
fn felt_by<'a>(outcome: &'a Outcome, all: &'a [Outcome]) -> impl Iterator<Item = Felt<'a>> {
    let own = outcome.plan.run();
    all.iter().flat_map(move |other| {
        let run = other.plan.run();
        let happened = other.happened.iter();
        happened
            .filter(move |happened| !happened.absent && (run == own || happened.kind.is_shared()))
            .map(move |happened| Felt { happened, run })
    })
}

impl Weighed {
    fn of(released: Released, felt: &[Felt<'_>], answers: &[HookAnswer]) -> Self {
        let disturbing = felt.iter().filter(|felt| felt.disturbs(&released));
        let last = disturbing.max_by_key(|felt| (felt.is_over(&released), felt.happened.ended));
        Self {
            released,
            lag: released.lag(),
            cause: last.map(|felt| felt.cause(&released, answers)),
        }
    }

    pub(super) fn is_undisturbed(&self) -> bool {
        self.cause.is_none()
    }
}

impl Happened {
    /// From when on nothing waits for it any more. Attempts to reach a server are made after pauses that grow as long as it was away.
    fn quiet(&self) -> Timestamp {
        let Self {
            kind, began, ended, ..
        } = *self;
        let mut quiet = ended + SHOWN;
        if kind.is_outage() {
            quiet = quiet.max(ended + ended.duration_since(began));
        }
        if kind.takes_leader() {
            quiet = quiet.max(began + LEASE);
        }
        quiet
    }
}

impl Felt<'_> {
    fn disturbs(&self, released: &Released) -> bool {
        let until = released.written.min(released.proven + LATE);
        self.happened.began <= until && self.happened.quiet() >= released.proven
    }

    fn is_over(&self, released: &Released) -> bool {
        self.happened.ended_at < released.revision
    }

    fn cause(&self, released: &Released, answers: &[HookAnswer]) -> Cause {
        let is_over = self.is_over(released);
        let ended = self.happened.ended;
        let good = if is_over {
            released.proven.max(ended)
        } else {
            released.proven
        };
        let asked = || {
            answers
                .iter()
                .filter(|answer| (good..=released.written).contains(&answer.timestamp))
        };
        let held = || asked().filter(|answer| answer.is_held());
        Cause {
            kind: self.happened.kind,
            run: self.run,
            ended,
            is_over,
            since_all_was_good: released.since(good),
            first_call_after: asked()
                .next()
                .map(|first| first.timestamp.duration_since(good).as_secs_f64()),
            holds: held().count(),
            reason: held().next_back().map(|last| last.reason.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::super::figures::Part;
    use super::super::plan::Plan;
    use super::*;
    use crate::pace::Pace;

    /// Seconds after the last proof, which is at 60 s.
    fn at(seconds: f64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(60) + SignedDuration::from_secs_f64(seconds)
    }

    /// Revisions are milliseconds.
    fn happened(kind: Kind, began: f64, ended: f64) -> Happened {
        Happened {
            kind,
            package: None,
            absent: false,
            withdrawals: Vec::new(),
            began: at(began),
            ended: at(ended),
            ended_at: at(ended).as_millisecond(),
        }
    }

    fn released(lag: f64) -> Released {
        Released {
            part: Part::ControlPlane,
            proven: at(0.0),
            written: at(lag),
            revision: at(lag).as_millisecond(),
        }
    }

    fn run(index: u64, happened: Vec<Happened>, lags: &[f64]) -> Outcome {
        let mut outcome = Outcome::of(Plan::of(7, index), happened);
        outcome.released = lags.iter().map(|lag| released(*lag)).collect();
        outcome
    }

    /// What disturbed a release of another Cluster, and one of the Cluster itself, that took `lag` seconds.
    fn disturbed(happened: Happened, lag: f64) -> (bool, bool) {
        let mut runs = [run(0, vec![happened], &[lag]), run(1, Vec::new(), &[lag])];
        weigh(&mut runs);
        let [own, other] = runs.map(|run| !run.weighed[0].is_undisturbed());
        (other, own)
    }

    #[test]
    fn a_shared_disturbance_disturbs_all_clusters_and_another_one_its_own() {
        assert_eq!(
            disturbed(happened(Kind::LeaderFrozen, -9.0, -2.0), 1.0),
            (true, true)
        );
        assert_eq!(
            disturbed(happened(Kind::AppPaused, -9.0, -2.0), 1.0),
            (false, true)
        );
        assert_eq!(
            disturbed(happened(Kind::WorkloadApiDown, -9.0, -2.0), 1.0),
            (false, true)
        );
    }

    #[test]
    fn early_disturbances_and_those_without_an_object_affect_nothing() {
        for (kind, began, ended, quiet) in [
            // A write.
            (Kind::ClusterPaused, -40.0, -10.0, -7.0),
            // Attempts after pauses.
            (Kind::ClusterApiRestart, -40.0, -20.0, 0.0),
            (Kind::WorkloadApiDown, -12.0, -7.0, -2.0),
            // A lease.
            (Kind::LeaderKilled, -20.0, -19.0, -5.0),
            (Kind::ExtensionDown, -20.0, -9.0, 2.0),
            (Kind::LeaderFrozen, -20.0, -6.0, 8.0),
        ] {
            let earlier = |by: f64| disturbed(happened(kind, began - by, ended - by), 1.0).1;
            assert!(earlier(quiet - 0.1), "{kind:?}");
            assert!(!earlier(quiet + 0.1), "{kind:?}");
        }
        let absent = Happened {
            absent: true,
            ..happened(Kind::AppPaused, -1.0, 0.5)
        };
        assert_eq!(disturbed(absent, 1.0), (false, false));
    }

    #[test]
    fn disturbances_after_the_write_or_a_late_release_affect_nothing() {
        let began = |began, lag| disturbed(happened(Kind::ExtensionDown, began, began + 3.0), lag);
        assert_eq!(began(1.1, 1.0), (false, false));
        assert_eq!(began(0.9, 1.0), (true, true));
        assert_eq!(began(2.4, 9.0), (true, true));
        assert_eq!(began(2.6, 9.0), (false, false));
    }

    #[test]
    fn the_cause_is_the_last_ended_disturbance_and_the_calls_since() {
        let all = vec![
            happened(Kind::ExtensionDown, -9.0, 1.0),
            happened(Kind::ClusterPaused, -4.0, 2.0),
            // Under way at the write.
            happened(Kind::StartHeld, 0.0, 9.0),
        ];
        let mut runs = [run(0, all, &[6.0])];
        let answer = |seconds, answer: &str, reason: &str| HookAnswer {
            timestamp: at(seconds),
            hook: "BeforeControlPlaneUpgrade".to_owned(),
            namespace: "soak".to_owned(),
            cluster: "r7-0".to_owned(),
            answer: answer.to_owned(),
            reason: reason.to_owned(),
        };
        runs[0].answers = vec![
            answer(1.5, "hold", "ClusterPaused"),
            answer(3.5, "hold", "NoLeader"),
            answer(4.5, "hold", "PackagesNotReady"),
            answer(5.5, "release", ""),
        ];
        weigh(&mut runs);
        let cause = runs[0].weighed[0].cause.clone().unwrap();
        assert_eq!(
            (cause.kind, cause.run, cause.is_over),
            (Kind::ClusterPaused, (7, 0), true)
        );
        assert!((cause.since_all_was_good - 4.0).abs() < 1e-6);
        assert!((cause.first_call_after.unwrap() - 1.5).abs() < 1e-6);
        assert_eq!(
            (cause.holds, cause.reason.as_deref()),
            (2, Some("PackagesNotReady"))
        );
    }

    #[test]
    fn a_release_that_misses_the_goal_is_late() {
        assert!((LATE.as_secs_f64() - GOALS.p95).abs() < 1e-9);
    }

    #[test]
    fn releases_as_slow_as_with_pauses_miss_the_goal() {
        let mut with_pauses = vec![1.69; 10];
        assert_eq!(
            GOALS.judge(&[with_pauses.as_slice(), &[1.85; 10]].concat()),
            Pace::Kept
        );
        with_pauses.extend([2.7; 10]);
        assert_eq!(GOALS.judge(&with_pauses), Pace::Missed);
    }
}
