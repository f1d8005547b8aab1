//! Write of a status, with a check that the API server kept all fields.

use sluice_crds::run::{ClusterBootstrap, ClusterBootstrapStatus, PackageRecord, UpgradeRecord};

use crate::{
    events::Event,
    reasons::{GateReason, Hold},
    reconcile::cluster::{Context, Server, Step, context::typed, effects::Effects, write::Write},
};

/// Writes the status, and reports fields that the API server dropped. Returns the stored record.
pub(super) fn write(
    context: &Context<'_>,
    effects: &mut Effects,
    bootstrap: &ClusterBootstrap,
    status: ClusterBootstrapStatus,
) -> Step<Option<UpgradeRecord>> {
    let sent = status.upgrade.clone();
    let shown = is_shown(&status);
    let next = ClusterBootstrap {
        status: Some(status),
        ..bootstrap.clone()
    };
    if let Some(record) = &sent {
        effects.local.may_open(record);
    }
    let written = context.write(Write::status(&next, "record or conditions differ"))?;
    let written: ClusterBootstrap = typed(Server::Management, written)?;
    if let Some(record) = &sent {
        effects.local.has_opened(record);
    }
    effects.local.written = Some(context.began.instant);
    effects.note = Some(None);
    let drops_what_is_shown = shown != written.status.as_ref().map_or_else(Default::default, is_shown);
    let kept = written.status.and_then(|status| status.upgrade);
    if drops_what_is_shown || kept.as_ref().is_none_or(|kept| drops_fields(sent.as_ref(), kept)) {
        let hold = Hold::new(
            GateReason::CRDOutdated,
            "the ClusterBootstrap definition is older than this release and drops fields of its status; apply its CRDs",
        );
        effects.note = Some(Some(hold.clone()));
        effects.events.push(Event::Held(hold));
    }
    Ok(kept)
}

/// Returns which summary fields are set. A definition that drops them leaves columns empty without another sign.
fn is_shown(status: &ClusterBootstrapStatus) -> [bool; 5] {
    [
        status.phase.is_some(),
        status.waiting_for.is_some(),
        status.since.is_some(),
        status.held.is_some(),
        !status.history.is_empty(),
    ]
}

/// Whether the definition drops fields that decisions depend on.
pub(super) fn drops_fields(sent: Option<&UpgradeRecord>, kept: &UpgradeRecord) -> bool {
    let Some(sent) = sent else { return false };
    let has = |package: &PackageRecord| {
        (
            package.proven_readiness.is_some(),
            package.first_seen_run.is_some(),
            package.repairs,
        )
    };
    let same = sent.packages.iter().map(has).eq(kept.packages.iter().map(has));
    let of_record = |record: &UpgradeRecord| {
        (
            record.begun_at.is_some(),
            record.settling_since.is_some(),
            record.swap.is_some(),
            record.supervisor.is_some(),
            record.kapp_controller.is_some(),
            record.rollback.is_some(),
        )
    };
    of_record(sent) != of_record(kept) || !same
}
