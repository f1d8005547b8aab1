//! A gate is closed before a pass writes what withdraws the proofs that it is open by: a pass may come to no end for minutes after it
//! has written.

use sluice_crds::run::{ClusterBootstrap, Gate, UpgradeRecord};

use super::{
    Context, LocalState, opening::lets_go, packages::Packages, status::observe, validate::Validated,
};
use crate::upgrade::record::advance;

impl LocalState {
    /// A record is about to be written. Whether it was is known only if the API server says so.
    pub(super) fn may_open(&mut self, record: &UpgradeRecord) {
        for gate in open_gates(record) {
            let opened = (gate.hook, gate.version.clone());
            if !self.opened.contains(&opened) {
                self.opened.push(opened);
            }
        }
    }

    /// A record was written.
    pub(super) fn has_opened(&mut self, record: &UpgradeRecord) {
        let opened = open_gates(record).map(|gate| (gate.hook, gate.version.clone()));
        self.opened = opened.collect();
    }
}

/// Whether a gate of an upgrade is open that `packages`, as they are before anything is written for them, do not keep open.
pub(super) fn closes_a_gate(
    known: &Context<'_>,
    memory: &LocalState,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    packages: &Packages,
) -> bool {
    let previous = known.facts.recorded(bootstrap);
    let recorded = previous.into_iter().flat_map(open_gates);
    let mut opened = memory.opened.clone();
    opened.extend(recorded.map(|gate| (gate.hook, gate.version.clone())));
    if opened.is_empty() {
        return false;
    }
    let next = advance(previous, &observe(known, validated, bootstrap, packages));
    let stays = |(hook, version): &(_, String)| {
        let mut gates = next.gates.iter().filter(|gate| gate.open);
        gates.any(|gate| gate.hook == *hook && gate.version == *version)
    };
    !opened.iter().all(stays)
}

/// The gates that the control plane or workers are let go by. A closed record is about steps that were made.
fn open_gates(record: &UpgradeRecord) -> impl Iterator<Item = &Gate> {
    let gates = record.gates.iter().filter(|gate| lets_go(gate));
    gates.filter(|_| record.outcome.is_none())
}
