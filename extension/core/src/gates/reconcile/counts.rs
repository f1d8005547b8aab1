//! Release lag of a hop.

use sluice_crds::{lifecycle::GateRecord, run::Hook};

use super::{Context, GateCount, GateEffects};

/// Counts the time from the start of the reconcile that observed the last proof until the control plane is observed at the version.
pub(super) fn released(
    context: &Context<'_>,
    effects: &mut GateEffects,
    previous: Option<&GateRecord>,
    record: &GateRecord,
) {
    let Some(hop) = record.hop.as_deref().filter(|_| record.outcome.is_none()) else {
        effects.local.proven = None;
        return;
    };
    let is_open = |record: &GateRecord| {
        let mut gates = record.gates.iter();
        gates.any(|gate| gate.open && gate.hook == Hook::BeforeControlPlaneUpgrade && gate.version == hop)
    };
    let proven = effects.local.proven.take().filter(|(version, _)| version == hop);
    if record.released_at.is_some() {
        if let Some((_, since)) = proven {
            let lag = context.began.instant.saturating_duration_since(since);
            effects.counts.push(GateCount::Released(lag));
        }
    } else if is_open(record) {
        // For a gate that was open before this process observed it, the time of its proof is unknown.
        let opens = !previous.is_some_and(is_open);
        let now = || opens.then(|| (hop.to_owned(), context.began.instant));
        effects.local.proven = proven.or_else(now);
    }
}
