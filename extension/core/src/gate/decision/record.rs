//! Conditions of a release on the fields that the records of packages and of gates have in common.

use sluice_crds::{
    lifecycle::{GATE_SCHEMA, GateRecord},
    run::{Gate, GateOverride, Hook, SCHEMA, UpgradeRecord},
};

use super::{held, said};
use crate::{
    explanation::hold_of,
    gate::hook_call::HookCall,
    reasons::{CallReason, Hold, HoldReason},
    upgrade::overrides::is_spent,
};

/// Fields that both records have. Each method returns the hold if a condition on them is not met.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordFields<'a> {
    is_known_schema: bool,
    cluster_uid: &'a str,
    observed_cluster_generation: i64,
    to: &'a str,
    gates: &'a [Gate],
}

impl<'a> From<&'a UpgradeRecord> for RecordFields<'a> {
    fn from(record: &'a UpgradeRecord) -> Self {
        Self {
            is_known_schema: record.schema == SCHEMA,
            cluster_uid: &record.cluster_uid,
            observed_cluster_generation: record.observed_cluster_generation,
            to: &record.to,
            gates: &record.gates,
        }
    }
}

impl<'a> From<&'a GateRecord> for RecordFields<'a> {
    fn from(record: &'a GateRecord) -> Self {
        Self {
            is_known_schema: record.schema == GATE_SCHEMA,
            cluster_uid: &record.cluster_uid,
            observed_cluster_generation: record.observed_cluster_generation,
            to: &record.to,
            gates: &record.gates,
        }
    }
}

impl RecordFields<'_> {
    pub(super) fn of_another_schema(self) -> Option<Hold<HoldReason>> {
        (!self.is_known_schema).then(|| said(CallReason::RecordSchemaUnknown))
    }

    pub(super) fn of_another_cluster(self, call: &HookCall<'_>) -> Option<Hold<HoldReason>> {
        (self.cluster_uid != call.uid).then(|| said(CallReason::RecordUIDMismatch))
    }

    pub(super) fn behind_the_cluster(self, call: &HookCall<'_>) -> Option<Hold<HoldReason>> {
        (self.observed_cluster_generation < call.generation).then(|| said(CallReason::ClusterNotObserved))
    }

    // Cluster API would continue without the edits since, such as the entry that the machines of the version are made of.
    pub(super) fn ahead_of_the_call(self, call: &HookCall<'_>) -> Option<Hold<HoldReason>> {
        (call.generation < self.observed_cluster_generation).then(|| said(CallReason::CallOutdated))
    }

    pub(super) fn of_another_target(self, call: &HookCall<'_>) -> Option<Hold<HoldReason>> {
        let compared = matches!(call.hook, Hook::BeforeClusterCreate | Hook::BeforeClusterUpgrade);
        (compared && self.to != call.version).then(|| {
            held(
                CallReason::RecordTargetMismatch,
                format!("waiting for Sluice to observe target {}", call.version),
            )
        })
    }

    pub(super) fn unplanned(self, call: &HookCall<'_>) -> Option<Hold<HoldReason>> {
        let listed = self.gates.iter().any(|gate| answers(gate, call));
        (!listed).then(|| {
            held(
                CallReason::VersionNotPlanned,
                format!("{} is not the next version of the upgrade", call.gate_version()),
            )
        })
    }

    pub(super) fn closed(self, call: &HookCall<'_>) -> Option<Hold<HoldReason>> {
        let mut gates = self.gates.iter();
        let gate = gates.find(|gate| answers(gate, call) && !gate.open)?;
        let unknown = || held(CallReason::GateClosed, gate.message.clone());
        Some(hold_of(gate).map_or_else(unknown, Hold::of_call))
    }
}

/// Returns the override without which the gate of a call would be closed. A spent one has kept it open because the step was made.
pub(in crate::gate) fn override_of<'a>(
    record: &'a UpgradeRecord,
    call: &HookCall<'_>,
) -> Option<&'a GateOverride> {
    let gate = record.gates.iter().find(|gate| answers(gate, call))?;
    let by = gate.overridden_by.as_ref().filter(|_| gate.open)?;
    (!is_spent(record, &by.uid)).then_some(by)
}

fn answers(gate: &Gate, call: &HookCall<'_>) -> bool {
    // A deletion has no version.
    let of_version = call.hook == Hook::BeforeClusterDelete || gate.version == call.gate_version();
    gate.hook == call.hook && of_version
}
