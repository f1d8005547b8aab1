//! Judges: one pure function per kind, which proves that an object has its version and that the version runs.
//!
//! A judge is a table of clauses, and a check is proven if all of them are met. The first one that is not met gives the reason. An absent
//! field, or one of another type than its API declares, never proves anything.

mod clause;
mod common;
mod custom_resource_definition;
mod daemon_set;
mod deployment;
mod flux;
mod helm_chart_proxy;
mod helm_release;
mod image;
mod job;
mod kind;
mod kustomization;
mod object;
mod other;
mod replicas;
mod stateful_set;
mod verdict;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod tests;

use serde_json::Value;
use sluice_crds::lifecycle::CheckRecord;

pub use kind::{JudgedKind, Related, RelatedList, RelatedObject};
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

/// Returns the objects that a kind needs beside the object of the check, if any. A list does not depend on `object`.
///
/// An object that must not be read, such as a source in another namespace of the management cluster, is none: the judge objects.
#[must_use]
pub fn related(kind: JudgedKind, expected: &Expected<'_>, object: Option<&Value>) -> Option<Related> {
    match kind {
        JudgedKind::HelmChartProxy => Some(Related::List(helm_chart_proxy::releases_of(expected))),
        JudgedKind::Kustomization => kustomization::source_of(expected, object?).map(Related::Object),
        JudgedKind::HelmRelease
        | JudgedKind::DaemonSet
        | JudgedKind::Deployment
        | JudgedKind::StatefulSet
        | JudgedKind::Job
        | JudgedKind::CustomResourceDefinition
        | JudgedKind::Other => None,
    }
}
