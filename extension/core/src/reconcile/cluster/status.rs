//! Status of a ClusterBootstrap: the record, the mirrored conditions and the resolved release in one write, only if they differ.

mod writing;

use std::time::Duration;

use jiff::Timestamp;
use sluice_crds::{
    lifecycle::OverriddenGate,
    run::{
        ClusterBootstrap, ClusterBootstrapStatus, Condition, GateOverride, HeldCause, Hook, UpgradeRecord,
    },
};

use self::writing::write;
use super::{
    Context, Done, Interrupt, Step, UNWATCHED, WITH_PROBLEM, at_rest,
    confirm::confirm,
    confirm_cluster::{confirm_cluster, rests_on_control_plane},
    counts::{count, date_release},
    effects::{Count, Effects},
    held_probe,
    install::tidy,
    interrupt::{needs_of, together},
    local_state::LocalState,
    opening::{has_new_proof, needs_confirmation, opens_any_gate, unconfirmed, unneeded, withheld},
    overrides,
    packages::{DriftCheckResult, Packages},
    requirements, rollback, swap, upgrade_warnings,
    validate::{Validated, is_restored},
    workload::Reach,
    write::Write,
};
use crate::events::Event;
use crate::{
    explanation::explain,
    installation::gate_in_force::GateInForce,
    packages::bootstrap::ResolvedRelease,
    reasons::{Class, GateReason, Hold},
    reconcile::progress_writes::until_write,
    summary::{
        DEADLINE_EXCEEDED,
        conditions::{
            Mirrored, mirror, says_ungated, with_gate_in_force, with_nothing_to_prove, with_release,
            with_takeover, with_unmanaged, with_unseen,
        },
        exceeded,
        rollback::rollback_event,
        summarize, until_deadline,
    },
    text::one_line,
    upgrade::{
        overrides::{Overrides, Steps, newly_used},
        record::{
            self, BootstrapFacts, Observed, PackageSet, Ungated, Workload, advance, ends_swap, held_for,
            is_urgent, of_cluster,
        },
        rollback::Decision,
        swap::{NO_SWAP, has_ended},
    },
};

/// Maximum lengths of version, name, user and reason in the note of an event about an override, in characters. Each is cut on its own, so
/// that none removes another. The API server refuses notes of more than 1,024 bytes; version and name are ASCII.
const LONGEST_OF_NOTE: (usize, usize, usize, usize) = (32, 63, 100, 110);

/// Requeue delay of a hot Cluster without changes.
const HOT: Duration = Duration::from_secs(10);

/// Returns the time since the last status write of this process, if any.
pub(super) fn since_written(context: &Context<'_>) -> Option<Duration> {
    let written = context.local.written?;
    Some(context.began.instant.saturating_duration_since(written))
}

/// Returns the requeue delay for a state that no watch shows.
fn unwatched(context: &Context<'_>) -> Duration {
    lately(context, UNWATCHED, HOT)
}

/// Returns a tenth of the time since the status was written, so the delay grows while nothing changes.
fn lately(context: &Context<'_>, least: Duration, most: Duration) -> Duration {
    let still = since_written(context).unwrap_or_default();
    (still / 10).clamp(least, most)
}

/// Whether an open gate, which a failing package would close, lets Cluster API continue an upgrade.
fn releases_upgrade(record: &UpgradeRecord) -> bool {
    use Hook::{BeforeClusterUpgrade, BeforeControlPlaneUpgrade, BeforeWorkersUpgrade};
    let before = |hook| {
        matches!(
            hook,
            BeforeClusterUpgrade | BeforeControlPlaneUpgrade | BeforeWorkersUpgrade
        )
    };
    let is_upgrade = record.from.as_ref().is_some_and(|from| *from != record.to);
    is_upgrade && record.outcome.is_none() && record.gates.iter().any(|gate| gate.open && before(gate.hook))
}

/// Result of the evaluation of one reconcile.
struct Evaluated {
    record: UpgradeRecord,
    /// Hold of an outdated cache.
    outdated: Option<Hold>,
    /// Whether the record permits entries of another release, confirmed by reads.
    opens_swap: bool,
}

