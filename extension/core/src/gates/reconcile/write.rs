//! Writes of the ClusterUpgrade: its creation, its status only if it differs, and its deletion.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use sluice_crds::{
    lifecycle::{
        Before, CheckRecord, CheckState, ClusterUpgrade, ClusterUpgradeSpec, ClusterUpgradeStatus, GateMode,
        GateRecord, SelectedGate,
    },
    run::Gate,
};

use super::{Context, GateCount, GateEffects, checks::Judging};
use crate::{
    events::Event,
    gates::{
        facts::GateFacts,
        record::is_urgent,
        selected::{Selected, is_in_progress, is_upgrade},
        status::{HELD, condition},
    },
    packages::build,
    protocol::{Key, Server, Step, Write, context::typed},
    reasons::{CheckReason, Class, GateReason, Hold},
    reconcile::progress_writes::until_write,
    summary::DEADLINE_EXCEEDED,
    upgrade::record::class_of,
};

/// Whether a ClusterUpgrade is owned by the Cluster. That of an earlier Cluster of the same name is about to be removed.
pub(super) fn is_owned(facts: &GateFacts, upgrade: &ClusterUpgrade) -> bool {
    let mut owners = upgrade.owner_references().iter();
    owners.any(|owner| owner.uid == facts.owner.uid)
}

/// Deletes the ClusterUpgrade, if there is one.
pub(super) fn delete(context: &Context<'_>, why: &'static str) -> Step<()> {
    let facts = context.facts;
    let upgrade = facts.upgrade.as_ref();
    let Some(upgrade) = upgrade.filter(|upgrade| upgrade.metadata.deletion_timestamp.is_none()) else {
        return Ok(());
    };
    context
        .write(Write::delete(key(facts), upgrade.uid(), why))
        .map(drop)
}

/// Deletes the ClusterUpgrade with this UID.
pub(super) fn delete_uid(context: &Context<'_>, uid: String, why: &'static str) -> Step<()> {
    let key = key(context.facts);
    context.write(Write::delete(key, Some(uid), why)).map(drop)
}

fn key(facts: &GateFacts) -> Key {
    let namespace = Some(facts.owner.namespace.as_str());
    Key::of::<ClusterUpgrade>(Server::Management, namespace, &facts.owner.name)
}

/// Writes the status, if it differs. Returns the time that progress still waits for its write.
pub(super) fn write(
    context: &Context<'_>,
    effects: &mut GateEffects,
    judging: Judging<'_>,
    status: &ClusterUpgradeStatus,
) -> Step<Option<Duration>> {
    let facts = context.facts;
    let nothing = ClusterUpgradeStatus::default();
    let current = facts.upgrade.as_ref().and_then(|upgrade| upgrade.status.as_ref());
    let current = current.unwrap_or(&nothing);
    effects.events.extend(held(status));
    if facts.upgrade.is_some() {
        if current == status {
            effects.local.nothing_unwritten();
            return Ok(None);
        }
        if let Some(left) = not_yet(context, effects, judging, (current, status)) {
            return Ok(Some(left));
        }
    }
    effects.local.nothing_unwritten();
    let progress_writes = progress_writes(context, current, status);
    let mut upgrade = match &facts.upgrade {
        Some(upgrade) => ClusterUpgrade::clone(upgrade),
        None => create(context)?,
    };
    upgrade.status = Some(status.clone());
    let written = context.write(Write::status(&upgrade, "record or checks differ"))?;
    let written: ClusterUpgrade = typed(Server::Management, written)?;
    effects.local.written = Some(context.began.instant);
    effects.local.progress_writes = progress_writes;
    effects.events.extend(dropped(status, &written));
    report(effects, judging, current, status);
    Ok(None)
}

/// Creates the ClusterUpgrade, owned by the Cluster.
fn create(context: &Context<'_>) -> Step<ClusterUpgrade> {
    let owner = &context.facts.owner;
    let mut upgrade = ClusterUpgrade::new(&owner.name, ClusterUpgradeSpec::default());
    upgrade.metadata.namespace = Some(owner.namespace.clone());
    upgrade.metadata.owner_references = Some(vec![OwnerReference {
        // Nothing has to wait for the deletion of a record.
        block_owner_deletion: Some(false),
        ..build::owner(owner, true)
    }]);
    let created = context.write(Write::create(
        Server::Management,
        &upgrade,
        "an UpgradeGate selects the Cluster",
    ))?;
    typed(Server::Management, created)
}

