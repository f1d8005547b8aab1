//! Gate of a swap: whether the entry of another release may be written, and whether its machines are in place.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::{
    lifecycle::OverriddenGate,
    run::{GateOverride, Swap, UpgradeRecord},
};

use super::{Observed, Packages, bootstrap_pause, holds};
use crate::{
    reasons::{GateReason, Hold},
    upgrade::{
        course::{self, ALL, Draft, Judged as _},
        hop::Progress,
        overrides::{Passed, first_that},
        swap::SwapRequest,
    },
    version::same,
};

/// Whether the entry of a swap is still to be written.
#[must_use]
pub fn is_pending(swap: &Swap) -> bool {
    swap.written_at.is_none() && !is_kept(swap)
}

/// Whether the record permits the entry of another release, which is not written yet.
#[must_use]
pub fn opens_swap(record: &UpgradeRecord) -> bool {
    record.outcome.is_none()
        && record
            .swap
            .as_ref()
            .is_some_and(|swap| swap.open && is_pending(swap))
}

/// Whether `next` finds the machines of a swap replaced that `previous` still waited for.
#[must_use]
pub fn ends_swap(previous: Option<&UpgradeRecord>, next: &UpgradeRecord) -> bool {
    let waits = |swap: &Swap| swap.reason == GateReason::ReplacingMachines.as_str() || is_pending(swap);
    let waited = previous.is_none_or(|previous| previous.swap.as_ref().is_some_and(waits));
    waited
        && next
            .swap
            .as_ref()
            .is_some_and(|swap| swap.written_at.is_some() && !waits(swap))
}

/// Whether a swap keeps the machines.
fn is_kept(swap: &Swap) -> bool {
    swap.reason == GateReason::MachinesKept.as_str()
}

/// Whether no machine of a swap is left to be replaced, and the packages have settled since.
pub(super) fn is_over(swap: &Swap) -> bool {
    is_kept(swap) || (swap.written_at.is_some() && swap.reason.is_empty())
}

/// Returns the swap of an open record.
pub(super) fn next(
    previous: Option<&UpgradeRecord>,
    packages: &Packages<'_>,
    progress: &Progress,
    record: &Draft,
    begins: bool,
) -> Option<Swap> {
    let seen = packages.seen;
    let before = previous
        .filter(|_| !begins)
        .and_then(|record| record.swap.as_ref());
    match &seen.swap.request {
        Some(request) if request.replaces() => {
            let (hold, overridden_by) = hold(previous, packages, progress, request);
            Some(Swap {
                overridden_by,
                ..swap(request, hold)
            })
        }
        Some(request) => kept(previous, before, request, record, begins),
        None => {
            let before = before?;
            written(before, packages, record).or_else(|| interrupted(before, seen, progress))
        }
    }
}

/// Returns a pending swap whose request cannot be determined now: its release or the version of the control plane is not known.
fn interrupted(before: &Swap, seen: &Observed<'_>, progress: &Progress) -> Option<Swap> {
    let is_of_target = is_pending(before) && same(&before.version, seen.cluster.topology_version);
    let hold = seen
        .tkr
        .err()
        .cloned()
        .or_else(|| course::holds::control_plane(progress));
    let hold = hold.filter(|_| is_of_target)?;
    let closed = Swap {
        overridden_by: None,
        ..before.clone()
    };
    Some(with(closed, Some(hold)))
}

fn swap(request: &SwapRequest, hold: Option<Hold>) -> Swap {
    let (version, from, to) = (request.version.clone(), request.from.clone(), request.to.clone());
    let swap = Swap {
        version,
        from,
        to,
        ..Swap::default()
    };
    with(swap, hold)
}

/// Returns a swap that waits for `hold`, or for nothing.
fn with(swap: Swap, hold: Option<Hold>) -> Swap {
    let (reason, message) = hold.map_or_else(Default::default, |hold| {
        (hold.reason.as_str().to_owned(), hold.message)
    });
    Swap {
        open: swap.written_at.is_some() || reason.is_empty(),
        reason,
        message,
        ..swap
    }
}

