//! Reconcile of one Cluster, a pure function of the known state.
//!
//! Each round runs the function from its start. It returns the missing reads or writes, and the next round continues with their
//! results. An intended write is therefore never recorded as done.

mod adopt;
mod app_resync;
mod at_rest;
mod clones;
mod confirm;
mod confirm_cluster;
mod counts;
mod delete;
mod draft;
mod drift_check;
mod effects;
mod evidence;
mod facts;
mod failure;
mod held_probe;
mod hop_entry;
mod install;
mod local_state;
mod local_states;
mod management;
mod opening;
mod overrides;
mod owners;
mod packages;
mod plan;
mod preserved;
mod provider;
mod record_first;
mod relabel;
mod requirements;
mod rollback;
mod status;
mod supervisor;
mod swap;
mod takeover;
mod upgrade_warnings;
mod validate;
mod values;
mod values_cache;
mod workload;

use crate::events::Event;
use std::time::Duration;

pub use drift_check::first_read;
pub use effects::{Count, Effects};
pub use facts::{CachedControlPlane, Facts, Settings, Unknown};
pub use failure::{ended_early, reconcile_failed};
pub use local_state::LocalState;
pub use local_states::LocalStates;
pub use status::{Close, close};

pub(crate) use confirm_cluster::{confirm_cluster, rests_on_control_plane};
pub(crate) use facts::workers;
pub(crate) use failure::{silent, unanswered};
pub(crate) use management::may_be_unmanaged;
pub(crate) use validate::{NextHop, next_hop};
pub(crate) use values::values;
pub(crate) use workload::connect;

pub use crate::{
    clock::Clock,
    protocol::{
        Contact, Done, Failure, Interrupt, Key, Object, ParsedKubeconfig, Read, ReadPhase, ReadPoint,
        ReadResult, Resource, Server, Step, Verb, Watched, Write,
    },
};

use crate::{
    packages::{bootstrap::too_many, build::Owner},
    protocol::{self, Reconciler, context, interrupt, read, write},
    reasons::{Hold, graver},
};

/// Requeue delay of a Cluster that waits for a state of its workload that no watch shows.
const UNWATCHED: Duration = Duration::from_secs(1);

/// Requeue delay of a Cluster with an unreadable control plane, and of a completed one whose values are no longer available.
/// Hundreds of Clusters may share the cause, such as the login of a cloud. The watch of the kind requeues the Cluster earlier, and so
/// does a configuration of Sluice that has written values. Values of other providers are noticed at the next requeue.
const WITH_PROBLEM: Duration = Duration::from_secs(30);

/// Known state of one reconcile of a Cluster.
pub type Context<'a> = protocol::Context<'a, Facts>;

impl Reconciler for Facts {
    type LocalState = LocalState;
    type Effects = Effects;
    type Hold = Hold;

    fn effects(local: &LocalState) -> Effects {
        Effects::of(local)
    }

    fn reconcile(context: &Context<'_>, effects: &mut Effects) -> Step<Done> {
        reconcile(context, effects)
    }
}

/// Reconciles a Cluster as far as the known state allows. `effects` receives the results, also of an interrupted reconcile.
///
/// # Errors
/// Returns the reads or writes that must come first, or the reason why the reconcile cannot continue.
pub fn reconcile(context: &Context<'_>, effects: &mut Effects) -> Step<Done> {
    let facts = context.facts;
    if facts.cluster.metadata.deletion_timestamp.is_some() {
        return deleted(context, effects);
    }
    let taken = takeover::take_over(context, effects)?;
    if let Some(done) = taken.ends() {
        return Ok(done);
    }
    if status::report_takeover(context, effects, taken.said())? {
        return Ok(Done::RequeueAfter(UNWATCHED));
    }
    swap::warn_of_edit(context, effects);
    match &facts.unknown {
        None => Ok(taken.sooner(packages_of(context, effects, taken.hold())?)),
        // The watch of the kind requeues the Cluster.
        Some(Unknown::Reading) => Ok(Done::RequeueAfter(WITH_PROBLEM)),
        Some(Unknown::Unreadable(hold)) => {
            status::close_gates_for(context, effects, hold)?;
            Ok(Done::RequeueAfter(WITH_PROBLEM))
        }
    }
}

