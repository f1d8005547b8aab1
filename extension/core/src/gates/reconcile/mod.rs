//! Reconcile of the UpgradeGates of one Cluster, a pure function of the known state.
//!
//! It reads the objects that checks name, judges them, and writes the ClusterUpgrade. It writes nothing else, and nothing to a workload
//! cluster.

mod checks;
mod confirm;
mod effects;
mod pace;
mod watched;
mod write;

use std::time::Duration;

use jiff::Timestamp;
use sluice_crds::{
    foreign::Cluster,
    lifecycle::{ClusterUpgrade, ClusterUpgradeStatus, GateRecord},
    run::{Hook, Outcome},
};

pub use effects::{GateCount, GateEffects, GateLocalState};

use self::{
    checks::{Judged, Judging, judge},
    confirm::{confirm, unseen_gate},
    pace::{Turn, next, turn},
    watched::watched,
    write::{delete, delete_uid, is_owned, write},
};
use super::{
    facts::GateFacts,
    record::{GateObserved, JudgedChecks, advance, of_cluster, opens_a_gate, progress_of, withheld},
    selected::{Selected, all_select, is_in_progress, is_upgrade},
    status::status,
};
use crate::{
    decode::Undecodable,
    events::Event,
    protocol::{self, Done, Key, ReadPhase, Reconciler, Server, Step, Write},
    reasons::{Class, Hold},
    reconcile::cluster::{Close, Unknown, rests_on_control_plane},
    upgrade::{
        course::release_lag,
        hop::Progress,
        record::{Workload, class_of},
    },
    version::same,
};

/// Shortest requeue delay of a Cluster that waits for a state that no watch shows.
const UNWATCHED: Duration = Duration::from_secs(1);

/// Requeue delay of a Cluster with an unreadable control plane, or that is being created. The watch of the kind requeues it earlier.
const WITH_PROBLEM: Duration = Duration::from_secs(30);

/// Known state of one reconcile of the gates of a Cluster.
pub type Context<'a> = protocol::Context<'a, GateFacts>;

impl Reconciler for GateFacts {
    type LocalState = GateLocalState;
    type Effects = GateEffects;
    type Hold = Hold;

    fn effects(local: &GateLocalState) -> GateEffects {
        GateEffects::of(local)
    }

    fn reconcile(context: &Context<'_>, effects: &mut GateEffects) -> Step<Done> {
        reconcile(context, effects)
    }
}

/// Reconciles the gates of a Cluster as far as the known state allows. `effects` receives the results, also of an interrupted reconcile.
///
/// # Errors
/// Returns the reads or writes that must come first, or the reason why the reconcile cannot continue.
pub fn reconcile(context: &Context<'_>, effects: &mut GateEffects) -> Step<Done> {
    let facts = context.facts;
    if facts.cluster.metadata.deletion_timestamp.is_some() {
        // Gates never hold a deletion. The garbage collector deletes the ClusterUpgrade.
        return Ok(Done::Forget);
    }
    if let Some(undecodable) = &facts.upgrade_undecodable {
        return replace(context, effects, undecodable);
    }
    match &facts.unknown {
        None => {}
        // The watch of the kind requeues the Cluster.
        Some(Unknown::Reading) => return Ok(Done::RequeueAfter(WITH_PROBLEM)),
        Some(Unknown::Unreadable(hold)) => {
            close_gates_for(context, effects, hold)?;
            return Ok(Done::RequeueAfter(WITH_PROBLEM));
        }
    }
    if let Some(upgrade) = facts.upgrade.as_ref().filter(|upgrade| !is_owned(facts, upgrade)) {
        return Ok(if upgrade.metadata.deletion_timestamp.is_some() {
            Done::RequeueAfter(UNWATCHED)
        } else {
            delete(
                context,
                "the ClusterUpgrade belongs to an earlier Cluster of this name",
            )?;
            // The watch will show the deletion.
            Done::RequeueAfter(UNWATCHED)
        });
    }
    gates_of(context, effects)
}

/// Deletes a ClusterUpgrade that cannot be decoded. The next reconcile creates it again; until then hooks hold because there is no record.
///
/// During an upgrade it stays if a gate does not select the Cluster: the record may list that gate, which then holds until it selects the
/// Cluster again.
fn replace(context: &Context<'_>, effects: &mut GateEffects, undecodable: &Undecodable) -> Step<Done> {
    effects.events.push(Event::Held(undecodable.hold()));
    let facts = context.facts;
    if let Some(uid) = &undecodable.metadata.uid
        && (all_select(facts) || is_surely_at_target(context))
    {
        delete_uid(context, uid.clone(), "the ClusterUpgrade cannot be decoded")?;
    }
    // The watch will show the deletion, and each edit.
    Ok(Done::RequeueAfter(WITH_PROBLEM))
}

/// Whether a Cluster without a readable record has no upgrade in progress.
fn is_surely_at_target(context: &Context<'_>) -> bool {
    let nothing = Selected::default();
    let progress = progress_of(None, &observed(context, &nothing, None, false));
    context.facts.unknown.is_none() && is_at_target(context.facts, &progress)
}