/// Computes the next record by the caches, with overrides that the API server has. They are read before any package: an override that does not
/// count costs no more.
fn with_overrides(
    context: &Context<'_>,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    packages: &mut Packages,
) -> Step<UpgradeRecord> {
    let previous = context.facts.recorded(bootstrap);
    let next = |packages: &Packages| advance(previous, &observe(context, validated, bootstrap, packages));
    let mut record = next(packages);
    if packages.overrides.lacks_list(&record) {
        packages.overrides.list(context)?;
        record = next(packages);
    }
    let steps = validated.steps(context.facts);
    if needs_confirmation(previous, &record, steps) && packages.overrides.has_usable() {
        packages.overrides =
            overrides::confirm(context, validated, (previous, &record), &packages.overrides)?;
        record = next(packages);
    }
    Ok(record)
}

/// Computes the next record. Reads confirm the evidence of gates that open.
fn evaluate(
    context: &Context<'_>,
    effects: &mut Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    packages: &mut Packages,
) -> Step<Evaluated> {
    let found = context.facts;
    let previous = found.recorded(bootstrap);
    let mut record = with_overrides(context, validated, bootstrap, packages)?;
    let opens_swap = record::opens_swap(&record);
    let ends_swap = ends_swap(previous, &record);
    let steps = validated.steps(found);
    let has_proof = needs_confirmation(previous, &record, steps);
    let (mut outdated, mut unmet) = (None, None);
    let control_plane = found.control_plane.as_ref();
    let rests_on_control_plane = rests_on_control_plane(
        control_plane,
        context.local.confirmed.as_ref(),
        (record.outcome, &record.gates),
    );
    let needs_cluster = ends_swap || opens_any_gate(previous, &record) || rests_on_control_plane;
    if has_proof || needs_cluster {
        let cluster = confirm_cluster(context, &found.owner, &found.cluster, control_plane);
        let proofs = if has_proof {
            let unneeded = unneeded(previous, &record, packages);
            confirm(context, effects, validated, bootstrap, packages, &unneeded)
        } else {
            Ok(())
        };
        // What is confirmed may permit the entries, although the watches did not.
        let of_swap = match validated.machines.as_ref().filter(|_| has_proof) {
            Some(machines) => swap::confirm_machines(context, machines, Some(bootstrap)),
            None if ends_swap => swap::confirm_workers(context),
            None => Ok(None),
        };
        let required = requirements::confirm(context, validated);
        together([
            needs_of(&cluster),
            needs_of(&proofs),
            needs_of(&of_swap),
            needs_of(&required),
        ])?;
        let confirmed = cluster?;
        proofs?;
        unmet = required?;
        effects.rolled_back = confirmed.rolled_back;
        outdated = confirmed.outdated.or(of_swap?);
        record = advance(previous, &observe(context, validated, bootstrap, packages));
        effects.local.confirmed = found.control_plane.clone().filter(|_| outdated.is_none());
    }
    if ends_swap && outdated.is_some() {
        record.swap = previous.and_then(|previous| previous.swap.clone());
    }
    if let Some(hold) = outdated
        .clone()
        .or(unmet)
        .or_else(|| unconfirmed(previous, &record, packages, steps))
        .or_else(|| overrides::unconfirmed(previous, &record, &packages.overrides))
    {
        record = withheld(previous, record, &hold);
    }
    let opens_swap = opens_swap && record::opens_swap(&record);
    upgrade_warnings::check(context, effects, validated.paused.is_some(), &record, packages)?;
    Ok(Evaluated {
        record,
        outdated,
        opens_swap,
    })
}

