//! Clusters whose upgrade is completed: whether anything is left to do for them, and when.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use kube::ResourceExt as _;
use sluice_crds::run::{ClusterBootstrap, Outcome, PackageRecord, PackageState, UpgradeRecord};

use super::{
    Context, effects::Effects, local_state::PlannedFrom, packages::Packages, plan::Planned,
    status::since_written, validate::Validated,
};
use crate::{
    packages::bootstrap::packages,
    proof::{ProofStatus, proof_status},
    reasons::{GateReason, Hold},
    schedule::spread_back,
    upgrade::record::is_ready,
};

/// So long after its status was written a settled Cluster stays hot whose packages are deployed again: mostly they are proven soon.
const HOT_FOR: Duration = Duration::from_mins(1);

/// What the packages of a Cluster at rest are planned from, except for what is read: values and what provides them. `None`
/// where it may be on its way to something else.
fn planned_from(
    known: &Context<'_>,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
) -> Option<PlannedFrom> {
    let facts = known.facts;
    let version = bootstrap.resource_version()?;
    if facts.bootstrap.as_ref()?.resource_version().as_ref() != Some(&version) {
        return None;
    }
    let (mut own, mut catalogue) = (DefaultHasher::new(), DefaultHasher::new());
    (version, validated.progress.stage()).hash(&mut own);
    for (_, package) in packages(&bootstrap.spec) {
        facts.catalogue.get(&package.ref_name).hash(&mut catalogue);
    }
    Some(PlannedFrom {
        own: own.finish(),
        catalogue: catalogue.finish(),
    })
}

/// How long nothing is to be done for a Cluster at rest of which all that is known from memory is as it was when its values were read.
/// Until then nothing is asked for it: values are read at the periodic look, and when a configuration of Sluice has written other ones.
pub(super) fn rests(
    known: &Context<'_>,
    effects: &mut Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
) -> Option<Duration> {
    if !validated.is_current(known.facts, bootstrap) {
        return None;
    }
    let planned_from = planned_from(known, validated, bootstrap)?;
    let is_settled = known.facts.recorded(bootstrap).is_some_and(is_settled);
    let rests = effects.memory.rests(planned_from, is_settled);
    rests.then(|| until_drift_check(known, effects)).flatten()
}

/// Whether an upgrade is completed, and each of its packages is proven still, or has failed since: only a look shows another thing.
fn is_settled(record: &UpgradeRecord) -> bool {
    let is_settled = |package| is_ready(package) || has_failed(package);
    record.outcome == Some(Outcome::Completed) && record.packages.iter().all(is_settled)
}

fn has_failed(package: &PackageRecord) -> bool {
    package.state == PackageState::Failed
}

fn until_drift_check(known: &Context<'_>, effects: &mut Effects) -> Option<Duration> {
    let facts = known.facts;
    effects
        .memory
        .until_drift_check(&facts.owner.uid, facts.settings.sync_period, known.began.instant)
}

/// When a settled Cluster is looked at again whose `problem` an operator has to end, once for all Clusters: the workload is not asked
/// meanwhile, and nothing is planned. Its record is closed, and any other version is held by that.
pub(super) fn waits_for_operator(
    known: &Context<'_>,
    effects: &mut Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    problem: Option<&Hold>,
) -> Option<Duration> {
    let facts = known.facts;
    let is_shared = |hold: &Hold| {
        matches!(
            hold.reason,
            GateReason::AddonsManagerRuns | GateReason::WebhookUnavailable
        )
    };
    let is_completed = |record: &UpgradeRecord| record.outcome == Some(Outcome::Completed);
    let waits = problem.is_some_and(is_shared)
        && validated.is_current(facts, bootstrap)
        && facts.recorded(bootstrap).is_some_and(is_completed);
    let period = facts.settings.sync_period.length;
    let removals = &mut effects.memory.removals;
    let again = removals.wait(waits, known.began.instant, period)?;
    effects.memory.wake();
    effects.memory.forget_observations();
    effects.disconnect = true;
    Some(spread_back(&facts.owner.uid, again))
}

/// Remembers that nothing is to be done for the Cluster before its next look.
pub(super) fn rest(
    known: &Context<'_>,
    effects: &mut Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
) {
    let planned_from = planned_from(known, validated, bootstrap);
    effects.memory.rest(planned_from);
}

/// What is to be done for the packages of a Cluster whose values were read.
pub(super) enum AtRest {
    /// Nothing for this time.
    For(Duration),
    /// They are to be looked at.
    LookIsDue,
    /// They are not those that were proven, or not all can be planned.
    No,
}

/// Whether packages of a completed upgrade may be proven in a moment.
fn is_deployed_again(known: &Context<'_>, record: &UpgradeRecord) -> bool {
    let written = since_written(known).is_some_and(|written| written < HOT_FOR);
    written && !record.packages.iter().any(has_failed)
}

impl Packages {
    /// What is to be done, by the record and by the time of the last look. Packages that were edited in place concern every settled
    /// cluster at once, so each leaves them as they were until its next look.
    pub(super) fn at_rest(
        &self,
        known: &Context<'_>,
        effects: &mut Effects,
        record: Option<&UpgradeRecord>,
    ) -> AtRest {
        let Some(record) = record.filter(|record| record.outcome == Some(Outcome::Completed)) else {
            effects.memory.forget_drift_check();
            return AtRest::No;
        };
        if self.problem.is_some() {
            return AtRest::No;
        }
        let standing = proof_status(&record.packages, self.planned.iter().map(Planned::target));
        let (left, is_hot) = (until_drift_check(known, effects), effects.memory.is_hot());
        match (standing, left) {
            (ProofStatus::Open, _) | (ProofStatus::Edited, None) => AtRest::No,
            (ProofStatus::Unproven, _) if is_hot && is_deployed_again(known, record) => AtRest::No,
            (ProofStatus::Unproven, _) if is_hot => AtRest::LookIsDue,
            (ProofStatus::Proven | ProofStatus::Unproven | ProofStatus::Edited, Some(left)) => {
                AtRest::For(left)
            }
            (ProofStatus::Proven | ProofStatus::Unproven, None) => AtRest::LookIsDue,
        }
    }

    /// Whether a completed upgrade still leaves Packages as they were before they were edited in place, where one has no values.
    pub(super) fn leaves_edits(
        &self,
        known: &Context<'_>,
        effects: &mut Effects,
        record: Option<&UpgradeRecord>,
    ) -> bool {
        let completed = record.filter(|record| record.outcome == Some(Outcome::Completed));
        let Some(record) = completed.filter(|_| self.problem.is_some()) else {
            return false;
        };
        let is_planned = |recorded: &&PackageRecord| {
            self.planned
                .iter()
                .any(|planned| planned.target().name == recorded.name)
        };
        let recorded: Vec<_> = record.packages.iter().filter(is_planned).cloned().collect();
        proof_status(&recorded, self.planned.iter().map(Planned::target)) == ProofStatus::Edited
            && until_drift_check(known, effects).is_some()
    }
}
