//! What the addons-manager has left on a Cluster and beside it goes: its pause, its finalizers, and the annotation of its Machines.
//!
//! Machines are read only while something may be left. What cannot be removed holds no hook; a condition and an event say it. What is
//! there again after it was removed is left alone for a while: two that write the same would never come to an end.

mod leftovers;
mod removals;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use sluice_crds::labels::annotation;

use super::{
    Context, Done, Interrupt, Step, UNWATCHED, Verb, effects::Effects, failure::not_removed, write::Write,
};
use crate::events::Event;
use crate::{
    cluster::{LegacyPause, is_paused, legacy_pause},
    migration::{is_let_go, may_be_left, without_finalizer},
    reasons::{GateReason, Hold},
    server_time::is_overdue,
    summary::conditions::says_takeover,
};

use leftovers::{exactly, kubeconfig_has_finalizer, leftovers, note, of_bootstrap, of_cluster, remove};
pub(super) use removals::{LeftoverState, Removals, Thing};

/// What a part of a take-over came to.
#[derive(Debug, Default)]
pub(super) struct TakenOver {
    /// Whether objects that are in memory were written: what follows is computed from them as they are by now.
    written: bool,
    /// What is wrong: reason and message.
    said: Option<(&'static str, String)>,
    /// Whether nothing was looked for because a user has paused the Cluster. Its watch shows when that ends.
    paused: bool,
    /// When to try again what was not removed.
    again: Option<Duration>,
}

impl TakenOver {
    /// What is wrong, if anything.
    pub(super) fn said(&self) -> Option<(&'static str, &str)> {
        const PAUSED: (&str, &str) = (
            GateReason::ClusterPaused.as_str(),
            "the Cluster is paused: what the addons-manager may have left is removed when it is not paused any more",
        );
        let said = self.said.as_ref();
        said.map(|(reason, message)| (*reason, message.as_str()))
            .or_else(|| self.paused.then_some(PAUSED))
    }

    /// How the pass ends at once, because objects in memory are other ones by now; their watches wake the Cluster.
    pub(super) fn ends(&self) -> Option<Done> {
        self.written.then_some(Done::RequeueAfter(UNWATCHED))
    }

    /// `done`, or sooner where something was not removed.
    pub(super) fn sooner(&self, done: Done) -> Done {
        match (self.again, done) {
            (None, done) => done,
            (Some(again), Done::RequeueAfter(time)) => Done::RequeueAfter(time.min(again)),
            (Some(again), Done::AwaitChange | Done::Forget) => Done::RequeueAfter(again),
        }
    }