/// Computes and writes the status of `bootstrap`.
pub(super) fn status(
    context: &Context<'_>,
    effects: &mut Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    mut packages: Packages,
) -> Step<Done> {
    let found = context.facts;
    if let Some(again) = packages.next_drift_check
        && validated.is_current(found, bootstrap)
    {
        at_rest::rest(context, effects, validated, bootstrap);
        let is_reported = matches!(found.gate_in_force, Some(GateInForce::No(_)));
        if is_reported || matches!(validated.rollback, Decision::Refused(_)) {
            report_release(context, effects, validated, bootstrap)?;
        }
        return Ok(Done::RequeueAfter(again));
    }
    if swap::is_written(context) {
        // The watch will show the written entries.
        return Ok(Done::RequeueAfter(UNWATCHED));
    }
    let previous = found.recorded(bootstrap);
    let Evaluated {
        mut record,
        outdated,
        opens_swap,
    } = evaluate(context, effects, validated, bootstrap, &mut packages)?;
    effects.outdated = effects
        .local
        .outdated_for_long(outdated.as_ref(), context.began.instant);
    date_release(effects, previous, &mut record);
    let seen = observe(context, validated, bootstrap, &packages);
    count(context, effects, previous, &record, &seen);

    let current = bootstrap.status.clone().unwrap_or_default();
    let had_ended = previous.is_some_and(has_ended);
    let next = match (&packages.problem, packages.connected) {
        _ if packages.record_first || outdated.is_some() => UNWATCHED,
        _ if packages.drift_check == DriftCheckResult::Seen => packages.after_drift_check(context, effects),
        _ if let DriftCheckResult::Unseen(time) = packages.drift_check => effects.local.requeue_drift_check(
            &found.owner.uid,
            time,
            found.settings.sync_period.length,
            context.began.instant,
        ),
        (None, true) if !packages.conflict && had_ended => lately(context, HOT, WITH_PROBLEM),
        (None, true) if !packages.conflict => HOT,
        // The problem may affect every Cluster of a release, and the stores requeue the Clusters that they know.
        (Some(_), _) if has_ended(&record) => WITH_PROBLEM,
        // Each reconcile repeats a discovery of the management API server.
        (Some(hold), _) if hold.reason == GateReason::SupervisorUnknown => WITH_PROBLEM,
        // An upgrade in progress and a connection that reopens need a short delay.
        _ if packages.connected
            || !matches!(packages.reach, Reach::NotYet(_))
            || releases_upgrade(&record) =>
        {
            unwatched(context)
        }
        // Only Cluster API can continue, and its watch shows that.
        (None, _) if !found.may_be_reached() => found
            .settings
            .sync_period
            .until_resync(&found.owner.uid, context.began.instant),
        _ => effects.local.wait(&found.owner.uid, context.began.instant),
    };
    if packages.connected {
        effects.local.waited();
    }
    let cause = held_probe::found(&effects.local, &record);
    let known = (&effects.local, cause.as_ref());
    let status = composed(context, validated, (bootstrap, record), &packages, known)?;
    let next = sooner(context, effects, (bootstrap, &status), &packages, next);
    effects.events.extend(event(&status, packages.unseen()));
    let opens_swap = opens_swap && !packages.record_first;
    let is_urgent = is_urgent_status(&current, &status, validated.steps(found));
    // A write without changes confirms that the API server has no other status.
    if !packages.record_first {
        let left = if status == current {
            Some(next)
        } else {
            not_yet(context, is_urgent).map(|left| left.min(next))
        };
        if let Some(left) = left {
            let stored = current.upgrade.as_ref().filter(|_| opens_swap);
            return swap::write_swap(context, effects, validated, stored, left);
        }
    }
    let completed = completes(&current, &status);
    let told = [late(&current, &status), rollback_event(&current, &status)];
    let overridden = used_overrides(&current, &status);
    let progress_writes = progress_writes(context, &current, &status, is_urgent);
    let status = with_columns(context, status, &effects.local);
    let stored = write(context, effects, bootstrap, status)?.filter(|_| opens_swap);
    effects.local.progress_writes = progress_writes;
    effects.events.extend(told.into_iter().flatten());
    for (gate, note) in overridden {
        effects.events.push(Event::Overridden(note));
        effects.counts.push(Count::Overridden(gate));
    }
    if packages.drift_check == DriftCheckResult::Seen {
        effects.local.drift_check_made(next, context.began.instant);
    }
    if completed && packages.connected {
        match tidy(context, &effects.local, (&packages.planned, packages.ownership)) {
            Ok(()) | Err(Interrupt::Failed(_)) => {}
            Err(stop) => return Err(stop),
        }
    }
    swap::write_swap(context, effects, validated, stored.as_ref(), next)
}

