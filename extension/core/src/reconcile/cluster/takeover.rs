//! Removal of the leftovers of the addons-manager from a Cluster: its pause, its finalizers, and the annotation of its Machines.
//!
//! Machines are read only while leftovers may exist. A failed removal never holds a hook; a condition and an event report it. Sluice
//! leaves a leftover alone for a while if it returns after its removal: otherwise both controllers keep overwriting each other.

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

/// Result of a part of a take-over.
#[derive(Debug, Default)]
pub(super) struct TakenOver {
    /// Whether cached objects were written: later steps need their new versions.
    written: bool,
    /// Reason and message of the problem.
    said: Option<(&'static str, String)>,
    /// Whether the check for leftovers was skipped because a user paused the Cluster. Its watch shows the end of the pause.
    paused: bool,
    /// Delay before another attempt at a failed removal.
    again: Option<Duration>,
}

impl TakenOver {
    /// Returns reason and message of the problem, if any.
    pub(super) fn said(&self) -> Option<(&'static str, &str)> {
        const PAUSED: (&str, &str) = (
            GateReason::ClusterPaused.as_str(),
            "the Cluster is paused: Sluice removes leftovers of the addons-manager once it is unpaused",
        );
        let said = self.said.as_ref();
        said.map(|(reason, message)| (*reason, message.as_str()))
            .or_else(|| self.paused.then_some(PAUSED))
    }

    /// Returns the end of the reconcile if cached objects are outdated; their watches requeue the Cluster.
    pub(super) fn ends(&self) -> Option<Done> {
        self.written.then_some(Done::RequeueAfter(UNWATCHED))
    }

    /// Returns `done`, or an earlier requeue after a failed removal.
    pub(super) fn sooner(&self, done: Done) -> Done {
        match (self.again, done) {
            (None, done) => done,
            (Some(again), Done::RequeueAfter(time)) => Done::RequeueAfter(time.min(again)),
            (Some(again), Done::AwaitChange | Done::Forget) => Done::RequeueAfter(again),
        }
    }