/// Whether the change of a status is written at once.
fn is_urgent_status(current: &ClusterUpgradeStatus, next: &ClusterUpgradeStatus) -> bool {
    let records = current.upgrade.as_ref().zip(next.upgrade.as_ref());
    records.is_none_or(|(old, new)| is_urgent(old, new))
}

fn checks_of(status: &ClusterUpgradeStatus) -> Option<&[CheckRecord]> {
    status.upgrade.as_ref().map(|record| record.checks.as_slice())
}

/// Returns the time that a change without urgency still waits for its write. What a drift check has read does not wait: the next reconcile
/// reads nothing, and the change would be lost.
fn not_yet(
    context: &Context<'_>,
    effects: &mut GateEffects,
    judging: Judging<'_>,
    (current, next): (&ClusterUpgradeStatus, &ClusterUpgradeStatus),
) -> Option<Duration> {
    let is_read = || checks_of(current) != checks_of(next);
    if is_urgent_status(current, next) || judging.awaits_drift_check() && is_read() {
        return None;
    }
    let now = context.began.instant;
    let since_written = now.saturating_duration_since(context.local.written?);
    let settled = effects.local.until_settled(now);
    let left = until_write(context.local.progress_writes, since_written).unwrap_or_default();
    Some(left.max(settled)).filter(|left| !left.is_zero())
}

/// Returns the number of writes of progress of a hop, this write included.
fn progress_writes(
    context: &Context<'_>,
    current: &ClusterUpgradeStatus,
    next: &ClusterUpgradeStatus,
) -> usize {
    let hop = |status: &ClusterUpgradeStatus| {
        let record = status.upgrade.as_ref()?;
        Some((record.hop.clone(), record.to.clone(), record.outcome))
    };
    if hop(current) == hop(next) {
        context.local.progress_writes + usize::from(!is_urgent_status(current, next))
    } else {
        0
    }
}

/// Returns the event for the hold of the Cluster.
fn held(status: &ClusterUpgradeStatus) -> Option<Event> {
    if !is_held(status) {
        return None;
    }
    let is_held = |gate: &&Gate| !gate.open && class_of(gate) != Some(Class::ClusterApi);
    let gate = status.upgrade.as_ref()?.gates.iter().find(is_held)?;
    let hold = Hold::new(GateReason::parse(&gate.reason)?, gate.message.clone());
    Some(Event::Held(hold))
}

fn is_held(status: &ClusterUpgradeStatus) -> bool {
    condition(status, HELD).is_some_and(|held| held.status == "True")
}

/// Returns the event of a definition that drops fields which decisions depend on.
fn dropped(sent: &ClusterUpgradeStatus, written: &ClusterUpgrade) -> Option<Event> {
    let of_record = |record: &GateRecord| {
        (
            record.gates.len(),
            record.selected.len(),
            record.checks.len(),
            record.set.is_some(),
            record.workload_uid.is_some(),
        )
    };
    let kept = written.status.as_ref().and_then(|status| status.upgrade.as_ref());
    if kept.map(of_record) == sent.upgrade.as_ref().map(of_record) {
        return None;
    }
    let hold = Hold::new(
        GateReason::CRDOutdated,
        "the ClusterUpgrade definition is older than this release and drops fields of its status; apply its CRDs",
    );
    Some(Event::Held(hold))
}

