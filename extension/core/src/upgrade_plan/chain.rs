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
    version::same,
};

/// Maximum number of steps. Cluster API takes one per minor version.
const MAX_LINKS: usize = 32;

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
    /// Whether the packages of the release are merged already.
    pub(super) is_merged: bool,
    /// Whether the control plane has the version already: the step is a change of release.
    pub(super) is_taken: bool,
    /// Whether the workers upgrade before the next step.
    pub(super) workers: bool,
    /// Hold of the next step by workers that will not upgrade.
    pub(super) waits: Option<Hold>,
    /// Spec of the ClusterBootstrap before the step.
    pub(super) before: Option<ClusterBootstrapSpec>,
    /// Spec of the ClusterBootstrap with the packages of the release, if they can be merged.
    pub(super) after: Option<ClusterBootstrapSpec>,
}

impl Link {
    /// Whether neither the version nor the packages of the step are in place.
    pub(super) fn is_ahead(&self) -> bool {
        !self.is_taken && !self.is_merged
    }
}

/// Whether the next hop is ahead of a settled control plane, and its packages are not merged yet.
pub(super) fn is_ahead(facts: &Facts, first: &NextHop) -> bool {
    let progress = &first.progress;
    let is_merged = first
        .release
        .as_ref()
        .is_ok_and(|release| is_merged(facts, first, release));
    progress.direction == UpgradeDirection::Forward
        && progress.settled_at().is_some()
        && !progress.taken
        && first.problem.is_none()
        && !is_merged
}

fn is_merged(facts: &Facts, next: &NextHop, release: &str) -> bool {
    let bootstrap = facts.bootstrap.as_deref();
    let resolved = bootstrap.map(ResolvedRelease::of).unwrap_or_default();
    resolved.resolved(&next.progress) == Some(release)
}

/// Returns the steps from the next hop to the target.
///
/// # Errors
/// Missing reads.
pub(super) fn links(context: &Context<'_>, first: &NextHop) -> Step<Vec<Link>> {
    let facts = context.facts;
    let to = &facts.topology.version;
    let mut links = Vec::new();
    let Some(stage) = first.progress.stage() else {
        return Ok(links);
    };
    let is_under_way = first.progress.direction == UpgradeDirection::Forward;
    let link_of_first = link(context, stage, first);
    if is_under_way && first.progress.settled_at_hop() && link_of_first.is_merged && same(stage, to) {
        return Ok(links);
    }
    links.push(link_of_first);
    let mut assumed = after(facts, first);
    let mut workers_wait = is_under_way;
    while is_under_way && links.len() < MAX_LINKS {
        let Some(last) = links.last_mut().filter(|last| !same(&last.version, to)) else {
            break;
        };
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
        if next.progress.direction == UpgradeDirection::PlanUnknown {
            link.hold = link.hold.or_else(|| link.release.clone().err());
            links.push(link);
            break;
        }
        links.push(link);
        assumed = after(&assumed, &next);
        workers_wait = true;
    }
    if let Some(last) = links.last_mut() {
        last.workers |= same(&last.version, to);
    }
    Ok(links)
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
        is_merged: release
            .as_ref()
            .is_ok_and(|release| is_merged(facts, next, release)),
        release,
        // Sluice writes the entry of a step at its time.
        hold: hold.filter(|hold| hold.reason != GateReason::EntryNotWritten),
        is_taken: next.progress.taken,
        workers: false,
        waits: None,
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
        let is_behind = |step: &String| !same(step, hop) && !crate::version::reached(step, hop);
        workers.retain(|step| !is_behind(step));
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
