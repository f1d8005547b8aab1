//! When objects are read, and when the Cluster is requeued.

use std::time::Duration;

use sluice_crds::lifecycle::ClusterUpgradeStatus;

use super::{
    Context, GateEffects, UNWATCHED, WITH_PROBLEM,
    checks::{Judged, Judging},
};
use crate::{
    gates::status::{HELD, condition, until_deadline},
    reasons::{Class, GateReason, Hold},
    upgrade::hop::{UpgradeDirection, WorkerFacts},
    version::same,
};

/// Requeue delay of a Cluster with an upgrade in progress that no gate holds, and longest one of a Cluster that a check holds.
const HOT: Duration = Duration::from_secs(5);

/// Longest requeue delay of a Cluster with an upgrade in progress that waits for a user, or whose reads fail.
pub(super) const SLOW: Duration = Duration::from_mins(1);

/// Whether objects are read now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// They are.
    Now,
    /// Nothing is judged in this reconcile.
    NotNow,
    /// They were read a moment ago; reconcile again after this time.
    Later(Duration),
}

/// Returns whether objects are read now: at each drift check of a Cluster at rest, and otherwise at most once a second for the same inputs, but for some early reads.
pub(super) fn turn(context: &Context<'_>, effects: &mut GateEffects, judging: Judging<'_>) -> Turn {
    let (facts, now) = (context.facts, context.began.instant);
    let Judging {
        selected, progress, ..
    } = judging;
    // There is no hop while the steps are unknown, and no add-on before there is a control plane.
    if progress.direction == UpgradeDirection::PlanUnknown || progress.stage().is_none() {
        return Turn::NotNow;
    }
    if judging.rests {
        let period = facts.settings.sync_period;
        let left = effects.local.until_drift_check(&facts.owner.uid, period, now);
        if judging.awaits_drift_check() && left.is_some() {
            return Turn::NotNow;
        }
        let next = period.until_resync(&facts.owner.uid, now);
        effects.local.drift_check_made(next, now);
        return Turn::Now;
    }
    let cluster = facts.cluster();
    let inputs = format!(
        "{} {} {:?} {} {} {}",
        selected.set, progress.hop, progress.phase, cluster.generation, cluster.paused, cluster.start_held
    );
    if let Some(left) = context.local.until_read(&inputs, now) {
        return Turn::Later(left);
    }
    effects.local.has_read(inputs, now);
    Turn::Now
}

/// Returns the requeue delay after a drift check that did not reach the workload. It says nothing about the checks, and holds nothing.
pub(super) fn unseen(
    context: &Context<'_>,
    effects: &mut GateEffects,
    judging: Judging<'_>,
    judged: Option<&Judged>,
) -> Option<Duration> {
    let judged = judged?;
    let now = context.began.instant;
    let failing = effects.local.failing(judged.fails, now);
    if !judging.rests || judged.reach.silence().is_none() {
        return None;
    }
    let period = context.facts.settings.sync_period.length;
    let lasted = failing.unwrap_or_default();
    let again = (lasted / 10).clamp(WITH_PROBLEM, period.max(WITH_PROBLEM));
    effects.local.drift_check_made(again, now);
    let is_recorded = judging
        .previous
        .is_some_and(|record| record.set.as_ref() == Some(&judging.selected.set));
    is_recorded.then_some(again)
}

/// Returns the requeue delay of a Cluster with this next status.
pub(super) fn next(
    context: &Context<'_>,
    effects: &mut GateEffects,
    judging: Judging<'_>,
    (status, judged, outdated): (&ClusterUpgradeStatus, Option<&Judged>, Option<&Hold>),
) -> Duration {
    let (facts, now) = (context.facts, context.began.instant);
    if outdated.is_some() {
        return UNWATCHED;
    }
    if judging.rests {
        let period = facts.settings.sync_period;
        let uid = &facts.owner.uid;
        let left = effects.local.until_drift_check(uid, period, now);
        return left.unwrap_or_else(|| period.until_resync(uid, now));
    }
    let next = while_hot(context, effects, judging, (status, judged));
    let next = match effects
        .local
        .failing(judged.is_some_and(|judged| judged.fails), now)
    {
        Some(lasted) => (lasted / 10).clamp(next, SLOW),
        None => next,
    };
    let deadline = until_deadline(status, judging.selected, context.began.now);
    deadline.map_or(next, |left| left.min(next))
}

/// Whether only workers are left that a user defers, which may take weeks.
fn waits_for_deferred_workers(context: &Context<'_>, judging: Judging<'_>) -> bool {
    let to = &context.facts.topology.version;
    let is_left = |worker: &&WorkerFacts| !worker.has_reached(to);
    judging.progress.settled_at_hop()
        && same(&judging.progress.hop, to)
        && context
            .facts
            .workers
            .iter()
            .filter(is_left)
            .all(|worker| worker.deferred)
}

fn while_hot(
    context: &Context<'_>,
    effects: &mut GateEffects,
    judging: Judging<'_>,
    (status, judged): (&ClusterUpgradeStatus, Option<&Judged>),
) -> Duration {
    // It grows while nothing changes: a gate may hold for weeks.
    let lately = effects.local.unchanged(context.began.instant) / 10;
    // The watch of the control plane, or of the Cluster, shows that objects can be judged.
    if judged.is_none() || judging.progress.stage().is_none() {
        return WITH_PROBLEM;
    }
    let is_held = condition(status, HELD).is_some_and(|held| held.status == "True");
    let reason = status.reason.as_deref().and_then(GateReason::parse);
    let is_paused = reason.is_some_and(|reason| reason.class().is_pause());
    let is_on_cluster_api = reason.is_some_and(|reason| reason.class() == Class::ClusterApi);
    if is_paused || is_on_cluster_api {
        return lately.clamp(HOT, SLOW);
    }
    if is_held {
        lately.clamp(UNWATCHED, HOT)
    } else if waits_for_deferred_workers(context, judging) {
        lately.clamp(HOT, SLOW)
    } else {
        HOT
    }
}
