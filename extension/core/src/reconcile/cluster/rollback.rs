//! Reports of a rollback: condition `Rollback` of the ClusterBootstrap, and the annotation that a cancellation needs and then no longer.

use kube::ResourceExt;
use sluice_crds::{
    labels::annotation,
    run::{ClusterBootstrap, Condition, Outcome, UpgradeRecord},
};

use super::{Context, Facts, effects::Effects};
use crate::{
    events::Event,
    packages::bootstrap::{Snapshot, Stays, restored},
    reasons::{GateReason, Hold},
    summary::rollback::with_rollback,
    upgrade::rollback::Decision,
    version::same,
};

/// Reason of the event about [`DISABLE_VERSION_CHECK`](annotation::DISABLE_VERSION_CHECK).
const VERSION_UNCHECKED: &str = "VersionCheckDisabled";

/// Returns why packages stay that the policy wants back: the decision, or the `problem` of a rollback under way.
pub(super) fn refused<'a>(decision: &'a Decision, problem: Option<&'a Hold>) -> Option<&'a str> {
    match decision {
        Decision::Refused(why) => Some(why),
        Decision::None | Decision::Waits(_) | Decision::RollsBack(_) => problem
            .filter(|hold| hold.reason == GateReason::RollbackRefused)
            .map(|hold| hold.message.as_str()),
    }
}

/// Returns the conditions of `bootstrap` with condition `Rollback` for its next record.
pub(super) fn shown(
    context: &Context<'_>,
    conditions: Vec<Condition>,
    refused: Option<&str>,
    (bootstrap, record): (&ClusterBootstrap, &UpgradeRecord),
) -> Vec<Condition> {
    let is_rolled_back = record.outcome == Some(Outcome::RolledBack);
    let staying = is_rolled_back
        .then(|| staying(context.facts, bootstrap))
        .flatten();
    let staying = staying.unwrap_or_default();
    with_rollback(conditions, record, refused, &staying, context.began.now)
}

/// Returns the packages that differ from the snapshot; `None` if that is not known.
fn staying(found: &Facts, bootstrap: &ClusterBootstrap) -> Option<Vec<(String, Stays)>> {
    let snapshot = Snapshot::in_bootstrap(bootstrap).ok().flatten()?;
    let policy = bootstrap.spec.upgrade_policy.as_ref();
    let (name, catalogue) = (&found.owner.name, &found.catalogue);
    let restored = restored(name, &bootstrap.spec, &snapshot, catalogue, policy).ok()?;
    Some(restored.staying)
}

/// Warns once of annotation [`DISABLE_VERSION_CHECK`](annotation::DISABLE_VERSION_CHECK) that is still set after a cancellation: Cluster API
/// then accepts any version.
pub(super) fn warn_of_unchecked_version(context: &Context<'_>, effects: &mut Effects, decision: &Decision) {
    let facts = context.facts;
    let to = &facts.topology.version;
    let is_back = |record: &UpgradeRecord| {
        let is_cancelled = record.outcome == Some(Outcome::Cancelled) || record.rollback.is_some();
        is_cancelled && same(&record.to, to)
    };
    let is_cancelled = *decision != Decision::None || facts.record().is_some_and(is_back);
    let annotations = facts.cluster.annotations();
    let is_unchecked = is_cancelled && annotations.contains_key(annotation::DISABLE_VERSION_CHECK);
    if is_unchecked && !effects.local.version_unchecked {
        let note = format!(
            "the upgrade was cancelled, and annotation {} is still set on the Cluster: Cluster API accepts any change of \
             topology.version; remove the annotation",
            annotation::DISABLE_VERSION_CHECK
        );
        effects.events.push(Event::Warned(VERSION_UNCHECKED, note));
    }
    effects.local.version_unchecked = is_unchecked;
}

#[cfg(test)]
mod tests;
