//! Judges: one pure function per kind, which proves that an object has its version and that the version runs.
//!
//! A judge is a table of clauses, and a check is proven if all of them are met. The first one that is not met gives the reason. An absent
//! field, or one of another type than its API declares, never proves anything.

mod clause;
mod common;
mod daemon_set;
mod deployment;
mod helm_chart_proxy;
mod image;
mod job;
mod kind;
mod object;
mod replicas;
mod stateful_set;
mod verdict;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod tests;

use sluice_crds::lifecycle::CheckRecord;

pub use kind::{JudgedKind, RelatedList};
pub use verdict::{Evidence, Expected, Verdict};

use clause::judge_by;

/// Judges one check by all objects that it needs, as their API servers returned them.
///
/// `latch` is the recorded entry of the check, read from the API server. A judgement that is not recorded yet never serves as one.
#[must_use]
pub fn judge(
    kind: JudgedKind,
    evidence: &Evidence<'_>,
    expected: &Expected<'_>,
    latch: Option<&CheckRecord>,
) -> Verdict {
    let judge = kind.judge();
    judge_by(judge, judge.clauses, evidence, expected, latch)
}

/// Returns the list that a kind needs beside its object, if any.
#[must_use]
pub fn related(kind: JudgedKind, expected: &Expected<'_>) -> Option<RelatedList> {
    match kind {
        JudgedKind::HelmChartProxy => Some(helm_chart_proxy::releases_of(expected)),
        JudgedKind::DaemonSet | JudgedKind::Deployment | JudgedKind::StatefulSet | JudgedKind::Job => None,
    }
}
