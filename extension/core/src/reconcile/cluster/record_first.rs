//! Closing of gates before writes that withdraw their proofs: after such a write, a reconcile may not complete for minutes.

use sluice_crds::run::{ClusterBootstrap, Gate, UpgradeRecord};

use super::{
    Context, LocalState, opening::releases_step, packages::Packages, status::observe, validate::Validated,
};
use crate::upgrade::record::advance;

impl LocalState {
    /// Notes the open gates of a record before its write. Only a response of the API server confirms the write.
    pub(super) fn may_open(&mut self, record: &UpgradeRecord) {
        for gate in open_gates(record) {
            let opened = (gate.hook, gate.version.clone());
            if !self.opened.contains(&opened) {
                self.opened.push(opened);
            }
        }
    }

    /// Returns the local state after a rollback of the API server: that of a new process, except for the gates that this one may have opened.
    /// The cache of a new process shows them.
    pub(super) fn after_rollback(&mut self) -> Self {
        let mut local = Self::default();
        local.opened = std::mem::take(&mut self.opened);
        local
    }

    /// Adds the gates that another local state of this process may have opened.
    pub(super) fn may_also_have_opened(&mut self, other: Self) {
        for opened in other.opened {
            if !self.opened.contains(&opened) {
                self.opened.push(opened);
            }
        }
    }

    /// Notes the open gates of a written record.
    pub(super) fn has_opened(&mut self, record: &UpgradeRecord) {
        let opened = open_gates(record).map(|gate| (gate.hook, gate.version.clone()));
        self.opened = opened.collect();
    }
}

/// Whether an upgrade has an open gate that `packages`, before any writes, do not keep open.
pub(super) fn closes_a_gate(
    context: &Context<'_>,
    local: &LocalState,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    packages: &Packages,
) -> bool {
    let previous = context.facts.recorded(bootstrap);
    let recorded = previous.into_iter().flat_map(open_gates);
    let mut opened = local.opened.clone();
    opened.extend(recorded.map(|gate| (gate.hook, gate.version.clone())));
    if opened.is_empty() {
        return false;
    }
    let next = advance(previous, &observe(context, validated, bootstrap, packages));
    let stays = |(hook, version): &(_, String)| {
        let mut gates = next.gates.iter().filter(|gate| gate.open);
        gates.any(|gate| gate.hook == *hook && gate.version == *version)
    };
    !opened.iter().all(stays)
}

/// Returns the open gates that release the control plane or workers. A record with an outcome covers completed steps only.
fn open_gates(record: &UpgradeRecord) -> impl Iterator<Item = &Gate> {
    let gates = record.gates.iter().filter(|gate| releases_step(gate));
    gates.filter(|_| record.outcome.is_none())
}
