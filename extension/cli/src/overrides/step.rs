//! The step of an upgrade that waits at a gate.

use sluice_core::{
    reasons::{GateReason, Overridable},
    upgrade::overrides::gate_of,
};
use sluice_crds::{
    lifecycle::OverrideTarget,
    run::{Gate, GateOverride, UpgradeRecord},
};

use crate::arguments::GateArg;

/// Reason why no override opens a gate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotHeld {
    /// The record is closed.
    #[error("has no upgrade under way")]
    Ended,
    /// The record has no such gate.
    #[error("does not wait at gate {0}")]
    NoGate(&'static str),
    /// The gate is open.
    #[error("is not held at gate {0}: the gate is open")]
    Open(&'static str),
    /// Another override has opened the gate.
    #[error("is not held at gate {0}: UpgradeOverride {1} has opened it")]
    Overridden(&'static str, String),
    /// The gate is held by something else than packages.
    #[error("is held at gate {0} by {1}, which no override passes: {2}")]
    NotOverridable(&'static str, String, String),
    /// The gate is held by values, or by the workload cluster.
    #[error("is held at gate {0} by {1}, which only --all-packages passes: {2}")]
    NotOfPackages(&'static str, String, String),
    /// The release of the step is not known.
    #[error("is held at gate {0}, but the release of the step is not known")]
    ReleaseUnknown(&'static str),
}

/// Returns the step that waits at a gate, if an override passes what holds it.
///
/// # Errors
/// The reason why no override opens the gate.
pub(super) fn held(record: &UpgradeRecord, gate: GateArg, every: bool) -> Result<OverrideTarget, NotHeld> {
    match gate {
        GateArg::ControlPlane | GateArg::Workers => of_hooks(record, gate, every),
        GateArg::Machines => of_swap(record, every),
    }
}

/// Returns the step whose hooks are held.
fn of_hooks(record: &UpgradeRecord, gate: GateArg, every: bool) -> Result<OverrideTarget, NotHeld> {
    let name = gate.as_str();
    if record.outcome.is_some() {
        return Err(NotHeld::Ended);
    }
    let is_of_gate = |of: &&Gate| gate_of(of.hook) == Some(gate.gate());
    let gates: Vec<&Gate> = record.gates.iter().filter(is_of_gate).collect();
    let closed = || gates.iter().filter(|gate| !gate.open);
    // The gates of a later step may be listed already, with the hold of the step before.
    let waits = closed()
        .find(|gate| overridable(&gate.reason) != Overridable::Never)
        .or_else(|| closed().next());
    let Some(waits) = waits else {
        let by = gates.iter().find_map(|gate| gate.overridden_by.as_ref());
        return Err(if gates.is_empty() {
            NotHeld::NoGate(name)
        } else {
            open(name, by)
        });
    };
    check(name, (&waits.reason, &waits.message), every)?;
    let release = record.tkr.clone().ok_or(NotHeld::ReleaseUnknown(name))?;
    Ok(OverrideTarget {
        kubernetes_version: waits.version.clone(),
        release,
    })
}

/// Returns the replacement of machines that is held.
fn of_swap(record: &UpgradeRecord, every: bool) -> Result<OverrideTarget, NotHeld> {
    let name = GateArg::Machines.as_str();
    let swap = record.swap.as_ref().ok_or(NotHeld::NoGate(name))?;
    if swap.open {
        return Err(open(name, swap.overridden_by.as_ref()));
    }
    check(name, (&swap.reason, &swap.message), every)?;
    Ok(OverrideTarget {
        kubernetes_version: swap.version.clone(),
        release: swap.to.clone(),
    })
}

fn open(gate: &'static str, by: Option<&GateOverride>) -> NotHeld {
    by.map_or(NotHeld::Open(gate), |by| {
        NotHeld::Overridden(gate, by.name.clone())
    })
}

/// Checks that an override of named packages, or of every package, passes a hold.
fn check(gate: &'static str, (reason, message): (&str, &str), every: bool) -> Result<(), NotHeld> {
    let texts = || (reason.to_owned(), message.to_owned());
    match overridable(reason) {
        Overridable::Never => {
            let (reason, message) = texts();
            Err(NotHeld::NotOverridable(gate, reason, message))
        }
        Overridable::Every if !every => {
            let (reason, message) = texts();
            Err(NotHeld::NotOfPackages(gate, reason, message))
        }
        Overridable::Every | Overridable::Package => Ok(()),
    }
}

/// Returns which overrides pass a reason. A reason that this build does not know is left to Sluice.
fn overridable(reason: &str) -> Overridable {
    GateReason::parse(reason).map_or(Overridable::Package, GateReason::overridable)
}