/// Returns the requeue delay: at most until a limit of the held gate, or until an override expires, which closes its gate. Requests a probe if
/// one is due.
fn sooner(
    context: &Context<'_>,
    effects: &mut Effects,
    (bootstrap, status): (&ClusterBootstrap, &ClusterBootstrapStatus),
    packages: &Packages,
    next: Duration,
) -> Duration {
    let (policy, now) = (bootstrap.spec.upgrade_policy.as_ref(), context.began.now);
    let limits = [
        until_deadline(status, policy, now),
        held_probe::check(context, effects, bootstrap, status, packages),
        packages.overrides.until_expiry(now),
    ];
    limits.into_iter().flatten().fold(next, Duration::min)
}

/// Returns the status of `bootstrap` with this record, and with what this process has found.
fn composed(
    context: &Context<'_>,
    validated: &Validated,
    (bootstrap, record): (&ClusterBootstrap, UpgradeRecord),
    packages: &Packages,
    (local, cause): (&LocalState, Option<&HeldCause>),
) -> Step<ClusterBootstrapStatus> {
    let previous = context.facts.recorded(bootstrap);
    let current = bootstrap.status.iter().flat_map(|status| &status.conditions);
    let mut current: Vec<Condition> = current.cloned().collect();
    if waits_for_others(&record) {
        current = release_conditions(context, current);
    }
    let now = context.began.now;
    let mut mirrored = Vec::new();
    for ((planned, install), judged) in packages
        .planned
        .iter()
        .zip(&packages.installs)
        .zip(&packages.judged)
    {
        mirrored.push(Mirrored {
            ref_name: &planned.facts.ref_name,
            // Leftovers of an earlier Cluster of the same name are not kept.
            seen: previous.is_none() || packages.absence_is_known(context, planned)?,
            install: install.as_deref(),
            record: &judged.record,
        });
    }
    let conditions = with_nothing_to_prove(
        mirror(&current, &mirrored, now),
        packages.planned.is_empty() && packages.problem.is_none(),
        now,
    );
    let conditions = if packages.ownership.is_known() {
        let said = packages.ownership.said();
        let said = said.as_ref().map(|(reason, message)| (*reason, message.as_str()));
        with_unmanaged(conditions, said, now)
    } else {
        conditions
    };
    let conditions = match (packages.unseen(), packages.reach.uid()) {
        (Some(hold), _) => with_unseen(conditions, Some(hold), now),
        (None, Some(_)) => with_unseen(conditions, None, now),
        (None, None) => conditions,
    };
    let warnings = local.warnings.as_deref();
    let conditions = upgrade_warnings::shown(conditions, warnings, (previous, &record), now);
    let conditions = gate_in_force(context, conditions, versions_ungated(local, &record), false);
    let refused = rollback::refused(&validated.rollback, packages.problem.as_ref());
    let conditions = rollback::shown(context, conditions, refused, (bootstrap, &record));
    let status = ClusterBootstrapStatus {
        resolved_tkr: ResolvedRelease::of(bootstrap).release().map(str::to_owned),
        conditions,
        upgrade: Some(record),
        ..ClusterBootstrapStatus::default()
    };
    Ok(with_summary(bootstrap, status, cause, now))
}

/// Returns the next status of `bootstrap` with its summary fields. `found` is the cause that a probe has found.
fn with_summary(
    bootstrap: &ClusterBootstrap,
    next: ClusterBootstrapStatus,
    found: Option<&HeldCause>,
    now: Timestamp,
) -> ClusterBootstrapStatus {
    let nothing = ClusterBootstrapStatus::default();
    let current = bootstrap.status.as_ref().unwrap_or(&nothing);
    fitted(summarize(
        current,
        next,
        bootstrap.spec.upgrade_policy.as_ref(),
        found,
        now,
    ))
}

/// Limit for all messages of a status together, in bytes. It keeps a ClusterBootstrap below the [limit](crate::decode::CACHED) of its
/// cached size.
const MESSAGES: usize = 16 * 1024;

