//! `target/soak/report.json`, whose fields are a contract, and `runs.json` beside it with what each run was. Of runs that are only reported
//! both begin with `reported-`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Value, json};

use super::figures::Lag;
use super::plan::Plan;
use super::run::Outcome;
use crate::pace::Quantiles;
use crate::processes::run_directory::target_directory;
use crate::stack::complaints::Complaints;

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
    /// Seconds from the last proof to the write of the version.
    pub release_lag: Quantiles,
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
            *counted.entry(happened.kind).or_default() += 1;
        }
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
        }
    }

    /// Whether no upgrade was early and none stuck, and nothing was wrong with the stacks either.
    #[must_use]
    pub fn passed(&self) -> bool {
        let wrong = [
            self.early_releases,
            self.stuck,
            self.unexpected_process_ends,
            self.panics,
            self.leaks,
        ];
        self.runs > 0 && wrong.into_iter().all(|count| count == 0)
    }
}

/// Quantiles of one kind of lag.
pub(super) fn lags(outcomes: &[Outcome], which: impl Fn(Lag) -> f64) -> Quantiles {
    Quantiles::of(outcomes.iter().filter_map(|outcome| outcome.lag).map(which))
}

/// Which runs a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// Those that decide whether the soak passes.
    Judged,
    /// Those that are only reported.
    Reported,
}

impl Of {
    /// What the names of its files begin with.
    fn prefix(self) -> &'static str {
        match self {
            Self::Judged => "",
            Self::Reported => "reported-",
        }
    }
}

/// Writes both files and returns where the report is.
pub(super) fn write(of: Of, report: &Report, outcomes: &[Outcome]) -> Result<PathBuf> {
    let target = target_directory().context("the soak does not run from Cargo's target directory")?;
    let directory = target.join("soak");
    std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    let put = |name: &str, content: &Value| {
        let path = directory.join(format!("{}{name}", of.prefix()));
        std::fs::write(&path, format!("{content:#}\n"))
            .with_context(|| format!("write {}", path.display()))?;
        Ok::<_, anyhow::Error>(path)
    };
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
        "upgrade_seconds": upgrade.as_secs_f64(),
        "total_seconds": total.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::processes::log_search::Found;
    use crate::soak::act::Happened;

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
    fn what_found_no_object_did_not_happen() {
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
            happened("app-paused", true),
            happened("app-paused", false),
            happened("app-canceled", true),
        ];
        let outcome = Outcome::of(Plan::of(7, 0), all.into());
        let report = Report::of(7, &[outcome], &Complaints::default());
        assert_eq!(report.disturbances, BTreeMap::from([("app-paused", 1)]));
        assert_eq!(
            report.absent,
            BTreeMap::from([("app-canceled", 1), ("app-paused", 1)])
        );
    }
}