/// Reconciles the gates of a Cluster that is known.
fn gates_of(context: &Context<'_>, effects: &mut GateEffects) -> Step<Done> {
    let facts = context.facts;
    let previous = facts.record();
    let restored = is_restored(context, previous)?;
    let progress = {
        let nothing = Selected::default();
        progress_of(previous, &observed(context, &nothing, None, restored))
    };
    if let Some(hold) = unseen_gate(context, previous)? {
        let outdated = effects
            .local
            .outdated_for_long(Some(&hold), context.began.instant);
        effects.outdated = outdated;
        close_gates_for(context, effects, &hold)?;
        return Ok(Done::RequeueAfter(UNWATCHED));
    }
    let at_target = is_at_target(facts, &progress);
    let selected = Selected::of(facts, previous, &progress.hop, at_target);
    if selected.is_empty() && !previous.is_some_and(|record| is_in_progress(record, at_target)) {
        delete(context, "no UpgradeGate selects the Cluster")?;
        return Ok(Done::Forget);
    }
    let judging = Judging {
        selected: &selected,
        previous,
        progress: &progress,
        rests: rests(facts, previous, &progress),
    };
    effects.at_rest = judging.awaits_drift_check();
    let judged = match turn(context, effects, judging) {
        Turn::Later(left) => {
            effects.watched.clone_from(&effects.local.watched);
            return Ok(Done::RequeueAfter(left));
        }
        Turn::NotNow => None,
        Turn::Now => Some(judge(context, effects, judging, ReadPhase::Plan)?),
    };
    if let Some(again) = pace::unseen(context, effects, judging, judged.as_ref()) {
        return Ok(Done::RequeueAfter(again));
    }
    let Evaluated {
        record,
        judged,
        outdated,
    } = evaluate(context, effects, judging, judged, restored)?;
    let lag = release_lag(
        &mut effects.local.proven,
        previous.map(Into::into),
        (&record).into(),
        context.began.instant,
    );
    effects.counts.extend(lag.map(GateCount::Released));
    effects.outdated = effects
        .local
        .outdated_for_long(outdated.as_ref(), context.began.instant);
    let nothing = ClusterUpgradeStatus::default();
    let current = facts.upgrade.as_ref().and_then(|upgrade| upgrade.status.as_ref());
    let is_at_rest = judging.rests || at_target;
    let status = status(
        current.unwrap_or(&nothing),
        record,
        &selected,
        is_at_rest,
        context.began.now,
    );
    let left = write(context, effects, judging, &status)?;
    let next = next(
        context,
        effects,
        judging,
        (&status, judged.as_ref(), outdated.as_ref()),
    );
    effects.watched = watched(context, judging, (&status, judged.as_ref()), next);
    effects.local.watched.clone_from(&effects.watched);
    Ok(Done::RequeueAfter(left.map_or(next, |left| left.min(next))))
}

/// Returns the observations that a record is computed from.
fn observed<'a>(
    context: &'a Context<'_>,
    selected: &'a Selected,
    judged: Option<(&'a Progress, &'a Judged)>,
    restored: bool,
) -> GateObserved<'a> {
    let facts = context.facts;
    GateObserved {
        cluster: facts.cluster(),
        control_plane: facts.control_plane_versions(),
        workers: &facts.workers,
        plan: &facts.plan,
        selected: &selected.listed,
        set: &selected.set,
        workload: judged.map_or(Workload::Reached { uid: "" }, |(_, judged)| {
            judged.reach.workload()
        }),
        checks: judged.map(|(progress, judged)| JudgedChecks {
            set: &selected.set,
            hop: &progress.hop,
            stage: progress.stage(),
            judged: &judged.checks,
        }),
        problem: selected.problem().map(|problem| &problem.hold),
        restored,
        now: context.began.now,
    }
}

/// Result of the evaluation of one reconcile.
struct Evaluated {
    record: GateRecord,
    /// Checks that the record was computed from.
    judged: Option<Judged>,
    /// Hold of an outdated cache.
    outdated: Option<Hold>,
}

/// Computes the next record. Reads confirm the evidence of gates that open, or stay open because of the version of the control plane.
fn evaluate(
    context: &Context<'_>,
    effects: &mut GateEffects,
    judging: Judging<'_>,
    judged: Option<Judged>,
    restored: bool,
) -> Step<Evaluated> {
    let (facts, previous) = (context.facts, judging.previous);
    let compute = |judged: Option<&Judged>| {
        let judged = judged.map(|judged| (judging.progress, judged));
        advance(previous, &observed(context, judging.selected, judged, restored))
    };
    let record = compute(judged.as_ref());
    let rests_on_control_plane = rests_on_control_plane(
        facts.control_plane.as_ref(),
        context.local.confirmed.as_ref(),
        (record.outcome, &record.gates),
    );
    if !opens_a_gate(previous, &record) && !rests_on_control_plane {
        return Ok(Evaluated {
            record,
            judged,
            outdated: None,
        });
    }
    let confirmed = confirm(context, effects, judging, judged.as_ref())?;
    effects.rolled_back = confirmed.rolled_back;
    let (judged, outdated, unselected) = (confirmed.judged, confirmed.outdated, confirmed.unselected);
    let mut record = compute(judged.as_ref());
    let differs = outdated.as_ref().or(unselected.as_ref());
    effects.local.confirmed = facts.control_plane.clone().filter(|_| differs.is_none());
    // No gate opens by what a silent workload API server has shown before. A Cluster at rest has no gate to open.
    let silence = judged
        .as_ref()
        .and_then(|judged| judged.reach.silence())
        .filter(|_| !judging.rests && opens_a_gate(previous, &record));
    if let Some(hold) = differs.or(silence) {
        record = withheld(previous, record, hold);
    }
    Ok(Evaluated {
        record,
        judged,
        outdated,
    })
}