/// Truncates the messages of a status to equal shares of [`MESSAGES`] if their sum exceeds it.
fn fitted(mut status: ClusterBootstrapStatus) -> ClusterBootstrapStatus {
    let of_conditions = status
        .conditions
        .iter_mut()
        .map(|condition| &mut condition.message);
    let packages = status.upgrade.iter_mut().flat_map(|record| &mut record.packages);
    let of_packages = packages.map(|package| &mut package.message);
    let messages = of_conditions.chain(of_packages);
    let mut messages: Vec<&mut String> = messages.filter(|message| !message.is_empty()).collect();
    let all: usize = messages.iter().map(|message| message.len()).sum();
    if all > MESSAGES {
        let each = MESSAGES / messages.len();
        for message in &mut messages {
            message.truncate(message.floor_char_boundary(each));
        }
    }
    status
}

/// Comparison of a drift check with the status.
pub(super) enum Recorded {
    /// The status matches.
    Same,
    /// Only the state of packages differs.
    OtherPackages,
    /// More than the state of packages differs.
    Other,
}

/// Compares the `packages` that a drift check observed with the status of `bootstrap`.
pub(super) fn compare_with_record(
    context: &Context<'_>,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    packages: &Packages,
) -> Step<Recorded> {
    let previous = context.facts.recorded(bootstrap);
    let record = advance(previous, &observe(context, validated, bootstrap, packages));
    let answers = |record: &UpgradeRecord| (record.outcome, record.gates.clone());
    let stays = previous.map(answers) == Some(answers(&record));
    let known = (context.local, None);
    let seen = composed(context, validated, (bootstrap, record), packages, known)?;
    let said = |status: &ClusterBootstrapStatus| {
        let packages = status.upgrade.as_ref().map(|record| record.packages.clone());
        (status.conditions.clone(), packages)
    };
    Ok(match bootstrap.status.as_ref().map(said) == Some(said(&seen)) {
        true => Recorded::Same,
        false if stays => Recorded::OtherPackages,
        false => Recorded::Other,
    })
}

/// Writes the record of a Cluster that is being deleted.
pub(super) fn deleting(
    context: &Context<'_>,
    effects: &mut Effects,
    bootstrap: &ClusterBootstrap,
    waiting: Option<&Hold>,
) -> Step<()> {
    let found = context.facts;
    let current = bootstrap.status.clone().unwrap_or_default();
    let previous = found.recorded(bootstrap);
    let observed = Observed {
        bootstrap: facts(bootstrap, None),
        // A deletion does not change the release.
        tkr: Ok(previous
            .and_then(|record| record.tkr.as_deref())
            .unwrap_or_default()),
        problem: waiting,
        uninstalled: waiting.is_none(),
        restored: is_restored(context)?,
        ..blank(context)
    };
    let record = advance(previous, &observed);
    let status = ClusterBootstrapStatus {
        upgrade: Some(record),
        ..current.clone()
    };
    let status = with_summary(bootstrap, status, None, context.began.now);
    if status != current {
        write(context, effects, bootstrap, status)?;
    }
    Ok(())
}

/// Closes the gates of a Cluster for `hold`, because too little is known to compute a new record.
pub(super) fn close_gates_for(context: &Context<'_>, effects: &mut Effects, hold: &Hold) -> Step<()> {
    effects.events.push(Event::Held(hold.clone()));
    let (facts, now) = (context.facts, context.began.now);
    match close(facts.bootstrap.as_deref(), &facts.owner.uid, hold, now) {
        Close::NoRecord => effects.note = Some(Some(hold.clone())),
        Close::Recorded => {}
        Close::Write(write, late) => {
            context.write(*write)?;
            effects.local.written = Some(context.began.instant);
            effects.note = Some(None);
            effects.events.extend(late);
        }
    }
    Ok(())
}

/// Reports the obstacle of a take-over in a condition of the ClusterBootstrap. Returns whether it was written: the reconcile then ends,
/// because its other writes would be based on an outdated object.
pub(super) fn report_takeover(
    context: &Context<'_>,
    effects: &mut Effects,
    said: Option<(&str, &str)>,
) -> Step<bool> {
    let Some(bootstrap) = context.facts.bootstrap.as_deref() else {
        return Ok(false);
    };
    let status = bootstrap.status.clone().unwrap_or_default();
    let conditions = with_takeover(status.conditions.clone(), said, context.began.now);
    if conditions == status.conditions {
        return Ok(false);
    }
    let next = ClusterBootstrap {
        status: Some(ClusterBootstrapStatus { conditions, ..status }),
        ..bootstrap.clone()
    };
    context.write(Write::status(&next, "obstacle of the take-over changed"))?;
    effects.local.written = Some(context.began.instant);
    Ok(true)
}

