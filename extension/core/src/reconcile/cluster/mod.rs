//! One pass over one Cluster: a pure function of what is known.
//!
//! It starts from its beginning in each round. It returns the reads or writes that it still needs, and goes on from their results in
//! the next round. So nothing is recorded as done that was only intended.

mod adopt;
mod app_resync;
mod at_rest;
mod clones;
mod confirm;
mod counts;
mod delete;
mod draft;
mod drift_check;
mod effects;
mod facts;
mod failure;
mod install;
mod local_state;
mod local_states;
mod opening;
mod owners;
mod packages;
mod plan;
mod preserved;
mod provider;
mod record_first;
mod status;
mod takeover;
mod validate;
mod values;
mod workload;

use crate::events::Event;
use std::time::Duration;

pub use drift_check::first_read;
pub use effects::{Count, Effects};
pub use facts::{Facts, Settings, Unknown};
pub use failure::{ended_early, reconcile_failed};
pub use local_state::LocalState;
pub use local_states::LocalStates;
pub use status::{Close, close};

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
    reasons::Hold,
};

/// How soon a cluster is looked at again on whose workload something has to be seen that no watch shows.
const UNWATCHED: Duration = Duration::from_secs(1);

/// How soon a Cluster is looked at again whose control plane cannot be read, or which is completed and whose values cannot be had any
/// more. There may be hundreds that share the cause, such as the login of a cloud. The watch of its kind, or a
/// configuration of Sluice that has written values, wakes it; values of others are noticed at the next look.
const WITH_PROBLEM: Duration = Duration::from_secs(30);

/// All that is known to one pass over a Cluster.
pub type Context<'a> = protocol::Context<'a, Facts>;

impl Reconciler for Facts {
    type LocalState = LocalState;
    type Effects = Effects;
    type Hold = Hold;

    fn effects(memory: &LocalState) -> Effects {
        Effects::of(memory)
    }

    fn reconcile(known: &Context<'_>, effects: &mut Effects) -> Step<Done> {
        reconcile(known, effects)
    }
}

/// The pass, as far as it comes with what is known. `effects` is what it leaves, also where it does not come to its end.
///
/// # Errors
/// What has to be read or written before it goes on; or why it cannot.
pub fn reconcile(known: &Context<'_>, effects: &mut Effects) -> Step<Done> {
    let facts = known.facts;
    if facts.cluster.metadata.deletion_timestamp.is_some() {
        return deleted(known, effects);
    }
    let taken = takeover::take_over(known, effects)?;
    if let Some(done) = taken.ends() {
        return Ok(done);
    }
    if status::say_takeover(known, effects, taken.said())? {
        return Ok(Done::RequeueAfter(UNWATCHED));
    }
    match &facts.unknown {
        None => Ok(taken.sooner(packages_of(known, effects, taken.hold())?)),
        // The watch of the kind wakes the Cluster.
        Some(Unknown::Reading) => Ok(Done::RequeueAfter(WITH_PROBLEM)),
        Some(Unknown::Unreadable(hold)) => {
            status::close_gates_for(known, effects, hold)?;
            Ok(Done::RequeueAfter(WITH_PROBLEM))
        }
    }
}

/// The pass over a Cluster that is being deleted.
fn deleted(known: &Context<'_>, effects: &mut Effects) -> Step<Done> {
    let unpaused = takeover::unpause(known, effects)?;
    let done = delete::delete(known, effects)?;
    let taken = takeover::take_over_deleted(known, effects, unpaused, done)?;
    if takeover::wrote_bootstrap(known) {
        // What is wrong is said by the next pass, of the ClusterBootstrap as it is by then.
        let soon = taken.said().map(|_| Done::RequeueAfter(UNWATCHED));
        return Ok(soon.unwrap_or(taken.sooner(done)));
    }
    // The ClusterBootstrap of a paused one may be on its way to another management cluster.
    if taken.said().is_none() && known.facts.cluster().paused {
        return Ok(taken.sooner(done));
    }
    status::say_takeover(known, effects, taken.said())?;
    Ok(taken.sooner(done))
}

/// The pass over the packages of a Cluster, which `hold` may keep from being written.
fn packages_of(known: &Context<'_>, effects: &mut Effects, hold: Option<Hold>) -> Step<Done> {
    let facts = known.facts;
    let Owner { namespace, name, .. } = &facts.owner;
    let refused = facts
        .bootstrap
        .as_deref()
        .and_then(|bootstrap| too_many(&bootstrap.spec, &format!("ClusterBootstrap {namespace}/{name}")));
    if let Some(hold) = refused {
        status::close_gates_for(known, effects, &hold)?;
        return Ok(Done::RequeueAfter(WITH_PROBLEM));
    }
    let validated = validate::validate(known)?;
    let (bootstrap, problem, refusal) = draft::changed(known, &validated)?;
    let Some(bootstrap) = bootstrap else {
        return Ok(without_bootstrap(known, effects, problem));
    };
    let problem = hold.or(problem);
    let again = at_rest::waits_for_operator(known, effects, &validated, &bootstrap, problem.as_ref());
    if let (Some(again), Some(problem)) = (again, &problem) {
        status::close_gates_for(known, effects, problem)?;
        return Ok(Done::RequeueAfter(again));
    }
    // The ClusterBootstrap may have been edited since the packages of the release were merged into it.
    let problem = match problem {
        Some(problem) => Some(problem),
        None => validate::below_release(known, &validated, &bootstrap)?,
    };
    if problem.is_none()
        && let Some(left) = at_rest::rests(known, effects, &validated, &bootstrap)
    {
        return Ok(Done::RequeueAfter(left));
    }
    effects.memory.wake();
    let not_made = clones::restore(known, &validated, &bootstrap)?;
    let not_adopted = adopt::adopt(known, effects, &validated, &bootstrap, refusal)?;
    let refused = not_made.or(not_adopted);
    let (mut packages, may_write) =
        packages::packages(known, effects, &validated, &bootstrap, problem.as_ref(), refused)?;
    if may_write {
        packages.record_first =
            record_first::closes_a_gate(known, &effects.memory, &validated, &bootstrap, &packages);
        if !packages.record_first {
            packages.install(known, effects)?;
            app_resync::run(known, effects, &packages)?;
        }
    }
    status::status(known, effects, &validated, &bootstrap, packages)
}

/// A Cluster without ClusterBootstrap has no record to carry the reason, so hooks and events do.
fn without_bootstrap(known: &Context<'_>, effects: &mut Effects, problem: Option<Hold>) -> Done {
    effects.note = Some(problem.clone());
    let Some(hold) = problem else {
        return Done::AwaitChange;
    };
    effects.events.push(Event::Held(hold));
    Done::RequeueAfter(effects.memory.wait(&known.facts.owner.uid, known.began.instant))
}

#[cfg(test)]
mod tests;