/// Whether the record is ahead of the API server, and not only of the cache: a leader that had seen edits wrote it after the restore of a
/// backup, which took the edits back.
fn is_restored(context: &Context<'_>, previous: Option<&GateRecord>) -> Step<bool> {
    let (owner, cached) = (&context.facts.owner, &context.facts.cluster.metadata);
    let generation = cached.generation.unwrap_or_default();
    if previous.is_none_or(|previous| generation >= previous.observed_cluster_generation) {
        return Ok(false);
    }
    let key = Key::of::<Cluster>(Server::Management, Some(&owner.namespace), &owner.name);
    let found = context.object(key, ReadPhase::Plan)?;
    Ok(found.is_some_and(|found| {
        let metadata = &found["metadata"];
        metadata["uid"].as_str() == Some(owner.uid.as_str())
            && metadata["generation"].as_i64() == Some(generation)
    }))
}

/// Whether control plane and workers are at the target, and Cluster API waits for no hook.
fn is_at_target(facts: &GateFacts, progress: &Progress) -> bool {
    progress.settled_at_hop()
        && same(&progress.hop, &facts.topology.version)
        && are_workers_at_target(facts)
        && !facts.awaits_hooks()
}

fn are_workers_at_target(facts: &GateFacts) -> bool {
    let to = &facts.topology.version;
    facts.workers.iter().all(|worker| worker.runs(to))
}

/// Whether no upgrade is in progress: the one of the record has ended, or the Cluster is at its target and the record is of no upgrade.
fn rests(facts: &GateFacts, previous: Option<&GateRecord>, progress: &Progress) -> bool {
    let to = &facts.topology.version;
    let has_ended = |record: &GateRecord| match record.outcome {
        // Gates have no packages that go back.
        Some(Outcome::Completed | Outcome::RolledBack) => record.to == *to,
        Some(Outcome::Cancelled) => record.to == *to && !facts.awaits_hooks() && are_workers_at_target(facts),
        None => false,
    };
    previous.is_some_and(has_ended) || is_at_target(facts, progress) && !previous.is_some_and(is_upgrade)
}

/// Closes the gates of a Cluster for `hold`, because too little is known to compute a new record.
fn close_gates_for(context: &Context<'_>, effects: &mut GateEffects, hold: &Hold) -> Step<()> {
    effects.events.push(Event::Held(hold.clone()));
    let facts = context.facts;
    match close(
        facts.upgrade.as_deref(),
        &facts.owner.uid,
        hold,
        context.began.now,
    ) {
        Close::NoRecord | Close::Recorded => {}
        Close::Write(write, late) => {
            context.write(*write)?;
            effects.local.written = Some(context.began.instant);
            effects.events.extend(late);
        }
    }
    Ok(())
}

/// Closes the gates of the Cluster with this UID because of `hold`: no reconcile can evaluate it.
///
/// Gates after a step keep their verdict, and a closed record stays: it is about completed steps. A pause stays, too.
#[must_use]
pub fn close(upgrade: Option<&ClusterUpgrade>, uid: &str, hold: &Hold, now: Timestamp) -> Close {
    let recorded = upgrade.and_then(|upgrade| {
        let status = upgrade.status.clone()?;
        let record = of_cluster(status.upgrade.as_ref(), uid)?.clone();
        Some((upgrade, status, record))
    });
    let Some((upgrade, current, mut record)) = recorded else {
        return Close::NoRecord;
    };
    if record.outcome.is_some() {
        return Close::Recorded;
    }
    for gate in &mut record.gates {
        let is_withdrawn = matches!(
            gate.hook,
            Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade | Hook::BeforeWorkersUpgrade
        );
        let stays = if gate.open {
            !is_withdrawn
        } else {
            class_of(gate).is_some_and(Class::is_pause)
        };
        if !stays {
            gate.open = false;
            hold.reason.as_str().clone_into(&mut gate.reason);
            gate.message.clone_from(&hold.message);
        }
    }
    let next = status(&current, record, &Selected::default(), false, now);
    if next == current {
        return Close::Recorded;
    }
    let next = ClusterUpgrade {
        status: Some(next),
        ..upgrade.clone()
    };
    Close::Write(Box::new(Write::status(&next, "closing gates for a hold")), None)
}

#[cfg(test)]
mod tests;