/// Returns the conditions of a ClusterBootstrap with those of its Cluster about the release.
fn release_conditions(context: &Context<'_>, conditions: Vec<Condition>) -> Vec<Condition> {
    let status = context.facts.cluster.status.as_ref();
    let of_cluster = status.map(|status| status.conditions.as_slice());
    with_release(conditions, of_cluster.unwrap_or_default(), context.began.now)
}

/// Returns the versions of an upgrade that is not over which were written without an open gate. `None` if this process has seen none and an
/// earlier one may have.
fn versions_ungated<'a>(local: &'a LocalState, record: &UpgradeRecord) -> Option<&'a [Ungated]> {
    match (record.outcome, local.ungated.as_slice()) {
        (Some(_), _) => Some(&[]),
        (None, []) => None,
        (None, ungated) => Some(ungated),
    }
}

/// Returns the conditions with condition `GateInForce`, which a gate in force gets only if `adds` is true.
fn gate_in_force(
    context: &Context<'_>,
    conditions: Vec<Condition>,
    ungated: Option<&[Ungated]>,
    adds: bool,
) -> Vec<Condition> {
    if ungated.is_none() && says_ungated(&conditions) {
        return conditions;
    }
    let gate = context.facts.gate_in_force.as_ref();
    let ungated = ungated.unwrap_or_default();
    with_gate_in_force(conditions, gate, ungated, adds, context.began.now)
}

/// Returns a status that is written for other changes, with the conditions about the release and that of a gate in force: during an upgrade
/// they cost no write of their own. A Cluster that waits has those about the release already.
fn with_columns(
    context: &Context<'_>,
    status: ClusterBootstrapStatus,
    local: &LocalState,
) -> ClusterBootstrapStatus {
    let record = status.upgrade.as_ref();
    let ungated = record.map_or(Some(&[][..]), |record| versions_ungated(local, record));
    let mut conditions = gate_in_force(context, status.conditions, ungated, true);
    if !status.upgrade.as_ref().is_some_and(waits_for_others) {
        conditions = release_conditions(context, conditions);
    }
    fitted(ClusterBootstrapStatus { conditions, ..status })
}

/// Whether the upgrade of a record is held, perhaps for long, until something besides its own progress changes. The columns about the
/// release are then kept current by writes of their own.
fn waits_for_others(record: &UpgradeRecord) -> bool {
    let explanation = explain(record, None).filter(|_| record.outcome.is_none());
    explanation.is_some_and(|explanation| {
        explanation.package.is_none() && matches!(explanation.class, Some(Class::Blocked | Class::Pause))
    })
}

