//! Steps of an upgrade, each as the reconcile will derive it once the step before has ended.

use std::sync::Arc;

use sluice_crds::{
    labels::annotation,
    run::{ClusterBootstrap, ClusterBootstrapSpec},
};

use crate::{
    packages::bootstrap::ResolvedRelease,
    protocol::Step,
    reasons::{GateReason, Hold},
    reconcile::cluster::{Context, Facts, NextHop, next_hop},
    upgrade::{
        course::holds,
        hop::{ControlPlaneFacts, Plan, UpgradeDirection},
    },
    version::{reached, same},
};

/// Maximum number of steps. Each step costs as much as a reconcile without its reads, and any tenant may create a ClusterClass with many
/// versions. The steps after these are checked once they are nearer.
const MAX_LINKS: usize = 8;

/// Position of a Cluster relative to a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// The packages of the release are still to be merged.
    Unmerged,
    /// The packages are merged, and the control plane has yet to take the version.
    Merged,
    /// The step has begun, or nothing changes.
    Taken,
    /// The packages are to go back to those from before a cancelled upgrade.
    RollsBack,
}

/// One step of the chain.
#[derive(Debug)]
pub(super) struct Link {
    /// Version of the control plane before the step.
    pub(super) from: String,
    /// Version of the step.
    pub(super) version: String,
    /// Its release.
    pub(super) release: Result<String, Hold>,
    /// Hold of the step, also if its release is known.
    pub(super) hold: Option<Hold>,
    /// Hold by a management package that the release of a later step needs. It ends with that package.
    pub(super) needs: Option<Hold>,
    /// Position of the Cluster relative to the step.
    pub(super) position: Position,
    /// Whether the workers upgrade before the next step.
    pub(super) workers: bool,
    /// Hold of the next step by workers that will not upgrade.
    pub(super) waits: Option<Hold>,
    /// Whether further steps are not in the chain.
    pub(super) is_cut: bool,
    /// Spec of the ClusterBootstrap before the step.
    pub(super) before: Option<ClusterBootstrapSpec>,
    /// Spec of the ClusterBootstrap with the packages of the release, if they can be merged.
    pub(super) after: Option<ClusterBootstrapSpec>,
}

/// Whether the steps of a Cluster are checked: its control plane is settled, and not above its target.
pub(super) fn is_checked(first: &NextHop) -> bool {
    let progress = &first.progress;
    progress.direction == UpgradeDirection::Forward && progress.settled_at().is_some()
}

/// Returns the position of a Cluster relative to its next hop.
pub(super) fn position(facts: &Facts, next: &NextHop) -> Position {
    let progress = &next.progress;
    let bootstrap = facts.bootstrap.as_deref();
    let resolved = bootstrap.map(ResolvedRelease::of).unwrap_or_default();
    let merged = resolved.resolved(progress);
    let release = next.release.as_deref().ok();
    match (progress.taken, release) {
        (false, Some(release)) if merged != Some(release) => Position::Unmerged,
        (false, _) => Position::Merged,
        (true, release) if next.rolls_back() && merged != release => Position::RollsBack,
        // Packages without a statement of their release stay as they are.
        (true, Some(release))
            if progress.settled_at_hop() && merged.is_some_and(|merged| merged != release) =>
        {
            Position::Unmerged
        }
        (true, _) => Position::Taken,
    }
}