    /// Returns the hold that closes gates and blocks writes to the workload: a running addons-manager writes the same PackageInstalls.
    pub(super) fn hold(&self) -> Option<Hold> {
        let (reason, message) = self.said()?;
        let runs = reason == GateReason::AddonsManagerRuns.as_str();
        runs.then(|| Hold::new(GateReason::AddonsManagerRuns, message))
    }
}

/// Removes the leftovers of the addons-manager.
pub(super) fn take_over(context: &Context<'_>, effects: &mut Effects) -> Step<TakenOver> {
    let mut taken = TakenOver::default();
    // The progress of the Cluster must be known before Cluster API may continue.
    let is_known = context.facts.unknown.is_none();
    if !(is_known && remove_pause(context, effects, &mut taken)?) {
        remove_leftovers(context, effects, &mut taken)?;
    }
    Ok(ended(context, effects, taken))
}

/// Removes the leftovers of a Cluster that is being deleted, given the result `done` of the deletion. Its Machines stay while packages
/// are uninstalled from them without a hook that holds them, up to the deletion limit.
pub(super) fn take_over_deleted(
    context: &Context<'_>,
    effects: &mut Effects,
    unpaused: TakenOver,
    done: Done,
) -> Step<TakenOver> {
    let mut taken = unpaused;
    let cluster = &context.facts.cluster;
    let overdue = cluster.metadata.deletion_timestamp.as_ref().is_some_and(|since| {
        let limit = context.facts.settings.deletion_limit;
        is_overdue(since.0, context.facts.server_now, limit)
    });
    let uninstalls = matches!(done, Done::RequeueAfter(_)) && is_let_go(cluster) && !overdue;
    if !uninstalls && pause_to_remove(context).is_none() {
        remove_leftovers(context, effects, &mut taken)?;
    }
    Ok(ended(context, effects, taken))
}

/// Removes the pause of the addons-manager from a Cluster that is being deleted.
pub(super) fn unpause(context: &Context<'_>, effects: &mut Effects) -> Step<TakenOver> {
    let mut taken = TakenOver::default();
    remove_pause(context, effects, &mut taken)?;
    Ok(taken)
}

/// Whether this reconcile has written the ClusterBootstrap or its status, so that the cached one is outdated.
pub(super) fn wrote_bootstrap(context: &Context<'_>) -> bool {
    let key = of_bootstrap(context);
    let mut verbs = [Verb::ReplaceStatus, Verb::Patch].into_iter();
    verbs.any(|verb| context.made(&key, verb).is_some())
}

/// Adds the problem of a running addons-manager, the delay and the event to `taken`.
fn ended(context: &Context<'_>, effects: &mut Effects, mut taken: TakenOver) -> TakenOver {
    let removals = &mut effects.local.removals;
    let (now, period) = (context.began.instant, context.facts.settings.sync_period.length);
    if let Some(thing) = removals.returned(now, period) {
        let message = format!(
            "{thing} returned after its removal: the addons-manager still runs, or another client writes it; scale the \
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

/// Returns the removable pause of the addons-manager.
fn pause_to_remove(context: &Context<'_>) -> Option<LegacyPause> {
    legacy_pause(&context.facts.cluster, context.facts.record())
}

/// Removes the pause of the addons-manager, if the record covers the current Cluster. Returns whether the pause needs a write.
fn remove_pause(context: &Context<'_>, effects: &mut Effects, taken: &mut TakenOver) -> Step<bool> {
    let cluster = &context.facts.cluster;
    let Some(pause) = pause_to_remove(context) else {
        return Ok(false);
    };
    match seen(context, effects, Thing::Pause, &cluster.metadata) {
        LeftoverState::Left => {}
        LeftoverState::Outdated => return Ok(true),
        LeftoverState::Returned => return Ok(false),
    }
    let mut patch = exactly(&cluster.metadata);
    patch["metadata"]["annotations"] = json!({annotation::LEGACY_PAUSED: null});
    if pause.stopped {
        patch["spec"] = json!({"paused": Value::Null});
    }
    let written = match context.write(Write::patch(
        of_cluster(context),
        patch,
        "the record replaces the pause of the addons-manager",
    )) {
        Ok(written) => written,
        Err(Interrupt::Failed(failure)) if !failure.is_conflict() => {
            // The rest of the reconcile does not depend on it: the packages of a paused Cluster can be proven.
            let note = format!("the pause of the addons-manager cannot be removed: {failure}");
            effects.events.push(Event::Said("LegacyPauseNotRemoved", note));
            taken.said = Some(not_removed(
                &of_cluster(context).to_string(),
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
        let removals = &mut effects.local.removals;
        removals.put_back(Thing::Pause, context.began.instant);
        return Ok(true);
    }
    removed(context, effects, Thing::Pause, &cluster.metadata);
    taken.written = true;
    if pause.stopped {
        let note = "removed the pause of the addons-manager: the next step of the Cluster is released";
        effects
            .events
            .push(Event::Said("LegacyPauseRemoved", note.to_owned()));
    }
    Ok(true)
}

/// Removes annotations of Machines, then finalizers, the one of the Cluster last: while it exists, Sluice checks for leftovers.
fn remove_leftovers(context: &Context<'_>, effects: &mut Effects, taken: &mut TakenOver) -> Step<()> {
    let facts = context.facts;
    let (cluster, bootstrap) = (&facts.cluster, facts.bootstrap.as_deref());
    // An earlier process may have failed after it removed the finalizers.
    let status = bootstrap.and_then(|bootstrap| bootstrap.status.as_ref());
    let is_said = status.is_some_and(|status| says_takeover(&status.conditions));
    let is_recorded = facts.record().is_some() && !effects.local.removals.has_failed();
    if !(is_said || may_be_left(cluster, bootstrap, is_recorded) || kubeconfig_has_finalizer(context)) {
        return Ok(());
    }
    // A pause of a user keeps other controllers away, too. Its record is written anyway, so `paused` notes the skipped check.
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
            match seen(context, effects, thing, object) {
                LeftoverState::Left => {}
                LeftoverState::Outdated | LeftoverState::Returned => return Ok(()),
            }
        }
    }
    let leftovers = match leftovers(context) {
        Ok(leftovers) => leftovers,
        Err(Interrupt::Failed(failure)) => {
            let of = &facts.owner;
            let (namespace, name) = (&of.namespace, &of.name);
            let of = format!("Machines and Secret {name}-kubeconfig of Cluster {namespace}/{name}");
            taken.said = Some(not_removed(&of, "leftovers", &failure));
            return Ok(());
        }
        Err(stop) => return Err(stop),
    };
    let removal = remove(context, &leftovers)?;
    for (thing, object) in in_memory {
        let key = match thing {
            Thing::Bootstrap => of_bootstrap(context),
            _ => of_cluster(context),
        };
        if let (Some(object), Some(_)) = (object, context.made(&key, Verb::Patch)) {
            if removal.removed.iter().any(|left| left.key == key) {
                removed(context, effects, thing, object);
            } else {
                let removals = &mut effects.local.removals;
                removals.put_back(thing, context.began.instant);
            }
        }
    }
    if !removal.removed.is_empty() {
        let note = note(&removal.removed);
        effects.events.push(Event::Said("LegacyLeftoversRemoved", note));
    }
    match removal.failed {
        None => taken.written = removal.wrote,
        // Another client has written the object; its watch, or the next list, shows the new version.
        Some((_, failure)) if failure.is_conflict() => {
            (taken.written, taken.again) = (removal.wrote, Some(UNWATCHED));
        }
        // The rest of the reconcile continues with the cached objects.
        Some((left, failure)) => {
            taken.said = Some(not_removed(&left.key.to_string(), left.what, &failure));
        }
    }
    Ok(())
}

fn seen(context: &Context<'_>, effects: &mut Effects, thing: Thing, object: &ObjectMeta) -> LeftoverState {
    let version = object.resource_version.as_deref().unwrap_or_default();
    let period = context.facts.settings.sync_period.length;
    effects
        .local
        .removals
        .seen(thing, version, period, context.began.instant)
}

fn removed(context: &Context<'_>, effects: &mut Effects, thing: Thing, object: &ObjectMeta) {
    let version = object.resource_version.clone().unwrap_or_default();
    effects
        .local
        .removals
        .removed(thing, version, context.began.instant);
}

#[cfg(test)]
mod tests;
