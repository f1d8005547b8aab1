//! Rest of Clusters with a completed upgrade: whether work is left, and when.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use kube::ResourceExt as _;
use sluice_crds::run::{ClusterBootstrap, PackageRecord, PackageState, UpgradeRecord};

use super::{
    Context, Facts, effects::Effects, local_state::PlannedFrom, management, packages::Packages,
    plan::Planned, status::since_written, validate::Validated,
};
use crate::{
    packages::bootstrap::packages,
    proof::{ProofStatus, proof_status},
    reasons::{GateReason, Hold},
    schedule::spread_back,
    upgrade::{record::is_ready, swap::has_ended},
};

/// Time after its last status write during which a settled Cluster stays hot while packages redeploy: most are proven soon.
const HOT_FOR: Duration = Duration::from_mins(1);

/// Returns hashes of the cached inputs that the packages of a Cluster at rest are planned from, without values and their providers.
/// `None` if the ClusterBootstrap may be changing.
fn planned_from(
    context: &Context<'_>,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
) -> Option<PlannedFrom> {
    let facts = context.facts;
    let version = bootstrap.resource_version()?;
    if facts.bootstrap.as_ref()?.resource_version().as_ref() != Some(&version) {
        return None;
    }
    let mut catalogue = DefaultHasher::new();
    for (_, package) in packages(&bootstrap.spec) {
        facts.catalogue.get(&package.ref_name).hash(&mut catalogue);
    }
    Some(PlannedFrom {
        own: own(facts, &version, validated),
        catalogue: catalogue.finish(),
    })
}

/// Returns the hash of the ClusterBootstrap in this version.
fn own(facts: &Facts, version: &str, validated: &Validated) -> u64 {
    let mut own = DefaultHasher::new();
    // The label decides who installs kapp-controller, and changes no generation.
    let is_labelled = management::is_labelled(&facts.cluster);
    (version, validated.progress.stage(), is_labelled).hash(&mut own);
    own.finish()
}

/// Returns the time for which a Cluster rests, if its cached inputs are unchanged since its values were read. Until then Sluice reads
/// nothing for it: it reads values at the drift check, and when a configuration of Sluice has written other values.
pub(super) fn rests(
    context: &Context<'_>,
    effects: &mut Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
) -> Option<Duration> {
    if !validated.is_current(context.facts, bootstrap) {
        return None;
    }
    let planned_from = planned_from(context, validated, bootstrap)?;
    let is_settled = context.facts.recorded(bootstrap).is_some_and(is_settled);
    let rests = effects.local.rests(planned_from, is_settled);
    rests.then(|| until_drift_check(context, effects)).flatten()
}

/// Whether an upgrade is completed and each package is still proven, or has failed since: only a drift check shows a change.
fn is_settled(record: &UpgradeRecord) -> bool {
    let is_settled = |package| is_ready(package) || has_failed(package);
    has_ended(record) && record.packages.iter().all(is_settled)
}

fn has_failed(package: &PackageRecord) -> bool {
    package.state == PackageState::Failed
}

fn until_drift_check(context: &Context<'_>, effects: &mut Effects) -> Option<Duration> {
    let facts = context.facts;
    effects.local.until_drift_check(
        &facts.owner.uid,
        facts.settings.sync_period,
        context.began.instant,
    )
}

/// Returns the requeue delay of a settled Cluster with a `problem` that an operator must fix once for all Clusters. Until then Sluice
/// reads nothing from the workload and plans nothing. The closed record holds any other version.
pub(super) fn waits_for_operator(
    context: &Context<'_>,
    effects: &mut Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    problem: Option<&Hold>,
) -> Option<Duration> {
    let facts = context.facts;
    let is_shared = |hold: &Hold| {
        matches!(
            hold.reason,
            GateReason::AddonsManagerRuns | GateReason::WebhookUnavailable
        )
    };
    let waits = problem.is_some_and(is_shared)
        && validated.is_current(facts, bootstrap)
        && facts.recorded(bootstrap).is_some_and(has_ended);
    let period = facts.settings.sync_period.length;
    let removals = &mut effects.local.removals;
    let again = removals.wait(waits, context.began.instant, period)?;
    effects.local.end_rest();
    effects.local.forget_observations();
    effects.disconnect = true;
    Some(spread_back(&facts.owner.uid, again))
}

/// Notes that the Cluster needs no work before its next drift check.
pub(super) fn rest(
    context: &Context<'_>,
    effects: &mut Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
) {
    let planned_from = planned_from(context, validated, bootstrap);
    effects.local.rest(planned_from);
}

/// Notes that the ClusterBootstrap of a Cluster at rest has got `version` only by conditions that Sluice wrote: nothing is planned from
/// them.
pub(super) fn rest_at(
    context: &Context<'_>,
    effects: &mut Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    version: &str,
) {
    let planned_from = planned_from(context, validated, bootstrap);
    let planned_from = planned_from.map(|before| PlannedFrom {
        own: own(context.facts, version, validated),
        ..before
    });
    effects.local.rest(planned_from);
}

/// Work due for the packages of a Cluster whose values were read.
pub(super) enum AtRest {
    /// No work for this time.
    For(Duration),
    /// A drift check is due.
    DriftCheckDue,
    /// The packages differ from the proven ones, or not all can be planned.
    No,
}

/// Whether packages of a completed upgrade may be proven soon.
fn is_deployed_again(context: &Context<'_>, record: &UpgradeRecord) -> bool {
    let written = since_written(context).is_some_and(|written| written < HOT_FOR);
    written && !record.packages.iter().any(has_failed)
}

impl Packages {
    /// Returns the work due, by the record and the time of the last drift check. Packages edited in place affect every settled Cluster at
    /// once, so each Cluster ignores them until its next drift check.
    pub(super) fn at_rest(
        &self,
        context: &Context<'_>,
        effects: &mut Effects,
        record: Option<&UpgradeRecord>,
    ) -> AtRest {
        let Some(record) = record.filter(|record| has_ended(record)) else {
            effects.local.forget_drift_check();
            return AtRest::No;
        };
        if self.problem.is_some() {
            return AtRest::No;
        }
        let status = proof_status(&record.packages, self.planned.iter().map(Planned::target));
        let (left, is_hot) = (until_drift_check(context, effects), effects.local.is_hot());
        match (status, left) {
            (ProofStatus::Open, _) | (ProofStatus::Edited, None) => AtRest::No,
            (ProofStatus::Unproven, _) if is_hot && is_deployed_again(context, record) => AtRest::No,
            (ProofStatus::Unproven, _) if is_hot => AtRest::DriftCheckDue,
            (ProofStatus::Proven | ProofStatus::Unproven | ProofStatus::Edited, Some(left)) => {
                AtRest::For(left)
            }
            (ProofStatus::Proven | ProofStatus::Unproven, None) => AtRest::DriftCheckDue,
        }
    }

    /// Whether a completed upgrade still ignores Packages edited in place, while one of them has no values.
    pub(super) fn leaves_edits(
        &self,
        context: &Context<'_>,
        effects: &mut Effects,
        record: Option<&UpgradeRecord>,
    ) -> bool {
        let completed = record.filter(|record| has_ended(record));
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
            && until_drift_check(context, effects).is_some()
    }
}