/// Returns the steps from the next hop to the target. `found` receives each of them, and ends the chain where it returns `true`.
///
/// # Errors
/// Missing reads, or the error of `found`.
pub(super) fn links(
    context: &Context<'_>,
    first: &NextHop,
    found: &mut dyn FnMut(&Link) -> Step<bool>,
) -> Step<Vec<Link>> {
    let facts = context.facts;
    let to = &facts.topology.version;
    let Some(stage) = first.progress.stage() else {
        return Ok(Vec::new());
    };
    let is_under_way = first.progress.direction == UpgradeDirection::Forward;
    let link_of_first = link_of_first(context, stage, first);
    if is_under_way
        && first.progress.settled_at_hop()
        && link_of_first.position == Position::Taken
        && same(stage, to)
    {
        return Ok(Vec::new());
    }
    let mut ends = !is_under_way || found(&link_of_first)?;
    let mut links = vec![link_of_first];
    let mut assumed = after(facts, first);
    let mut workers_wait = is_under_way;
    while !ends {
        let is_last = links.len() >= MAX_LINKS;
        let Some(last) = links.last_mut().filter(|last| !same(&last.version, to)) else {
            break;
        };
        if is_last {
            last.is_cut = true;
            break;
        }
        let context = context.of_other(&assumed);
        let next = next_hop(&context)?;
        if same(&next.progress.hop, &last.version) {
            if !workers_wait {
                last.waits = holds::workers(&assumed.workers, &last.version);
                break;
            }
            // The workers upgrade first.
            last.workers = true;
            workers_wait = false;
            assumed = with_workers(&assumed, &last.version);
            continue;
        }
        let from = last.version.clone();
        let mut link = link(&context, &from, &next);
        link.needs.clone_from(&next.unmet);
        let is_unplanned = next.progress.direction == UpgradeDirection::PlanUnknown;
        if is_unplanned {
            link.hold = link.hold.or_else(|| link.release.clone().err());
        }
        ends = found(&link)? || is_unplanned;
        links.push(link);
        assumed = after(&assumed, &next);
        workers_wait = true;
    }
    if let Some(last) = links.last_mut() {
        last.workers |= same(&last.version, to) && last.position != Position::RollsBack;
    }
    Ok(links)
}

/// Returns the next step of a Cluster at this version.
pub(super) fn link_of_first(context: &Context<'_>, stage: &str, first: &NextHop) -> Link {
    let link = link(context, stage, first);
    Link {
        hold: first.unmet.clone().or(link.hold),
        ..link
    }
}

fn link(context: &Context<'_>, from: &str, next: &NextHop) -> Link {
    let facts = context.facts;
    let before = facts.bootstrap.as_deref().map(|bootstrap| bootstrap.spec.clone());
    let release = next.release.clone();
    let hold = next.problem.clone().or_else(|| next.missing_entry(context).err());
    let after = match (&next.change, &hold) {
        (Some(draft), _) => Some(draft.spec.clone()),
        (None, None) => before.clone(),
        (None, Some(_)) => None,
    };
    Link {
        from: from.to_owned(),
        version: next.progress.hop.clone(),
        position: position(facts, next),
        release,
        // Sluice writes the entry of a step at its time.
        hold: hold.filter(|hold| hold.reason != GateReason::EntryNotWritten),
        needs: None,
        workers: false,
        waits: None,
        is_cut: false,
        before,
        after,
    }
}

/// Returns the facts once the control plane is at the hop, with the packages of its release.
fn after(facts: &Facts, next: &NextHop) -> Facts {
    let hop = &next.progress.hop;
    let mut facts = facts.clone();
    if let Some(cached) = &mut facts.control_plane {
        cached.versions = ControlPlaneFacts {
            spec_version: Some(hop.clone()),
            status_version: Some(hop.clone()),
        };
    }
    if let Plan::Given { workers, .. } = &mut facts.plan {
        workers.retain(|step| reached(step, hop));
    }
    let Some(bootstrap) = &facts.bootstrap else {
        return facts;
    };
    let mut bootstrap = ClusterBootstrap::clone(bootstrap);
    // The record is that of this step.
    bootstrap.status = None;
    if let Some(draft) = &next.change {
        bootstrap.spec = draft.spec.clone();
    }
    if let Ok(release) = &next.release {
        let annotations = bootstrap.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::RESOLVED_TKR.to_owned(), release.clone());
    }
    facts.bootstrap = Some(Arc::new(bootstrap));
    facts
}

/// Returns the facts once the workers are at a version.
fn with_workers(facts: &Facts, version: &str) -> Facts {
    let mut facts = facts.clone();
    for worker in facts.workers.iter_mut().filter(|worker| !worker.deferred) {
        worker.spec_version = Some(version.to_owned());
        worker.versions = vec![version.to_owned()];
        worker.rolling = false;
    }
    if let Plan::Given { workers, .. } = &mut facts.plan
        && workers.first().is_some_and(|step| same(step, version))
    {
        workers.remove(0);
    }
    facts
}