/// Copies the conditions of a Cluster at rest about its release to the ClusterBootstrap, which shows them in columns. A refused rollback and
/// a gate that is not in force are reported as well.
pub(super) fn report_release(
    context: &Context<'_>,
    effects: &mut Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
) -> Step<()> {
    // `clusterctl move` may be moving the ClusterBootstrap of a paused Cluster.
    if validated.paused.is_some() {
        return Ok(());
    }
    let status = bootstrap.status.clone().unwrap_or_default();
    let conditions = release_conditions(context, status.conditions.clone());
    let conditions = gate_in_force(context, conditions, Some(&[]), false);
    let conditions = match context.facts.recorded(bootstrap) {
        None => conditions,
        Some(record) => {
            let refused = rollback::refused(&validated.rollback, None);
            rollback::shown(context, conditions, refused, (bootstrap, record))
        }
    };
    if conditions == status.conditions {
        return Ok(());
    }
    let next = fitted(ClusterBootstrapStatus {
        conditions,
        ..status.clone()
    });
    if next == status {
        return Ok(());
    }
    let event = rollback_event(&status, &next);
    let next = ClusterBootstrap {
        status: Some(next),
        ..bootstrap.clone()
    };
    let written = context.write(Write::status(&next, "conditions of a Cluster at rest changed"))?;
    effects.events.extend(event);
    let version = written["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    at_rest::rest_at(context, effects, validated, bootstrap, version);
    Ok(())
}

/// Returns the event of a deadline that has passed since the previous status, or whose cause has become known or another one.
fn late(before: &ClusterBootstrapStatus, now: &ClusterBootstrapStatus) -> Option<Event> {
    let late = exceeded(now)?;
    let cause = cause_of(now);
    let is_new = exceeded(before).is_none() || cause.is_some() && cause != cause_of(before);
    is_new.then(|| Event::Warned(DEADLINE_EXCEEDED, late.message.clone()))
}

/// Returns cause and object of the held gate. The evidence may change with each probe.
fn cause_of(status: &ClusterBootstrapStatus) -> Option<(&str, &str)> {
    let cause = status.held.as_ref()?.cause.as_ref()?;
    Some((cause.name.as_str(), cause.object.as_str()))
}

/// Way to close the gates of a Cluster that no reconcile can evaluate.
#[derive(Debug)]
pub enum Close {
    /// The Cluster has no record to carry the hold.
    NoRecord,
    /// The record already carries the hold.
    Recorded,
    /// The write to make, and the event to publish after it.
    Write(Box<Write>, Option<Event>),
}

/// Closes the gates of the Cluster with this UID because of `hold`.
#[must_use]
pub fn close(bootstrap: Option<&ClusterBootstrap>, uid: &str, hold: &Hold, now: Timestamp) -> Close {
    let status = bootstrap.and_then(|bootstrap| Some((bootstrap, bootstrap.status.as_ref()?)));
    let recorded = status
        .and_then(|(bootstrap, status)| Some((bootstrap, status, of_cluster(status.upgrade.as_ref(), uid)?)));
    let Some((bootstrap, status, record)) = recorded else {
        return Close::NoRecord;
    };
    let next = ClusterBootstrapStatus {
        upgrade: Some(held_for(record, hold)),
        ..status.clone()
    };
    let next = with_summary(bootstrap, next, None, now);
    if next == *status {
        return Close::Recorded;
    }
    let late = late(status, &next);
    let next = ClusterBootstrap {
        status: Some(next),
        ..bootstrap.clone()
    };
    Close::Write(Box::new(Write::status(&next, "closing gates for a hold")), late)
}

/// Returns the observations that a record is computed from.
pub(super) fn observe<'a>(
    context: &'a Context<'_>,
    validated: &'a Validated,
    bootstrap: &'a ClusterBootstrap,
    packages: &'a Packages,
) -> Observed<'a> {
    let judged = packages.judged.as_slice();
    // A drift check that did not reach the workload gives no result for another release.
    let is_unseen = matches!(packages.drift_check, DriftCheckResult::Unseen(_));
    let is_known =
        packages.next_drift_check.is_none() && !is_unseen && judged.len() == packages.planned.len();
    let resolved = ResolvedRelease::of(bootstrap).resolved(&validated.progress);
    Observed {
        tkr: validated.release.as_deref(),
        hop: Some(&validated.progress.hop),
        bootstrap: facts(bootstrap, resolved),
        workload: packages.reach.seen(),
        swap: &validated.swap,
        rollback: validated.rollback.under_way(),
        awaits_rollback: matches!(validated.rollback, Decision::Waits(_)),
        packages: resolved.filter(|_| is_known).map(|tkr| PackageSet {
            tkr,
            hop: &validated.progress.hop,
            stage: validated.progress.stage(),
            judged,
        }),
        problem: packages.problem.as_ref(),
        overrides: packages.overrides.seen(),
        kapp_controller: packages.ownership.recorded(),
        supervisor: packages.supervisor.as_ref(),
        restored: validated.restored,
        ..blank(context)
    }
}

/// Returns the observations of the Cluster alone.
fn blank<'a>(context: &'a Context<'_>) -> Observed<'a> {
    let found = context.facts;
    Observed {
        cluster: found.cluster(),
        control_plane: found.control_plane_versions(),
        workers: &found.workers,
        plan: &found.plan,
        bootstrap: BootstrapFacts::default(),
        tkr: Ok(""),
        hop: None,
        workload: Workload::NotYet(Hold::new(
            GateReason::ClusterDeleting,
            "the Cluster is being deleted",
        )),
        swap: &NO_SWAP,
        rollback: None,
        awaits_rollback: false,
        packages: None,
        problem: None,
        overrides: Overrides::default(),
        kapp_controller: None,
        supervisor: None,
        uninstalled: false,
        restored: false,
        now: context.began.now,
    }
}

