//! Record of a Cluster that cannot be observed well enough to compute a new record.

use sluice_crds::run::{Hook, UpgradeRecord};

use super::swap::is_pending;
use crate::reasons::Hold;
use crate::upgrade::course::holds::is_pause;

/// Closes every gate that releases machines with `hold`, also that of a swap whose entry is not written yet. Gates after a step keep their verdict, and a closed record stays: it is about
/// completed steps. A pause stays, too: it determines the permitted writes once the Cluster is observed again.
#[must_use]
pub fn held_for(record: &UpgradeRecord, hold: &Hold) -> UpgradeRecord {
    let mut next = record.clone();
    if next.outcome.is_some() {
        return next;
    }
    if let Some(swap) = next.swap.as_mut().filter(|swap| is_pending(swap)) {
        swap.open = false;
        hold.reason.as_str().clone_into(&mut swap.reason);
        swap.message.clone_from(&hold.message);
        swap.overridden_by = None;
    }
    for gate in &mut next.gates {
        let withdrawn = matches!(
            gate.hook,
            Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade | Hook::BeforeWorkersUpgrade
        );
        let stays = if gate.open {
            !withdrawn
        } else {
            gate.hook == Hook::BeforeClusterDelete || is_pause(gate)
        };
        if !stays {
            gate.open = false;
            hold.reason.as_str().clone_into(&mut gate.reason);
            gate.message.clone_from(&hold.message);
            gate.overridden_by = None;
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use sluice_crds::run::{Gate, Outcome};

    use super::*;
    use crate::reasons::GateReason;

    #[test]
    fn no_gate_releases_machines_and_nothing_else_changes() {
        let gate = |hook, open, reason: &str| Gate {
            hook,
            version: "v1.36.3".to_owned(),
            open,
            reason: reason.to_owned(),
            message: reason.to_lowercase(),
            overridden_by: None,
        };
        let record = UpgradeRecord {
            gates: vec![
                gate(Hook::BeforeClusterUpgrade, true, ""),
                gate(Hook::BeforeControlPlaneUpgrade, false, "PackagesNotReady"),
                gate(Hook::AfterControlPlaneUpgrade, true, ""),
                gate(Hook::BeforeWorkersUpgrade, false, "StartHeldByAnnotation"),
                gate(Hook::BeforeClusterDelete, false, "UninstallInProgress"),
            ],
            ..UpgradeRecord::default()
        };
        let hold = Hold::new(GateReason::ControlPlaneKindUnreadable, "why");
        let mut wanted = record.clone();
        for gate in &mut wanted.gates[..2] {
            gate.open = false;
            gate.reason = "ControlPlaneKindUnreadable".to_owned();
            gate.message = "why".to_owned();
        }
        assert_eq!(held_for(&record, &hold), wanted);
        assert_eq!(held_for(&wanted, &hold), wanted, "the same again");
        let permits_removal = [
            Hook::BeforeClusterUpgrade,
            Hook::BeforeControlPlaneUpgrade,
            Hook::BeforeWorkersUpgrade,
        ];
        let open = UpgradeRecord {
            gates: permits_removal.map(|hook| gate(hook, true, "")).into(),
            ..UpgradeRecord::default()
        };
        let closed = held_for(&open, &hold);
        assert!(closed.gates.iter().all(|gate| !gate.open), "{closed:?}");
        let closed = UpgradeRecord {
            outcome: Some(Outcome::Completed),
            ..record
        };
        assert_eq!(held_for(&closed, &hold), closed, "what is over stays");
    }
}
