//! Clusters whose upgrade is completed: whether anything is left to do for them, and when.

use std::time::Duration;

use sluice_crds::run::{Outcome, PackageRecord, UpgradeRecord};

use super::{Known, after::After, packages::Packages, plan::Planned};
use crate::proof::{Standing, standing};

impl Packages {
    /// When to look again, if the record already says that exactly these packages are proven and all is done. Packages that
    /// were edited in place concern every settled cluster at once, so each leaves them as they were until its own time.
    pub(super) fn is_settled(
        &self,
        known: &Known<'_>,
        after: &mut After,
        record: Option<&UpgradeRecord>,
    ) -> Option<Duration> {
        let record =
            record.filter(|record| record.outcome == Some(Outcome::Completed) && self.problem.is_none())?;
        match standing(&record.packages, self.planned.iter().map(Planned::target)) {
            Standing::Edited => leaves_edits(known, after),
            Standing::Proven => {
                after.memory.has_no_edits();
                Some(known.facts.settings.sync_period)
            }
            Standing::Open => {
                after.memory.has_no_edits();
                None
            }
        }
    }

    /// Whether a completed upgrade still leaves Packages as they were before they were edited in place, where one has no values.
    pub(super) fn leaves_edits(
        &self,
        known: &Known<'_>,
        after: &mut After,
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
            && leaves_edits(known, after).is_some()
    }
}

fn leaves_edits(known: &Known<'_>, after: &mut After) -> Option<Duration> {
    let facts = known.facts;
    let over = facts.settings.sync_period;
    after
        .memory
        .leaves_edits(&facts.owner.uid, over, known.began.instant)
}
