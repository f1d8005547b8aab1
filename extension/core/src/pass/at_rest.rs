//! Clusters whose upgrade is completed: whether anything is left to do for them, and when.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use kube::ResourceExt as _;
use sluice_crds::run::{ClusterBootstrap, Outcome, PackageRecord, UpgradeRecord};

use super::{Known, effects::Effects, packages::Packages, plan::Planned, validate::Validated};
use crate::{
    bootstrap::packages,
    proof::{Standing, standing},
};

/// What the packages of a Cluster at rest are planned from, as a hash, except for what is read: values and what provides them. `None`
/// where it may be on its way to something else.
fn planned_from(known: &Known<'_>, validated: &Validated, bootstrap: &ClusterBootstrap) -> Option<u64> {
    let facts = known.facts;
    let version = bootstrap.resource_version()?;
    if facts.bootstrap.as_ref()?.resource_version().as_ref() != Some(&version) {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    (version, validated.progress.stage()).hash(&mut hasher);
    for (_, package) in packages(&bootstrap.spec) {
        facts.catalogue.get(&package.ref_name).hash(&mut hasher);
    }
    Some(hasher.finish())
}

/// When to look again at a Cluster at rest of which all that is known from memory is as it was when its values were read. Until then
/// nothing is asked for it: values are read at the periodic look, and when a configuration of Sluice has written other ones.
pub(super) fn rests(
    known: &Known<'_>,
    effects: &Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
) -> Option<Duration> {
    if !validated.is_current(known.facts, bootstrap) {
        return None;
    }
    let planned_from = planned_from(known, validated, bootstrap)?;
    effects.memory.rests(planned_from, known.began.instant)
}

/// Remembers that nothing is to be done for the Cluster for this `time`.
pub(super) fn rest(
    known: &Known<'_>,
    effects: &mut Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    time: Duration,
) {
    let planned_from = planned_from(known, validated, bootstrap);
    effects.memory.rest(planned_from, known.began.instant, time);
}

impl Packages {
    /// When to look again, if the record already says that exactly these packages are proven and all is done. Packages that
    /// were edited in place concern every settled cluster at once, so each leaves them as they were until its own time.
    pub(super) fn when_completed(
        &self,
        known: &Known<'_>,
        effects: &mut Effects,
        record: Option<&UpgradeRecord>,
    ) -> Option<Duration> {
        let record =
            record.filter(|record| record.outcome == Some(Outcome::Completed) && self.problem.is_none())?;
        match standing(&record.packages, self.planned.iter().map(Planned::target)) {
            Standing::Edited => leaves_edits(known, effects),
            Standing::Proven => {
                effects.memory.clear_edits();
                Some(known.facts.settings.sync_period)
            }
            Standing::Open => {
                effects.memory.clear_edits();
                None
            }
        }
    }

    /// Whether a completed upgrade still leaves Packages as they were before they were edited in place, where one has no values.
    pub(super) fn leaves_edits(
        &self,
        known: &Known<'_>,
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
        standing(&recorded, self.planned.iter().map(Planned::target)) == Standing::Edited
            && leaves_edits(known, effects).is_some()
    }
}

fn leaves_edits(known: &Known<'_>, effects: &mut Effects) -> Option<Duration> {
    let facts = known.facts;
    let over = facts.settings.sync_period;
    effects
        .memory
        .leaves_edits(&facts.owner.uid, over, known.began.instant)
}
