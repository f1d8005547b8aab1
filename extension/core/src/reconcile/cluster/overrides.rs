//! Overrides of the gates of a Cluster, and the reads that confirm them before one opens a gate.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use sluice_crds::{
    lifecycle::UpgradeOverride,
    run::{GateOverride, UpgradeRecord},
};

use super::{
    Context, Interrupt, ReadPhase, Server, Step,
    interrupt::{needs_of, together},
    validate::Validated,
};
use crate::{
    reasons::{GateReason, Hold},
    upgrade::{
        course,
        overrides::{
            MAX_OF_STEP, Override, Overrides, POLICY, enforced_since, is_enforced, of_upgrade, usable,
        },
        record::opens_swap,
    },
};

/// Overrides of the Cluster in one reconcile.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// UIDs of all existing ones; `None` if they are not known, or too many.
    existing: Option<Vec<String>>,
    /// Those that may be used: by the cache, or by the reads that confirm an opening gate.
    usable: Vec<Override>,
    /// Whether reads have confirmed `usable`.
    is_confirmed: bool,
}

impl Known {
    /// Returns the overrides in the cache.
    pub(super) fn of(context: &Context<'_>) -> Self {
        let facts = context.facts;
        let Some(objects) = &facts.overrides else {
            return Self::default();
        };
        let (existing, usable) = usable(objects, &facts.owner.uid, context.began.now);
        Self {
            existing,
            usable,
            is_confirmed: false,
        }
    }

    pub(super) fn seen(&self) -> Overrides<'_> {
        Overrides {
            existing: self.existing.as_deref(),
            usable: &self.usable,
        }
    }

    /// Returns the time until the first of them expires.
    pub(super) fn until_expiry(&self, now: Timestamp) -> Option<Duration> {
        let left = self
            .usable
            .iter()
            .map(|of| of.by.expires_at.0.duration_since(now));
        left.min().map(|left| left.try_into().unwrap_or_default())
    }

    /// Whether the override of a gate, if there is one, passes a package.
    pub(super) fn passes(&self, by: Option<&GateOverride>, package: &str) -> bool {
        let mut usable = self.usable.iter();
        by.is_some_and(|by| usable.any(|of| of.by.uid == by.uid && of.passes(package)))
    }
}

/// Returns the overrides that the API server has, of those that keep a gate of `record` open or may open one of its step. None counts
/// that was created without the policy that binds `requestedBy` to the caller, nor if one of the objects cannot be read.
pub(super) fn confirm(
    context: &Context<'_>,
    validated: &Validated,
    record: &UpgradeRecord,
    known: &Known,
) -> Step<Known> {
    let facts = context.facts;
    let version = &validated.progress.hop;
    let release = validated.release.as_deref().ok();
    let is_of_step = |of: &&Override| {
        let request = validated.swap.request.as_ref();
        let is_of_swap =
            request.is_some_and(|request| request.version == of.version && request.to == of.release);
        of.version == *version && release == Some(of.release.as_str()) || is_of_swap
    };
    let opens = |of: &&Override| by_uids(record).any(|uid| uid == of.by.uid);
    let opening = known.usable.iter().filter(opens);
    // Not those that were left behind by another upgrade, however many they are.
    let others = of_upgrade(record.spent_overrides.as_deref(), known.seen());
    let others = others.filter(|of| !opens(of) && is_of_step(of));
    let wanted: Vec<&Override> = opening.chain(others).take(MAX_OF_STEP).collect();
    if wanted.is_empty() {
        return Ok(Known {
            existing: known.existing.clone(),
            usable: Vec::new(),
            is_confirmed: true,
        });
    }
    let namespace = Some(facts.owner.namespace.as_str());
    let policy =
        context.read::<ValidatingAdmissionPolicy>(POLICY, (Server::Management, None), ReadPhase::Confirm);
    let binding = context.read::<ValidatingAdmissionPolicyBinding>(
        POLICY,
        (Server::Management, None),
        ReadPhase::Confirm,
    );
    let objects = together(wanted.iter().map(|of| {
        let at = (Server::Management, namespace);
        context.read::<UpgradeOverride>(&of.by.name, at, ReadPhase::Confirm)
    }));
    together([needs_of(&policy), needs_of(&binding), needs_of(&objects)])?;
    let since = readable(policy)?
        .zip(readable(binding)?)
        .and_then(|(policy, binding)| enforced_since(&policy, &binding));
    let (uid, now) = (&facts.owner.uid, context.began.now);
    let mut found = Vec::new();
    for (of, object) in wanted.into_iter().zip(objects?) {
        let object = readable(object)?.filter(|object| is_enforced(object, since));
        let read = object.and_then(|object| Override::of(&object, uid, now).ok());
        // An override of the same name is another one.
        found.extend(read.filter(|read| read == of));
    }
    Ok(Known {
        existing: known.existing.clone(),
        usable: found,
        is_confirmed: true,
    })
}

/// Returns the UIDs of the overrides that keep gates and the swap of a record open.
fn by_uids(record: &UpgradeRecord) -> impl Iterator<Item = &str> {
    let of_gates = record.gates.iter().filter_map(|gate| gate.overridden_by.as_ref());
    let of_swap = record.swap.iter().filter_map(|swap| swap.overridden_by.as_ref());
    of_gates.chain(of_swap).map(|by| by.uid.as_str())
}

/// Returns what was read; `None` also if the read failed: then no override counts.
fn readable<T>(read: Step<Option<T>>) -> Step<Option<T>> {
    match read {
        Err(Interrupt::Failed(_)) => Ok(None),
        other => other,
    }
}

/// Returns the hold of a record in which an override that is not confirmed opens a gate.
pub(super) fn unconfirmed(
    previous: Option<&UpgradeRecord>,
    next: &UpgradeRecord,
    known: &Known,
) -> Option<Hold> {
    if known.is_confirmed {
        return None;
    }
    let course = previous.map(Into::into);
    let mut opening = next
        .gates
        .iter()
        .filter(|gate| gate.open && !course::was_open(course, gate));
    let of_gates = opening.find_map(|gate| gate.overridden_by.as_ref());
    let of_swap = next.swap.as_ref().filter(|_| opens_swap(next));
    let by = of_gates.or_else(|| of_swap?.overridden_by.as_ref())?;
    let message = format!(
        "waiting for the API server to confirm UpgradeOverride {}",
        by.name
    );
    Some(Hold::new(GateReason::PackagesUnknown, message))
}

#[cfg(test)]
mod tests;
