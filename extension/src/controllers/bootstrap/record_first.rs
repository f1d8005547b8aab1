//! A gate is closed before a pass writes what withdraws the proofs that it is open by: a pass may come to no end for minutes after it
//! has written.

use std::collections::HashMap;

use sluice_core::record::advance;
use sluice_crds::run::{ClusterBootstrap, Gate, Hook, UpgradeRecord};

use super::{
    Context,
    dereference::Found,
    packages::Packages,
    update_status::{lets_go, observe, own_record},
    validate::Validated,
};

/// Gates that this process may have opened, by UID of the Cluster. Its watch may not have shown them yet.
#[derive(Debug, Default)]
pub(super) struct Opened(HashMap<String, Vec<(Hook, String)>>);

impl Opened {
    /// A record is about to be written. Whether it was is known only if the API server says so.
    pub(super) fn may_be(&mut self, uid: &str, record: &UpgradeRecord) {
        let opened = self.0.entry(uid.to_owned()).or_default();
        for gate in open_gates(record) {
            if !is_among(opened, gate) {
                opened.push((gate.hook, gate.version.clone()));
            }
        }
    }

    /// A record was written.
    pub(super) fn are(&mut self, uid: &str, record: &UpgradeRecord) {
        let opened = open_gates(record).map(|gate| (gate.hook, gate.version.clone()));
        self.0.insert(uid.to_owned(), opened.collect());
    }

    /// Forgets the Cluster with this UID.
    pub(super) fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    fn of(&self, uid: &str) -> Vec<(Hook, String)> {
        self.0.get(uid).cloned().unwrap_or_default()
    }
}

/// Whether a gate of an upgrade is open that `packages`, as they are before anything is written for them, do not keep open.
pub(super) fn closes_a_gate(
    ctx: &Context,
    found: &Found,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    packages: &Packages,
) -> bool {
    let previous = own_record(found, bootstrap);
    let mut opened = ctx.opened().of(&found.owner.uid);
    let recorded = previous.into_iter().flat_map(open_gates);
    opened.extend(recorded.map(|gate| (gate.hook, gate.version.clone())));
    if opened.is_empty() {
        return false;
    }
    let next = advance(previous, &observe(found, validated, bootstrap, packages));
    let stays = |(hook, version): &(Hook, String)| {
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

fn is_among(opened: &[(Hook, String)], gate: &Gate) -> bool {
    opened
        .iter()
        .any(|(hook, version)| *hook == gate.hook && *version == gate.version)
}