/// Reports the changes of a written status.
fn report(
    effects: &mut GateEffects,
    judging: Judging<'_>,
    current: &ClusterUpgradeStatus,
    status: &ClusterUpgradeStatus,
) {
    let mut gates: Vec<String> = Vec::new();
    let records = [judging.previous, status.upgrade.as_ref()];
    for listed in records.into_iter().flatten().flat_map(|record| &record.selected) {
        if !gates.contains(&listed.name) {
            gates.push(listed.name.clone());
        }
    }
    effects.status = gates;
    let late = condition(status, DEADLINE_EXCEEDED)
        .filter(|_| condition(current, DEADLINE_EXCEEDED).is_none())
        .map(|late| Event::Warned(DEADLINE_EXCEEDED, late.message.clone()));
    effects.events.extend(late);
    let (before, after) = (current.upgrade.as_ref(), status.upgrade.as_ref());
    effects
        .counts
        .extend(expression_errors(before, after).map(GateCount::ExpressionError));
    let Some((previous, record)) = judging.previous.zip(status.upgrade.as_ref()) else {
        return;
    };
    if is_in_progress(previous, judging.rests) {
        effects.events.extend(edits(previous, record));
    }
    would_hold(effects, judging.selected, previous, record);
    if is_held(current) && !is_held(status) {
        let hop = record.hop.as_deref().unwrap_or(&record.to);
        let note = format!("UpgradeGates no longer hold the upgrade to {hop}");
        effects.events.push(Event::Said("GatesReleased", note));
    }
}

/// Returns the events of edited gates during an upgrade.
fn edits(previous: &GateRecord, record: &GateRecord) -> Vec<Event> {
    let find = |record: &GateRecord, uid: &str| -> Option<SelectedGate> {
        let mut selected = record.selected.iter();
        selected.find(|gate| gate.uid == uid).cloned()
    };
    let mut events = Vec::new();
    for before in &previous.selected {
        let name = &before.name;
        let (reason, note) = match find(record, &before.uid) {
            None => (
                "GateRemoved",
                format!("UpgradeGate {name} no longer applies to the upgrade"),
            ),
            Some(now) if now.mode != before.mode => {
                let mode = match now.mode {
                    GateMode::Audit => "Audit: it no longer holds the upgrade",
                    GateMode::Enforce => "Enforce: it holds the upgrade",
                };
                ("GateEdited", format!("mode of UpgradeGate {name} is now {mode}"))
            }
            Some(now) if now.generation != before.generation => (
                "GateEdited",
                format!("UpgradeGate {name} was edited; its checks are judged again"),
            ),
            Some(_) => continue,
        };
        events.push(Event::Said(reason, note));
    }
    for now in &record.selected {
        if find(previous, &now.uid).is_none() {
            let note = format!("UpgradeGate {} applies to the upgrade", now.name);
            events.push(Event::Said("GateAdded", note));
        }
    }
    events
}

/// Returns the reasons of checks whose expression begins to fail, or to cost too much. A reason that stays is counted once.
fn expression_errors<'a>(
    before: Option<&'a GateRecord>,
    after: Option<&'a GateRecord>,
) -> impl Iterator<Item = CheckReason> {
    let checks = |record: Option<&'a GateRecord>| record.into_iter().flat_map(|record| &record.checks);
    checks(after).filter_map(move |check| {
        let reasons = [CheckReason::ExpressionFailed, CheckReason::ExpressionTooCostly];
        let reason = reasons
            .into_iter()
            .find(|reason| reason.as_str() == check.reason)?;
        let had_it = checks(before).any(|earlier| {
            earlier.gate == check.gate && earlier.name == check.name && earlier.reason == check.reason
        });
        (!had_it).then_some(reason)
    })
}

/// Reports Audit gates that would have held the version that the control plane has taken since the previous record.
fn would_hold(effects: &mut GateEffects, selected: &Selected, previous: &GateRecord, record: &GateRecord) {
    let is_taken = record.released_at.is_some() && previous.released_at.is_none();
    let Some(hop) = record.hop.as_ref().filter(|_| is_taken) else {
        return;
    };
    if previous.hop.as_ref() != Some(hop) || !is_upgrade(previous) {
        return;
    }
    let gates = selected.gates.iter().map(|applied| &applied.gate);
    for gate in gates.filter(|gate| gate.mode == GateMode::Audit && gate.before == Before::ControlPlane) {
        let mut checks = previous.checks.iter();
        let unproven = checks.find(|check| check.gate == gate.name && check.state != CheckState::Proven);
        if let Some(check) = unproven {
            let (name, message) = (&check.name, &check.message);
            let note = format!(
                "UpgradeGate {} in mode Audit would have held {hop}: {name}: {message}",
                gate.name
            );
            effects.events.push(Event::Warned("AuditWouldHold", note));
            effects
                .counts
                .push(GateCount::AuditWouldHold(check.reason.clone()));
        }
    }
}
