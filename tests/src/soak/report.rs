//! `target/soak/report.json`, whose fields are a contract, and `runs.json` beside it with what each run was.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Value, json};

use super::figures::{Lag, Quantiles};
use super::run::Outcome;
use crate::run_directory::target_directory;

/// A soak in figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Seed of all plans.
    pub seed: u64,
    /// Upgrades made.
    pub runs: usize,
    /// Upgrades with a version that was written before its packages had proof.
    pub early_releases: usize,
    /// Upgrades that did not come to their end.
    pub stuck: usize,
    /// How often each disturbance happened.
    pub disturbances: BTreeMap<&'static str, usize>,
    /// Seconds from the last proof to the write of the version.
    pub release_lag: Quantiles,
}

impl Report {
    /// The figures of runs that are over.
    pub(super) fn of(seed: u64, outcomes: &[Outcome]) -> Self {
        let mut disturbances = BTreeMap::new();
        for happened in outcomes.iter().flat_map(|outcome| &outcome.happened) {
            *disturbances.entry(happened.kind).or_default() += 1;
        }
        Self {
            seed,
            runs: outcomes.len(),
            early_releases: outcomes
                .iter()
                .filter(|outcome| !outcome.verdict.early.is_empty())
                .count(),
            stuck: outcomes.iter().filter(|outcome| outcome.stuck.is_some()).count(),
            disturbances,
            release_lag: lags(outcomes, |lag| lag.since_proof),
        }
    }

    /// Whether no upgrade was early and none stuck.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.runs > 0 && self.early_releases == 0 && self.stuck == 0
    }
}

/// Quantiles of one kind of lag.
pub(super) fn lags(outcomes: &[Outcome], which: impl Fn(Lag) -> f64) -> Quantiles {
    Quantiles::of(outcomes.iter().filter_map(|outcome| outcome.lag).map(which))
}

/// Writes both files and returns where the report is.
pub(super) fn write(report: &Report, outcomes: &[Outcome]) -> Result<PathBuf> {
    let target = target_directory().context("the soak does not run from Cargo's target directory")?;
    let directory = target.join("soak");
    std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    let put = |name: &str, content: &Value| {
        let path = directory.join(name);
        std::fs::write(&path, format!("{content:#}\n"))
            .with_context(|| format!("write {}", path.display()))?;
        Ok::<_, anyhow::Error>(path)
    };
    for outcome in outcomes {
        if let Some(evidence) = &outcome.evidence {
            put(&format!("run-{}.json", outcome.plan.index), evidence)?;
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