    /// Why nothing is written to the workload and gates are closed: the addons-manager would write the same PackageInstalls.
    pub(super) fn hold(&self) -> Option<Hold> {
        let (reason, message) = self.said()?;
        let runs = reason == GateReason::AddonsManagerRuns.as_str();
        runs.then(|| Hold::new(GateReason::AddonsManagerRuns, message))
    }
}

/// Removes what is left of the addons-manager.
pub(super) fn take_over(known: &Context<'_>, effects: &mut Effects) -> Step<TakenOver> {
    let mut taken = TakenOver::default();
    // How far the Cluster is has to be known before Cluster API may go on with it.
    let is_known = known.facts.unknown.is_none();
    if !(is_known && remove_pause(known, effects, &mut taken)?) {
        remove_leftovers(known, effects, &mut taken)?;
    }
    Ok(ended(known, effects, taken))
}

/// The same for a Cluster that is being deleted, after what `done` came to: its Machines stay while packages are uninstalled from them
/// and no hook keeps them any more, as long as that may take.
pub(super) fn take_over_deleted(
    known: &Context<'_>,
    effects: &mut Effects,
    unpaused: TakenOver,
    done: Done,
) -> Step<TakenOver> {
    let mut taken = unpaused;
    let cluster = &known.facts.cluster;
    let overdue = cluster.metadata.deletion_timestamp.as_ref().is_some_and(|since| {
        let limit = known.facts.settings.deletion_limit;
        is_overdue(since.0, known.facts.server_now, limit)
    });
    let uninstalls = matches!(done, Done::RequeueAfter(_)) && is_let_go(cluster) && !overdue;
    if !uninstalls && pause_to_remove(known).is_none() {
        remove_leftovers(known, effects, &mut taken)?;
    }
    Ok(ended(known, effects, taken))
}

/// Removes what is left of a pause of a Cluster that is being deleted.
pub(super) fn unpause(known: &Context<'_>, effects: &mut Effects) -> Step<TakenOver> {
    let mut taken = TakenOver::default();
    remove_pause(known, effects, &mut taken)?;
    Ok(taken)
}

/// Whether this pass has written the ClusterBootstrap or its status, so that it is another one by now.
pub(super) fn wrote_bootstrap(known: &Context<'_>) -> bool {
    let key = of_bootstrap(known);
    let mut verbs = [Verb::ReplaceStatus, Verb::Patch].into_iter();
    verbs.any(|verb| known.made(&key, verb).is_some())
}

/// With what is known of the addons-manager itself.
fn ended(known: &Context<'_>, effects: &mut Effects, mut taken: TakenOver) -> TakenOver {
    let removals = &mut effects.memory.removals;
    let (now, period) = (known.began.instant, known.facts.settings.sync_period.length);
    if let Some(thing) = removals.returned(now, period) {
        let message = format!(
            "{thing} is there again after it was removed: the addons-manager still runs, or something else writes it; scale the \
             Deployment of the addons-manager to 0 (docs/migrating.md)"
        );
        taken.said = Some((GateReason::AddonsManagerRuns.as_str(), message));
    }
    let failed = taken.said.is_some();
    if let Some(again) = removals.again(failed, now, period) {
        taken.again.get_or_insert(again);
    }
    if let Some((reason, message)) = &taken.said {
        effects.events.push(Event::Warned(reason, message.clone()));
    }
    taken
}

/// The pause of the addons-manager that can be removed.
fn pause_to_remove(known: &Context<'_>) -> Option<LegacyPause> {
    legacy_pause(&known.facts.cluster, known.facts.record())
}

/// Removes what is left of a pause, if the record releases the Cluster as it is. Says whether the Cluster is written for it.
fn remove_pause(known: &Context<'_>, effects: &mut Effects, taken: &mut TakenOver) -> Step<bool> {
    let cluster = &known.facts.cluster;
    let Some(pause) = pause_to_remove(known) else {
        return Ok(false);
    };
    match seen(known, effects, Thing::Pause, &cluster.metadata) {
        LeftoverState::Left => {}
        LeftoverState::Outdated => return Ok(true),
        LeftoverState::Returned => return Ok(false),
    }
    let mut patch = exactly(&cluster.metadata);
    patch["metadata"]["annotations"] = json!({annotation::LEGACY_PAUSED: null});
    if pause.stopped {
        patch["spec"] = json!({"paused": Value::Null});
    }
    let written = match known.write(Write::patch(
        of_cluster(known),
        patch,
        "the record holds the Cluster instead",
    )) {
        Ok(written) => written,
        Err(Interrupt::Failed(failure)) if !failure.is_conflict() => {
            // The rest of the pass does not depend on it: the packages of a paused Cluster can be proven.
            let note = format!("the pause of the addons-manager cannot be removed: {failure}");
            effects.events.push(Event::Said("LegacyPauseNotRemoved", note));
            taken.said = Some(not_removed(
                &of_cluster(known).to_string(),
                "spec.paused and the annotation of the addons-manager",
                &failure,
            ));
            return Ok(true);
        }
        Err(stop) => return Err(stop),
    };
    let is_back = !written["metadata"]["annotations"][annotation::LEGACY_PAUSED].is_null()
        || pause.stopped && written["spec"]["paused"] == json!(true);
    if is_back {
        let removals = &mut effects.memory.removals;
        removals.put_back(Thing::Pause, known.began.instant);
        return Ok(true);
    }
    removed(known, effects, Thing::Pause, &cluster.metadata);
    taken.written = true;
    if pause.stopped {
        let note = "removed the pause of the addons-manager: the next step of the Cluster is released";
        effects
            .events
            .push(Event::Said("LegacyPauseRemoved", note.to_owned()));
    }
    Ok(true)
}

/// Removes annotations of Machines and finalizers, the one of the Cluster after others: while it is there they are looked for.
fn remove_leftovers(known: &Context<'_>, effects: &mut Effects, taken: &mut TakenOver) -> Step<()> {
    let facts = known.facts;
    let (cluster, bootstrap) = (&facts.cluster, facts.bootstrap.as_deref());
    // A process before may have failed, and the finalizers may be gone already.
    let status = bootstrap.and_then(|bootstrap| bootstrap.status.as_ref());
    let is_said = status.is_some_and(|status| says_takeover(&status.conditions));
    let is_recorded = facts.record().is_some() && !effects.memory.removals.has_failed();
    if !(is_said || may_be_left(cluster, bootstrap, is_recorded) || kubeconfig_has_finalizer(known)) {
        return Ok(());
    }
    // A pause of a user keeps others away, too. A record of it is written nevertheless, so something else has to say that nothing was
    // looked for yet.
    if is_paused(cluster) {
        taken.paused = cluster.metadata.deletion_timestamp.is_none();
        return Ok(());
    }
    let in_memory = [
        (Thing::Bootstrap, bootstrap.map(|bootstrap| &bootstrap.metadata)),
        (Thing::Cluster, Some(&cluster.metadata)),
    ];
    for (thing, object) in in_memory.clone() {
        if let Some(object) = object.filter(|object| without_finalizer(object).is_some()) {
            match seen(known, effects, thing, object) {
                LeftoverState::Left => {}
                LeftoverState::Outdated | LeftoverState::Returned => return Ok(()),
            }
        }
    }
    let leftovers = match leftovers(known) {
        Ok(leftovers) => leftovers,
        Err(Interrupt::Failed(failure)) => {
            let of = &facts.owner;
            let (namespace, name) = (&of.namespace, &of.name);
            let of = format!("Machines and Secret {name}-kubeconfig of Cluster {namespace}/{name}");
            taken.said = Some(not_removed(
                &of,
                "what the addons-manager has left there",
                &failure,
            ));
            return Ok(());
        }
        Err(stop) => return Err(stop),
    };
    let removal = remove(known, &leftovers)?;
    for (thing, object) in in_memory {
        let key = match thing {
            Thing::Bootstrap => of_bootstrap(known),
            _ => of_cluster(known),
        };
        if let (Some(object), Some(_)) = (object, known.made(&key, Verb::Patch)) {
            if removal.removed.iter().any(|left| left.key == key) {
                removed(known, effects, thing, object);
            } else {
                let removals = &mut effects.memory.removals;
                removals.put_back(thing, known.began.instant);
            }
        }
    }
    if !removal.removed.is_empty() {
        let note = note(&removal.removed);
        effects.events.push(Event::Said("LegacyLeftoversRemoved", note));
    }
    match removal.failed {
        None => taken.written = removal.wrote,
        // Another one has written it; its watch, or the next list, shows it as it is.
        Some((_, failure)) if failure.is_conflict() => {
            (taken.written, taken.again) = (removal.wrote, Some(UNWATCHED));
        }
        // What else the pass does is computed from objects as they are.
        Some((left, failure)) => {
            taken.said = Some(not_removed(&left.key.to_string(), left.what, &failure));
        }
    }
    Ok(())
}

fn seen(known: &Context<'_>, effects: &mut Effects, thing: Thing, object: &ObjectMeta) -> LeftoverState {
    let version = object.resource_version.as_deref().unwrap_or_default();
    let period = known.facts.settings.sync_period.length;
    effects
        .memory
        .removals
        .seen(thing, version, period, known.began.instant)
}

fn removed(known: &Context<'_>, effects: &mut Effects, thing: Thing, object: &ObjectMeta) {
    let version = object.resource_version.clone().unwrap_or_default();
    effects
        .memory
        .removals
        .removed(thing, version, known.began.instant);
}

#[cfg(test)]
mod tests;
