//! `target/soak/report-gates.json`, whose fields are a contract, and `runs-gates.json` beside it with what each run was.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use super::plan::Plan;
use super::run::Outcome;
use crate::pace::Quantiles;
use crate::soak::report::put;
use crate::stack::complaints::Complaints;

/// A soak of gates in figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Report {
    /// Seed of the plans, the first where there are several.
    pub(super) seed: u64,
    /// Upgrades made.
    pub(super) runs: usize,
    /// Upgrades with a version that was written before the checks of its gate had proof.
    pub(super) early_releases: usize,
    /// Upgrades that did not come to their end.
    pub(super) stuck: usize,
    /// Processes that ended unasked.
    pub(super) unexpected_process_ends: usize,
    /// Panics and crashes in logs.
    pub(super) panics: usize,
    /// Logs that tell a secret, counted for each secret.
    pub(super) leaks: usize,
    /// How often each disturbance happened and was taken back.
    pub(super) disturbances: BTreeMap<&'static str, usize>,
    /// Upgrades by what delivered their charts.
    pub(super) deliveries: BTreeMap<&'static str, usize>,
    /// Seconds from the last proof to the write of the version to the control plane, or from the end of the disturbance if that came between.
    pub(super) release_lag: Quantiles,
}

impl Report {
    /// The figures of runs that are over.
    pub(super) fn of(seed: u64, outcomes: &[Outcome], complaints: &Complaints) -> Self {
        let (mut disturbances, mut deliveries) = (BTreeMap::new(), BTreeMap::new());
        for outcome in outcomes {
            let Plan { kind, delivery, .. } = &outcome.plan;
            *deliveries.entry(delivery.name()).or_default() += 1;
            if outcome.happened.is_some() {
                *disturbances.entry(kind.name()).or_default() += 1;
            }
        }
        Self {
            seed,
            runs: outcomes.len(),
            early_releases: outcomes
                .iter()
                .filter(|outcome| !outcome.early.is_empty())
                .count(),
            stuck: outcomes.iter().filter(|outcome| outcome.stuck.is_some()).count(),
            unexpected_process_ends: complaints.ended.len(),
            panics: complaints.logs.panics.len(),
            leaks: complaints.logs.leaks.len(),
            disturbances,
            deliveries,
            release_lag: Quantiles::of(outcomes.iter().filter_map(|outcome| outcome.lag)),
        }
    }

    /// Whether no upgrade was early and none stuck, and nothing was wrong with the stacks either.
    pub(super) fn passed(&self) -> bool {
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

/// Writes both files and returns where the report is.
pub(super) fn write(report: &Report, outcomes: &[Outcome]) -> Result<PathBuf> {
    for outcome in outcomes {
        if let Some(evidence) = &outcome.evidence {
            let Plan { seed, index, .. } = outcome.plan;
            put(&format!("run-gates-{seed}-{index}.json"), evidence)?;
        }
    }
    let details: Vec<Value> = outcomes.iter().map(details).collect();
    put("runs-gates.json", &json!(details))?;
    put("report-gates.json", &serde_json::to_value(report)?)
}

fn details(outcome: &Outcome) -> Value {
    let Outcome {
        plan,
        early,
        stuck,
        happened,
        lag,
        upgrade,
        total,
        ..
    } = outcome;
    json!({
        "seed": plan.seed,
        "run": plan.index,
        "plan": plan.to_string(),
        "disturbance": plan.kind,
        "delivery": plan.delivery.name(),
        "early": early.iter().map(ToString::to_string).collect::<Vec<_>>(),
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
    use crate::observer::{Rule, Violation};
    use crate::processes::log_search::Found;
    use crate::soak::gates::act::Happened;

    fn outcomes() -> Vec<Outcome> {
        let run = |index| {
            let mut outcome = Outcome::of(Plan::of(7, index));
            outcome.happened = Some(Happened {
                began: Timestamp::UNIX_EPOCH,
                ended: Timestamp::UNIX_EPOCH,
            });
            outcome
        };
        (0..7).map(run).collect()
    }

    fn passed(change: fn(&mut Outcome)) -> bool {
        let mut outcomes = outcomes();
        change(&mut outcomes[3]);
        Report::of(7, &outcomes, &Complaints::default()).passed()
    }

    #[test]
    fn early_and_stuck_runs_fail_the_soak() {
        assert!(passed(|_| {}));
        assert!(!passed(|outcome| outcome.stuck = Some("held".to_owned())));
        assert!(!passed(|outcome| {
            outcome.early = vec![Violation {
                rule: Rule::ReleasedBeforeGate,
                revision: 1,
                namespace: "soak".to_owned(),
                cluster: "r7-3".to_owned(),
                write: "control plane".to_owned(),
                missing: Vec::new(),
            }];
        }));
        assert!(!Report::of(7, &[], &Complaints::default()).passed());
    }

    #[test]
    fn a_stack_with_anything_wrong_fails_the_soak() {
        let lines = || vec!["sluice.log".to_owned()];
        let with = |ended, panics, leaks| {
            let complaints = Complaints {
                ended,
                kapp_controller_ends: 0,
                logs: Found { panics, leaks },
            };
            Report::of(7, &outcomes(), &complaints).passed()
        };
        assert!(with(Vec::new(), Vec::new(), Vec::new()));
        assert!(!with(lines(), Vec::new(), Vec::new()));
        assert!(!with(Vec::new(), lines(), Vec::new()));
        assert!(!with(Vec::new(), Vec::new(), lines()));
    }

    #[test]
    fn a_disturbance_that_was_not_taken_back_did_not_happen() {
        let mut outcomes = outcomes();
        let count = |outcomes: &[Outcome]| {
            let report = Report::of(7, outcomes, &Complaints::default());
            (
                report.disturbances.values().sum::<usize>(),
                report.deliveries.values().sum::<usize>(),
            )
        };
        assert_eq!(count(&outcomes), (7, 7));
        outcomes[3].happened = None;
        assert_eq!(count(&outcomes), (6, 7));
    }
}