fn facts<'a>(bootstrap: &ClusterBootstrap, resolved_tkr: Option<&'a str>) -> BootstrapFacts<'a> {
    BootstrapFacts {
        generation: bootstrap.metadata.generation.unwrap_or_default(),
        paused: bootstrap.spec.paused,
        resolved_tkr,
    }
}

/// Whether the change of a status is written at once. A gate that stays open by a new proof is such a change: each reconcile would confirm
/// the proof again until it is recorded.
fn is_urgent_status(
    current: &ClusterBootstrapStatus,
    next: &ClusterBootstrapStatus,
    steps: Steps<'_>,
) -> bool {
    let records = current.upgrade.as_ref().zip(next.upgrade.as_ref());
    records.is_none_or(|(old, new)| is_urgent(old, new) || has_new_proof(Some(old), new, steps))
        || current.resolved_tkr != next.resolved_tkr
}

/// Returns the number of writes of progress of an upgrade, this write included.
fn progress_writes(
    context: &Context<'_>,
    current: &ClusterBootstrapStatus,
    next: &ClusterBootstrapStatus,
    is_urgent: bool,
) -> usize {
    let upgrade = |status: &ClusterBootstrapStatus| {
        let record = status.upgrade.as_ref()?;
        Some((record.label.clone(), record.to.clone(), record.outcome))
    };
    if upgrade(current) == upgrade(next) {
        context.local.progress_writes + usize::from(!is_urgent)
    } else {
        0
    }
}

/// Returns the time that a change without urgency still waits for its write.
fn not_yet(context: &Context<'_>, is_urgent: bool) -> Option<Duration> {
    if is_urgent {
        return None;
    }
    until_write(context.local.progress_writes, since_written(context)?)
}

/// Returns each override that opens a gate by this status and never did before, with the note of its event. A gate may close and open again
/// by the same override.
fn used_overrides(
    current: &ClusterBootstrapStatus,
    next: &ClusterBootstrapStatus,
) -> Vec<(OverriddenGate, String)> {
    let Some(next) = &next.upgrade else {
        return Vec::new();
    };
    let is_known = |gate: OverriddenGate, uid: &str| {
        let mut past = current.history.iter().flat_map(|upgrade| &upgrade.overrides);
        past.any(|past| past.gate == gate && past.uid == uid)
    };
    let mut used: Vec<(OverriddenGate, String)> = newly_used(current.upgrade.as_ref(), next)
        .filter(|(gate, _, by)| !is_known(*gate, &by.uid))
        .map(|(gate, version, by)| (gate, note_of_use(gate, version, by)))
        .collect();
    // A gate has two hooks.
    used.dedup();
    used
}

fn note_of_use(gate: OverriddenGate, version: &str, by: &GateOverride) -> String {
    let (of_version, of_name, of_user, of_reason) = LONGEST_OF_NOTE;
    format!(
        "gate {} of {} is opened without proof by UpgradeOverride {} of {}: {}",
        gate.as_str(),
        one_line(version, of_version),
        one_line(&by.name, of_name),
        one_line(&by.user, of_user),
        one_line(&by.reason, of_reason)
    )
}

fn completes(current: &ClusterBootstrapStatus, next: &ClusterBootstrapStatus) -> bool {
    let done = |status: &ClusterBootstrapStatus| {
        status
            .upgrade
            .as_ref()
            .is_some_and(|record| record.completed_at.is_some())
    };
    done(next) && !done(current)
}

/// Returns the event for the hold of the Cluster, or for the end of all holds.
fn event(status: &ClusterBootstrapStatus, unseen: Option<&Hold>) -> Option<Event> {
    let record = status.upgrade.as_ref()?;
    if let Some(hold) = unseen {
        return Some(Event::Held(hold.clone()));
    }
    if let Some(explanation) = explain(record, status.since.clone()) {
        return explanation.hold().map(Event::Held);
    }
    let note = format!("packages are ready on {}", record.to);
    Some(Event::Said("PackagesReady", note))
}

#[cfg(test)]
mod tests;
