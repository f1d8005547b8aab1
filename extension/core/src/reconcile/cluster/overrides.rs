//! Overrides of the gates of a Cluster, and the reads that confirm them before one opens a gate.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use sluice_crds::{
    lifecycle::{OverriddenGate, UpgradeOverride},
    run::{GateOverride, UpgradeRecord},
};

use super::{
    Context, Interrupt, ReadPhase, Server, Step,
    interrupt::{needs_of, together},
    read::{Key, Read},
    validate::Validated,
};
use crate::{
    protocol::Object,
    reasons::{GateReason, Hold},
    upgrade::{
        course,
        overrides::{
            MAX_OF_STEP, MAX_OVERRIDES, Override, Overrides, POLICY, enforced_since, gate_of, is_enforced,
            is_used, of_upgrade, usable,
        },
        record::opens_swap,
    },
};

/// Overrides of the Cluster in one reconcile.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// UIDs of all that the API server has, if they were listed; `None` also if there are too many.
    existing: Option<Vec<String>>,
    /// Those that may be used: by the cache, or by the reads that confirm an opening gate.
    usable: Vec<Override>,
    /// Those that may be used by the cache.
    cached: Vec<Override>,
    /// Whether the cache has the overrides of the Cluster, and not too many.
    is_watched: bool,
    /// Whether reads have confirmed all of `usable`.
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
            existing: None,
            cached: usable.clone(),
            usable,
            is_watched: existing.is_some(),
            is_confirmed: false,
        }
    }

    pub(super) fn seen(&self) -> Overrides<'_> {
        Overrides {
            existing: self.existing.as_deref(),
            usable: &self.usable,
            cached: &self.cached,
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

    /// Whether an override may open a gate.
    pub(super) const fn has_usable(&self) -> bool {
        !self.usable.is_empty()
    }

    /// Whether a record of an upgrade lacks the overrides that existed when its target was set.
    pub(super) fn lacks_list(&self, record: &UpgradeRecord) -> bool {
        let is_open = record.outcome.is_none() && record.from.is_some();
        self.is_watched && self.existing.is_none() && is_open && record.spent_overrides.is_none()
    }

    /// Lists the overrides at the API server. The cache may lack some, which would count as created later.
    pub(super) fn list(&mut self, context: &Context<'_>) -> Step<()> {
        let owner = &context.facts.owner;
        let namespace = owner.namespace.as_str();
        let read = Read::Labelled {
            server: Server::Management,
            resource: Key::of::<UpgradeOverride>(Server::Management, Some(namespace), "").resource,
            namespace: namespace.to_owned(),
            labels: String::new(),
            phase: ReadPhase::Confirm,
        };
        let objects = match context.listed(read) {
            // Without the list no override counts.
            Err(Interrupt::Failed(_)) => return Ok(()),
            objects => objects?,
        };
        let of_cluster = objects
            .iter()
            .filter(|Object(object)| object["spec"]["clusterName"] == owner.name.as_str());
        let uids = of_cluster.filter_map(|Object(object)| object["metadata"]["uid"].as_str());
        let uids: Vec<String> = uids.map(str::to_owned).collect();
        self.existing = (uids.len() <= MAX_OVERRIDES).then_some(uids);
        Ok(())
    }
}

/// Returns the overrides that the API server has, of those that open gates of `record` or may open a closed one. None counts that was created
/// without the policy that binds `requestedBy` to the caller. One that cannot be read opens no gate; a gate that it has opened before stays
/// open, because each replica reads the override before it releases a hook.
pub(super) fn confirm(
    context: &Context<'_>,
    validated: &Validated,
    (previous, record): (Option<&UpgradeRecord>, &UpgradeRecord),
    known: &Known,
) -> Step<Known> {
    let facts = context.facts;
    let wanted = wanted(validated, record, known);
    if wanted.is_empty() {
        return Ok(Known {
            existing: known.existing.clone(),
            usable: Vec::new(),
            cached: known.cached.clone(),
            is_confirmed: true,
            ..*known
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
    let since = answered(policy)?
        .zip(answered(binding)?)
        .map(|(policy, binding)| enforced_since(&policy?, &binding?));
    let was_used = |of: &Override| previous.is_some_and(|record| is_used(record, &of.by.uid));
    let (uid, now) = (&facts.owner.uid, context.began.now);
    let (mut found, mut is_confirmed) = (Vec::new(), true);
    for (of, object) in wanted.into_iter().zip(objects?) {
        match since.zip(answered(object)?) {
            Some((since, object)) => {
                let object = object.filter(|object| is_enforced(object, since));
                let read = object.and_then(|object| Override::of(&object, uid, now).ok());
                // An override of the same name is another one.
                found.extend(read.filter(|read| read == of));
            }
            None if was_used(of) => {
                found.push(of.clone());
                is_confirmed = false;
            }
            None => {}
        }
    }
    Ok(Known {
        existing: known.existing.clone(),
        usable: found,
        cached: known.cached.clone(),
        is_confirmed,
        ..*known
    })
}

/// Returns the overrides to be confirmed: those by which gates of a record are open, and some that may open a closed one of its step.
fn wanted<'a>(validated: &Validated, record: &'a UpgradeRecord, known: &'a Known) -> Vec<&'a Override> {
    let release = validated.release.as_deref().ok();
    let may_open = |of: &&Override| {
        let mut gates = record.gates.iter();
        let is_closed =
            gates.any(|gate| !gate.open && gate_of(gate.hook) == Some(of.gate) && gate.version == of.version);
        let mut swap = record.swap.iter();
        let is_of_swap = of.gate == OverriddenGate::Machines
            && swap.any(|swap| !swap.open && swap.version == of.version && swap.to == of.release);
        is_closed && release == Some(of.release.as_str()) || is_of_swap
    };
    let opens = |of: &&Override| is_used(record, &of.by.uid);
    // Not those that were left behind by another upgrade, however many they are.
    let unspent = || of_upgrade(record.spent_overrides.as_deref(), known.seen());
    let others = unspent().filter(|of| !opens(of) && may_open(of));
    let mut wanted: Vec<&Override> = unspent().filter(opens).collect();
    wanted.extend(others.take(MAX_OF_STEP));
    wanted
}

/// Returns what was read; `None` if the read failed.
fn answered<T>(read: Step<T>) -> Step<Option<T>> {
    match read {
        Err(Interrupt::Failed(_)) => Ok(None),
        other => other.map(Some),
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
