//! `target/soak/report.json`, whose fields are a contract, and `runs.json` beside it with what each run was.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Value, json};

use super::figures::{Lag, Part};
use super::plan::Plan;
use super::run::Outcome;
use super::undisturbed::{GOALS, Weighed};
use crate::pace::{Pace, Quantiles};
use crate::processes::run_directory::target_directory;
use crate::stack::complaints::Complaints;

/// How many disturbed releases are said.
const LONGEST: usize = 6;

/// A soak in figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Seed of the plans, the first where there are several.
    pub seed: u64,
    /// Upgrades made.
    pub runs: usize,
    /// Upgrades with a version that was written before its packages had proof.
    pub early_releases: usize,
    /// Writes without proof that are not counted: a disturbance took the proof away after the gate was opened.
    pub overtaken: usize,
    /// Upgrades that did not come to their end.
    pub stuck: usize,
    /// Processes that ended unasked, kapp-controllers among them where the cause is not known.
    pub unexpected_process_ends: usize,
    /// How often a kapp-controller ended unasked, for whatever cause, and was started again.
    pub kapp_controller_ends: usize,
    /// Panics and crashes in logs, the one that is known of kapp-controller left out.
    pub panics: usize,
    /// Logs that tell a secret, counted for each secret.
    pub leaks: usize,
    /// How often each disturbance happened.
    pub disturbances: BTreeMap<&'static str, usize>,
    /// How often each did not, because the object that it disturbs was not there.
    pub absent: BTreeMap<&'static str, usize>,
    /// Seconds from the last proof to the write of the version to the control plane.
    pub release_lag: Quantiles,
    /// The same for workers.
    pub workers_release_lag: Quantiles,
    /// Releases of control planes and workers.
    pub releases: usize,
    /// Those that were not disturbed.
    pub undisturbed_releases: usize,
    /// Seconds from the last proof to the write in those.
    pub undisturbed_release_lag: Quantiles,
    /// Verdict on the runs.
    pub pace: Pace,
}

impl Report {
    /// The figures of runs that are over.
    pub(super) fn of(seed: u64, outcomes: &[Outcome], complaints: &Complaints) -> Self {
        let (mut disturbances, mut absent) = (BTreeMap::new(), BTreeMap::new());
        for happened in outcomes.iter().flat_map(|outcome| &outcome.happened) {
            let counted = if happened.absent {
                &mut absent
            } else {
                &mut disturbances
            };
            *counted.entry(happened.kind.name()).or_default() += 1;
        }
        let undisturbed: Vec<f64> = weighed(outcomes)
            .filter(|weighed| weighed.is_undisturbed())
            .map(|weighed| weighed.lag)
            .collect();
        let workers = weighed(outcomes).filter(|weighed| weighed.released.part == Part::Workers);
        Self {
            seed,
            runs: outcomes.len(),
            early_releases: outcomes
                .iter()
                .filter(|outcome| !outcome.verdict.early.is_empty())
                .count(),
            overtaken: outcomes
                .iter()
                .map(|outcome| outcome.verdict.overtaken.len())
                .sum(),
            stuck: outcomes.iter().filter(|outcome| outcome.stuck.is_some()).count(),
            unexpected_process_ends: complaints.ended.len(),
            kapp_controller_ends: complaints.kapp_controller_ends,
            panics: complaints.logs.panics.len(),
            leaks: complaints.logs.leaks.len(),
            disturbances,
            absent,
            release_lag: lags(outcomes, |lag| lag.since_proof),
            workers_release_lag: Quantiles::of(workers.map(|weighed| weighed.lag)),
            releases: weighed(outcomes).count(),
            undisturbed_releases: undisturbed.len(),
            pace: GOALS.judge(&undisturbed),
            undisturbed_release_lag: Quantiles::of(undisturbed),
        }
    }

    /// Whether no upgrade was early and none stuck, nothing was wrong with the stacks either, and undisturbed releases kept the pace, where
    /// there were enough of them.
    #[must_use]
    pub fn passed(&self) -> bool {
        let wrong = [
            self.early_releases,
            self.stuck,
            self.unexpected_process_ends,
            self.panics,
            self.leaks,
        ];
        self.runs > 0 && self.pace != Pace::Missed && wrong.into_iter().all(|count| count == 0)
    }
}

/// Quantiles of one kind of lag.
pub(super) fn lags(outcomes: &[Outcome], which: impl Fn(Lag) -> f64) -> Quantiles {
    Quantiles::of(outcomes.iter().filter_map(|outcome| outcome.lag).map(which))
}

/// The releases of all runs.
fn weighed(outcomes: &[Outcome]) -> impl Iterator<Item = &Weighed> {
    outcomes.iter().flat_map(|outcome| &outcome.weighed)
}

/// The disturbed releases that came last after all was good, with their runs, the longest first.
pub(super) fn longest_disturbed(outcomes: &[Outcome]) -> Vec<(&Outcome, &Weighed)> {
    let after = |weighed: &Weighed| weighed.cause.as_ref().map(|cause| cause.since_all_was_good);
    let mut disturbed: Vec<(&Outcome, &Weighed)> = outcomes
        .iter()
        .flat_map(|outcome| outcome.weighed.iter().map(move |weighed| (outcome, weighed)))
        .filter(|(_, weighed)| !weighed.is_undisturbed())
        .collect();
    disturbed
        .sort_by(|(_, one), (_, other)| after(other).partial_cmp(&after(one)).unwrap_or(Ordering::Equal));
    disturbed.truncate(LONGEST);
    disturbed
}