/// Reconciles a Cluster that is being deleted.
fn deleted(context: &Context<'_>, effects: &mut Effects) -> Step<Done> {
    let unpaused = takeover::unpause(context, effects)?;
    let done = delete::delete(context, effects)?;
    let taken = takeover::take_over_deleted(context, effects, unpaused, done)?;
    if takeover::wrote_bootstrap(context) {
        // The next reconcile reports the problem: this one has changed the ClusterBootstrap.
        let soon = taken.said().map(|_| Done::RequeueAfter(UNWATCHED));
        return Ok(soon.unwrap_or(taken.sooner(done)));
    }
    // `clusterctl move` may be moving the ClusterBootstrap of a paused Cluster to another management cluster.
    if taken.said().is_none() && context.facts.cluster().paused {
        return Ok(taken.sooner(done));
    }
    status::report_takeover(context, effects, taken.said())?;
    Ok(taken.sooner(done))
}

/// Reconciles the packages of a Cluster. A `hold` blocks their writes.
fn packages_of(context: &Context<'_>, effects: &mut Effects, hold: Option<Hold>) -> Step<Done> {
    let facts = context.facts;
    let Owner { namespace, name, .. } = &facts.owner;
    let refused = facts
        .bootstrap
        .as_deref()
        .and_then(|bootstrap| too_many(&bootstrap.spec, &format!("ClusterBootstrap {namespace}/{name}")));
    if let Some(hold) = refused {
        status::close_gates_for(context, effects, &hold)?;
        return Ok(Done::RequeueAfter(WITH_PROBLEM));
    }
    let validated = validate::validate(context)?;
    rollback::warn_of_unchecked_version(context, effects, &validated.rollback);
    let hold = match hold {
        None if validated.paused.is_none() => relabel::relabel(context, effects)?,
        hold => hold,
    };
    if hold.is_none()
        && validated.paused.is_none()
        && let Some(done) = hop_entry::write(context, effects, &validated)?
    {
        return Ok(done);
    }
    let (bootstrap, problem, refusal) = draft::changed(context, &validated)?;
    let Some(bootstrap) = bootstrap else {
        return Ok(without_bootstrap(context, effects, problem));
    };
    let problem = hold.or(problem);
    let again = at_rest::waits_for_operator(context, effects, &validated, &bootstrap, problem.as_ref());
    if let (Some(again), Some(problem)) = (again, &problem) {
        status::close_gates_for(context, effects, problem)?;
        return Ok(Done::RequeueAfter(again));
    }
    // A user may have edited the ClusterBootstrap since Sluice merged the packages of the release into it.
    let problem = match problem {
        // No override passes a package below the release.
        Some(problem) if !problem.reason.overridable().is_passed_by_every() => Some(problem),
        problem => graver(problem, validate::below_release(context, &validated, &bootstrap)?),
    };
    if problem.is_none()
        && let Some(left) = at_rest::rests(context, effects, &validated, &bootstrap)
    {
        status::report_release(context, effects, &validated, &bootstrap)?;
        return Ok(Done::RequeueAfter(left));
    }
    effects.local.end_rest();
    let not_made = clones::restore(context, &validated, &bootstrap)?;
    let not_adopted = adopt::adopt(context, effects, &validated, &bootstrap, refusal)?;
    let refused = not_made.or(not_adopted);
    let (mut packages, may_write) = packages::packages(
        context,
        effects,
        &validated,
        &bootstrap,
        problem.as_ref(),
        refused,
    )?;
    if may_write {
        packages.record_first =
            record_first::closes_a_gate(context, &effects.local, &validated, &bootstrap, &packages);
        if !packages.record_first {
            packages.install(context, effects)?;
            app_resync::run(context, effects, &packages)?;
        }
    }
    status::status(context, effects, &validated, &bootstrap, packages)
}

/// Reports the hold of a Cluster without ClusterBootstrap through hooks and events, because it has no record.
fn without_bootstrap(context: &Context<'_>, effects: &mut Effects, problem: Option<Hold>) -> Done {
    effects.note = Some(problem.clone());
    let Some(hold) = problem else {
        return Done::AwaitChange;
    };
    effects.events.push(Event::Held(hold));
    Done::RequeueAfter(
        effects
            .local
            .wait(&context.facts.owner.uid, context.began.instant),
    )
}

#[cfg(test)]
pub(crate) mod tests;
