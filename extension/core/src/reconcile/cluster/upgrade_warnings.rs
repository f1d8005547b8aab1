//! Warnings about objects of the workload cluster, read once for each step while its first gate is held. They hold nothing.

use jiff::Timestamp;
use sluice_crds::run::{Condition, Hook, UpgradeRecord};

use super::{Context, Interrupt, Read, ReadResult, Step, effects::Effects, packages::Packages};
use crate::{
    events::Event,
    summary::conditions::{UPGRADE_WARNINGS, with_upgrade_warnings},
    upgrade_plan::workload::{WorkloadObjects, summary},
    version::same,
};

/// Warnings for a step of the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Warnings {
    /// Kubernetes version of the step.
    hop: String,
    /// Reason of the first warning, and the text of all of them.
    said: Option<(&'static str, String)>,
}

/// Reads the workload cluster for warnings, unless this process has done so for the step. A failed read is not repeated.
///
/// # Errors
/// The missing read.
pub(super) fn check(
    context: &Context<'_>,
    effects: &mut Effects,
    is_paused: bool,
    record: &UpgradeRecord,
    packages: &Packages,
) -> Step<()> {
    let Some(hop) = underway(record) else {
        effects.local.warnings = None;
        return Ok(());
    };
    // The first record of a step does not wait for the lists, and neither does a gate that opens.
    let recorded = context.facts.record();
    let is_held = recorded.is_some_and(|recorded| holds_step(recorded, hop)) && holds_step(record, hop);
    let is_reached = packages.connected && packages.reach.uid().is_some();
    let known = context.local.warnings.as_ref();
    if !is_held || !is_reached || is_paused || known.is_some_and(|known| known.hop == hop) {
        return Ok(());
    }
    let said = match context.answer(Read::WorkloadObjects) {
        Ok(ReadResult::WorkloadObjects(objects)) => summary(objects, hop),
        Err(stop @ Interrupt::Need(_)) => return Err(stop),
        Ok(_) | Err(_) => summary(&WorkloadObjects::default().incomplete(), hop),
    };
    if let Some((_, text)) = &said {
        effects.events.push(Event::Warned(UPGRADE_WARNINGS, text.clone()));
    }
    effects.local.warnings = Some(Box::new(Warnings {
        hop: hop.to_owned(),
        said,
    }));
    Ok(())
}

/// Returns the conditions with those warnings that are about the step of the next record. The condition of an earlier process stays until
/// the step ends.
pub(super) fn shown(
    conditions: Vec<Condition>,
    warnings: Option<&Warnings>,
    (previous, next): (Option<&UpgradeRecord>, &UpgradeRecord),
    now: Timestamp,
) -> Vec<Condition> {
    let hop = underway(next);
    let said = match warnings.filter(|warnings| hop == Some(warnings.hop.as_str())) {
        Some(warnings) => warnings.said.as_ref(),
        None if hop.is_some() && previous.and_then(underway) == hop => return conditions,
        None => None,
    };
    let said = said.map(|(reason, text)| (*reason, text.as_str()));
    with_upgrade_warnings(conditions, said, now)
}

/// Returns the version that the control plane takes in the upgrade of a record, if it is not over.
fn underway(record: &UpgradeRecord) -> Option<&str> {
    record.hop.as_deref().filter(|_| record.outcome.is_none())
}

/// Whether a record holds the first gate of a step.
fn holds_step(record: &UpgradeRecord, hop: &str) -> bool {
    let mut gates = record.gates.iter();
    gates.any(|gate| gate.hook == Hook::BeforeClusterUpgrade && same(&gate.version, hop) && !gate.open)
}

#[cfg(test)]
mod tests;