/// Returns the hold of an entry that is still to be written, or the override without which it would be held. An annotation that holds the
/// start of an upgrade holds it at any time.
fn hold(
    previous: Option<&UpgradeRecord>,
    packages: &Packages<'_>,
    progress: &Progress,
    request: &SwapRequest,
) -> (Option<Hold>, Option<GateOverride>) {
    let seen = packages.seen;
    let course = previous.map(Into::into);
    let held = |passed: Passed<'_>| {
        let bootstrap_pause = bootstrap_pause(seen.bootstrap.paused);
        course::holds::pause(course, progress, &seen.cluster, bootstrap_pause)
            .or_else(|| seen.cluster.start_held.then(course::holds::start_held))
            .or_else(|| holds::inputs(seen, progress, passed))
            .or_else(|| passed.left(course::holds::workload(&seen.workload, false, seen.now)))
            .or_else(|| holds::packages(packages.judged, ALL, passed))
            .or_else(|| seen.swap.hold.clone())
    };
    let Some(objection) = held(Passed::NONE) else {
        return (None, None);
    };
    let overrides = packages.overrides().filter(|by| {
        by.gate == OverriddenGate::Machines && by.version == request.version && by.release == request.to
    });
    let before = previous.and_then(|record| record.swap.as_ref()?.overridden_by.as_ref());
    match first_that(overrides, before, |by| held(Passed(Some(by))).is_none()) {
        Some(by) => (None, Some(by)),
        None => (Some(objection), None),
    }
}

/// Returns the swap of a Cluster whose packages follow the label and whose machines stay. It is reported for the upgrade in which the
/// release has changed.
fn kept(
    previous: Option<&UpgradeRecord>,
    before: Option<&Swap>,
    request: &SwapRequest,
    record: &Draft,
    begins: bool,
) -> Option<Swap> {
    let release = previous.and_then(|previous| previous.tkr.as_deref());
    let is_other = begins && release.is_some_and(|release| release != request.to);
    let stays = before.is_some_and(|before| before.to == request.to);
    let is_same_version = record.from.as_deref().is_some_and(|from| same(from, &record.to));
    let why = request
        .kept
        .clone()
        .filter(|_| (is_other || stays) && is_same_version)?;
    let from = match before.filter(|_| stays) {
        Some(before) => before.from.clone(),
        None => release.unwrap_or_default().to_owned(),
    };
    Some(Swap {
        from,
        ..swap(request, Some(Hold::new(GateReason::MachinesKept, why)))
    })
}

/// Returns the swap whose entry was written; `None` if its release is not requested any more.
fn written(before: &Swap, packages: &Packages<'_>, record: &Draft) -> Option<Swap> {
    let seen = packages.seen;
    let is_written = !is_kept(before)
        && seen.swap.made_of.as_deref() == Some(before.to.as_str())
        && same(&before.version, seen.cluster.topology_version);
    if !is_written {
        return None;
    }
    let written_at = before.written_at.clone().or(Some(Time(seen.now)));
    let outdated = seen.swap.outdated.clone();
    let hold = outdated
        .map(|machines| Hold::new(GateReason::ReplacingMachines, machines))
        .or_else(|| holds::settling(packages.judged, seen, record.settling_since.as_ref()));
    Some(with(
        Swap {
            written_at,
            ..before.clone()
        },
        hold,
    ))
}

/// Whether the label of a pending swap does not request its release any more, and the machines stay as they are.
pub(super) fn is_cancelled(
    previous: Option<&UpgradeRecord>,
    seen: &Observed<'_>,
    swap: Option<&Swap>,
    to: &str,
) -> bool {
    let previous = previous.filter(|previous| previous.to == to && previous.outcome.is_none());
    let before = previous.and_then(|previous| previous.swap.as_ref());
    let is_of_machines = |swap: &Swap| seen.swap.made_of.as_deref() == Some(swap.from.as_str());
    swap.is_none()
        && seen.swap.request.is_none()
        && before.is_some_and(|before| is_pending(before) && is_of_machines(before))
}