/// Writes a file of `target/soak` and returns where it is.
pub(super) fn put(name: &str, content: &Value) -> Result<PathBuf> {
    let target = target_directory().context("the soak does not run from Cargo's target directory")?;
    let directory = target.join("soak");
    std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    let path = directory.join(name);
    std::fs::write(&path, format!("{content:#}\n")).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// Writes both files and returns where the report is.
pub(super) fn write(report: &Report, outcomes: &[Outcome]) -> Result<PathBuf> {
    for outcome in outcomes {
        if let Some(evidence) = &outcome.evidence {
            let Plan { seed, index, .. } = outcome.plan;
            put(&format!("run-{seed}-{index}.json"), evidence)?;
        }
    }
    put(
        "runs.json",
        &json!(outcomes.iter().map(details).collect::<Vec<_>>()),
    )?;
    put("report.json", &serde_json::to_value(report)?)
}

fn details(outcome: &Outcome) -> Value {
    let Outcome {
        plan,
        verdict,
        stuck,
        happened,
        lag,
        weighed,
        upgrade,
        total,
        ..
    } = outcome;
    let text = |violations: &[crate::observer::Violation]| -> Vec<String> {
        violations.iter().map(ToString::to_string).collect()
    };
    json!({
        "seed": plan.seed,
        "run": plan.index,
        "plan": plan.to_string(),
        "early": text(&verdict.early),
        "overtaken": text(&verdict.overtaken),
        "stuck": stuck,
        "happened": happened,
        "lag": lag,
        "releases": weighed,
        "upgrade_seconds": upgrade.as_secs_f64(),
        "total_seconds": total.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::processes::log_search::Found;
    use crate::soak::act::Happened;
    use crate::soak::disturbance::Kind;
    use crate::soak::figures::Released;
    use crate::soak::undisturbed::weigh;

    fn report(complaints: &Complaints) -> Report {
        Report {
            runs: 1,
            ..Report::of(7, &[], complaints)
        }
    }

    #[test]
    fn a_stack_with_anything_wrong_fails_the_soak() {
        let complaints = |ended: &[&str], panics: &[&str], leaks: &[&str]| {
            let owned = |lines: &[&str]| lines.iter().map(ToString::to_string).collect();
            let logs = Found {
                panics: owned(panics),
                leaks: owned(leaks),
            };
            Complaints {
                ended: owned(ended),
                kapp_controller_ends: 0,
                logs,
            }
        };
        assert!(report(&Complaints::default()).passed());
        assert!(!report(&complaints(&["etcd"], &[], &[])).passed());
        assert!(!report(&complaints(&[], &["sluice.log"], &[])).passed());
        assert!(!report(&complaints(&[], &[], &["sluice.log"])).passed());
        assert!(!Report::of(7, &[], &Complaints::default()).passed());
    }

    #[test]
    fn ends_of_kapp_controllers_for_a_known_cause_are_counted_over_all_stacks() {
        let mut stacks = Complaints::default();
        for kapp_controller_ends in [2, 1] {
            stacks.add(Complaints {
                kapp_controller_ends,
                ..Complaints::default()
            });
        }
        assert!(stacks.is_empty());
        let report = report(&stacks);
        assert_eq!((report.kapp_controller_ends, report.passed()), (3, true));
    }

    #[test]
    fn early_and_stuck_runs_fail_the_soak_and_overtaken_ones_do_not() {
        let good = report(&Complaints::default());
        let with = |change: fn(&mut Report)| {
            let mut report = good.clone();
            change(&mut report);
            report.passed()
        };
        assert!(with(|report| report.overtaken = 1));
        assert!(!with(|report| report.early_releases = 1));
        assert!(!with(|report| report.stuck = 1));
    }

    #[test]
    fn a_disturbance_without_an_object_did_not_happen() {
        let happened = |kind, absent| Happened {
            kind,
            package: None,
            absent,
            withdrawals: Vec::new(),
            began: Timestamp::UNIX_EPOCH,
            ended: Timestamp::UNIX_EPOCH,
            ended_at: 1,
        };
        let all = [
            happened(Kind::AppPaused, true),
            happened(Kind::AppPaused, false),
            happened(Kind::AppCanceled, true),
        ];
        let outcome = Outcome::of(Plan::of(7, 0), all.into());
        let report = Report::of(7, &[outcome], &Complaints::default());
        assert_eq!(report.disturbances, BTreeMap::from([("app-paused", 1)]));
        assert_eq!(
            report.absent,
            BTreeMap::from([("app-canceled", 1), ("app-paused", 1)])
        );
    }

    /// A report of runs whose releases were not disturbed and took so long.
    fn undisturbed(lags: &[f64]) -> Report {
        let run = |(index, lag): (u64, &f64)| {
            let mut outcome = Outcome::of(Plan::of(7, index), Vec::new());
            outcome.released = vec![Released {
                part: Part::Workers,
                proven: Timestamp::UNIX_EPOCH,
                written: Timestamp::UNIX_EPOCH + SignedDuration::from_secs_f64(*lag),
                revision: 1,
            }];
            outcome
        };
        let mut outcomes: Vec<Outcome> = (0..).zip(lags).map(run).collect();
        weigh(&mut outcomes);
        Report::of(7, &outcomes, &Complaints::default())
    }

    #[test]
    fn a_pace_that_is_missed_fails_the_soak_and_too_few_releases_do_not() {
        let good = undisturbed(&[2.4; 20]);
        assert_eq!(
            (good.undisturbed_releases, good.pace, good.passed()),
            (20, Pace::Kept, true)
        );
        // Times that workers waited while each reconcile was followed by a rest.
        let slow = undisturbed(&[2.7; 20]);
        assert_eq!((slow.pace, slow.passed()), (Pace::Missed, false));
        let few = undisturbed(&[2.7; 19]);
        assert_eq!((few.pace, few.passed()), (Pace::TooFew, true));
    }
}
