//! Derives the hop, its release and the desired ClusterBootstrap.

use kube::ResourceExt;
use sluice_crds::{
    foreign::Cluster,
    labels::{annotation, label},
    run::{ClusterBootstrap, ClusterBootstrapSpec, OnCancel, TanzuKubernetesRelease, UpgradePolicy},
};

use super::{
    Context, Facts, Key, ReadPhase, Server, Step,
    confirm_cluster::is_same,
    hop_entry,
    interrupt::{needs_of, together},
    requirements,
    swap::swap_facts,
};
use crate::{
    cluster::{is_custom, is_legacy, is_reconciled},
    packages::{
        bootstrap::{
            self, Draft, Filling, Inputs, KeptVersions, Release, ReleaseChange, ResolvedRelease, Snapshot,
            completed, fill_with_values, filled_from, from_template, merge, must_match_release, other_hop,
            restored, too_many, way_back,
        },
        build::adopted,
    },
    reasons::{GateReason, Hold},
    resolver::ReleaseMachines,
    upgrade::{
        hop::{Progress, UpgradeDirection, progress},
        overrides::Steps,
        record::{is_older, pause},
        rollback::{self, RollbackInputs},
        swap::{self, SwapFacts, SwapInputs, has_ended},
        tkr::{TkrFacts, for_hop, for_progress, pinned, template_not_found, tkr_legacy, tkr_not_found},
    },
    upgrade_plan,
    version::same,
};

/// Hop, release and desired ClusterBootstrap of a Cluster.
#[derive(Debug)]
pub(super) struct Validated {
    pub(super) progress: Progress,
    /// The release whose packages belong to the hop.
    pub(super) release: Result<String, Hold>,
    /// The desired ClusterBootstrap, if it must be written first.
    pub(super) change: Option<Draft>,
    /// Hold that forbids all writes, if any.
    pub(super) paused: Option<Hold>,
    /// Problem that leaves the release or the ClusterBootstrap unknown.
    pub(super) problem: Option<Hold>,
    /// Whether the record is from before the restore of a backup.
    pub(super) restored: bool,
    /// Machines of another release of the Kubernetes version.
    pub(super) swap: SwapFacts,
    /// Images of that release, if machines are to be replaced and each part has one.
    pub(super) machines: Option<ReleaseMachines>,
    /// Release and images of the entry for the hop, if it must be written first. Until the cache shows it, the release is held.
    pub(super) entry: Option<ReleaseMachines>,
    /// Whether the Cluster moves to the release, and the release needs management packages.
    pub(super) requires: bool,
    /// Decision about a rollback of its packages.
    pub(super) rollback: rollback::Decision,
}

impl Validated {
    /// Returns the steps of the upgrade.
    pub(super) fn steps<'a>(&'a self, found: &'a Facts) -> Steps<'a> {
        Steps {
            progress: &self.progress,
            workers: &found.workers,
        }
    }

    /// Whether the record covers the current Cluster and ClusterBootstrap.
    pub(super) fn is_current(&self, found: &Facts, bootstrap: &ClusterBootstrap) -> bool {
        found.recorded(bootstrap).is_some_and(|record| {
            self.release.as_deref().ok() == record.tkr.as_deref()
                && record.label == found.label
                && record.to == found.topology.version
                && Some(record.observed_cluster_generation) == found.cluster.metadata.generation
                && Some(record.observed_bootstrap_generation) == bootstrap.metadata.generation
                // The class may have come to declare the variable, which begins another upgrade.
                && !(self.swap.is_requested() && has_ended(record))
        })
    }
}

/// Next hop of a Cluster, and what its packages are changed to before.
#[derive(Debug)]
pub(crate) struct NextHop {
    pub(crate) progress: Progress,
    /// The release whose packages belong to the hop.
    pub(crate) release: Result<String, Hold>,
    /// The desired ClusterBootstrap, if it must be written first.
    pub(crate) change: Option<Draft>,
    /// Problem that leaves the release or the ClusterBootstrap unknown.
    pub(crate) problem: Option<Hold>,
    /// Hold of the release by a management package that it needs. It ends with that package, so it holds no earlier hop.
    pub(crate) unmet: Option<Hold>,
    swap: SwapFacts,
    machines: Option<ReleaseMachines>,
    requires: bool,
    rollback: rollback::Decision,
}

impl NextHop {
    fn stop(&mut self, hold: Hold) {
        (self.release, self.change, self.problem) = (Err(hold.clone()), None, Some(hold));
    }

    /// Whether packages go back to those from before a cancelled upgrade.
    pub(crate) const fn rolls_back(&self) -> bool {
        self.rollback.under_way().is_some()
    }

    /// Returns the images of the entry for the hop that is to be written first.
    ///
    /// # Errors
    /// The hold of an entry that cannot be written.
    pub(crate) fn missing_entry(&self, context: &Context<'_>) -> Result<Option<ReleaseMachines>, Hold> {
        match (&self.release, &self.problem) {
            (Ok(name), None) => hop_entry::missing(context, &self.progress, name),
            _ => Ok(None),
        }
    }

    /// Returns the hold for packages of the ClusterBootstrap that are below the release, while the release is binding.
    ///
    /// # Errors
    /// Missing reads.
    pub(crate) fn below_release(&self, context: &Context<'_>) -> Step<Option<Hold>> {
        match (&context.facts.bootstrap, &self.release, &self.problem) {
            (Some(bootstrap), Ok(release), None) => {
                below(context, (&self.progress, release.as_str(), &self.swap), bootstrap)
            }
            _ => Ok(None),
        }
    }
}

/// Derives the desired state from the facts.
pub(super) fn validate(context: &Context<'_>) -> Step<Validated> {
    let found = context.facts;
    let mut next = next_hop(context)?;
    let hold = match next.unmet.take() {
        // Packages go back whatever became of the release.
        None if next.rollback.under_way().is_some() => None,
        None => upgrade_plan::refusal(context, &next)?,
        unmet => unmet,
    };
    if let Some(hold) = hold {
        next.stop(hold);
    }
    let entry = match next.missing_entry(context) {
        Ok(None) => None,
        Ok(Some(machines)) => {
            next.stop(hop_entry::not_written(&next.progress.hop));
            Some(machines)
        }
        Err(hold) => {
            next.stop(hold);
            None
        }
    };
    let bootstrap_paused = found
        .bootstrap
        .as_ref()
        .is_some_and(|bootstrap| bootstrap.spec.paused);
    let paused = pause(found.record(), &next.progress, &found.cluster(), bootstrap_paused);
    Ok(Validated {
        progress: next.progress,
        release: next.release,
        change: next.change,
        paused,
        problem: next.problem,
        restored: is_restored(context)?,
        swap: next.swap,
        machines: next.machines,
        entry,
        requires: next.requires,
        rollback: next.rollback,
    })
}

/// Decides about a rollback.
fn rollback_of(found: &Facts) -> rollback::Decision {
    let bootstrap = found.bootstrap.as_deref();
    let policy = bootstrap.and_then(|bootstrap| bootstrap.spec.upgrade_policy.as_ref());
    let snapshot = bootstrap.map_or(Ok(None), Snapshot::in_bootstrap);
    // An entry without an image names the release of the packages as well.
    let entry = pinned(&found.topology, &found.topology.version);
    let merged = found.resolved_release().annotation;
    let merged = merged.and_then(|merged| found.releases.get(merged));
    rollback::decide(RollbackInputs {
        cluster: &found.cluster,
        to: &found.topology.version,
        label: &found.label,
        control_plane: found.control_plane_versions(),
        record: found.record(),
        resolved: found.resolved_release(),
        snapshot: snapshot.as_ref().map(Option::as_ref).map_err(String::as_str),
        made_of: entry.as_deref(),
        policy,
        completed: bootstrap.and_then(completed),
        merged_version: merged.map(|release| release.spec.kubernetes.version.as_str()),
    })
}

/// Derives the next hop from the facts.
pub(crate) fn next_hop(context: &Context<'_>) -> Step<NextHop> {
    let found = context.facts;
    let to = &found.topology.version;
    let record = found.record();
    let rollback = rollback_of(found);
    let progress = match rollback.under_way() {
        Some(_) => rollback::progress(to),
        None => progress(
            found.control_plane_versions(),
            &found.workers,
            to,
            &found.plan,
            record,
        ),
    };

    let releases: Vec<TkrFacts> = found.releases.values().map(|release| facts(release)).collect();
    let inputs = SwapInputs {
        topology: &found.topology,
        class: found.class.as_deref(),
        made_of: found.made_of.as_deref(),
        label: &found.label,
        workers: &found.workers,
        record,
        releases: &releases,
    };
    let rolls_back = rollback.under_way().is_some();
    let request = swap::request(&progress, inputs).filter(|_| !rolls_back);
    let resolved = found.resolved_release();
    let kept = match &request {
        None if !rolls_back => swap::kept_release(&progress, inputs, resolved.release()),
        _ => None,
    };
    let release = match rollback.under_way() {
        Some(_) => labelled(found, &releases),
        None => release(found, &progress, &releases, (request.is_some(), kept)),
    };
    let (swap, machines) = swap_facts(context, request);
    let requiring = match &release {
        Ok(name) if !rolls_back => {
            requirements::requiring(found, &progress, &releases, name, swap.is_requested())
        }
        _ => None,
    };
    let unmet = requiring.and_then(|release| requirements::unmet(&found.management_packages, release));
    let change = match &release {
        Ok(name) => change(context, name, &progress, &rollback),
        Err(hold) => Err(hold.clone().into()),
    };
    let (change, problem) = match change {
        Ok(change) => (change, None),
        Err(stop) => (None, Some(stop.held()?)),
    };
    Ok(NextHop {
        progress,
        release,
        change,
        problem,
        unmet,
        swap,
        machines,
        requires: requiring.is_some(),
        rollback,
    })
}

/// Whether the record is ahead of the API server, and not only of the cache: a leader that had seen edits wrote it after the restore of a
/// backup, which took the edits back.
pub(super) fn is_restored(context: &Context<'_>) -> Step<bool> {
    let found = context.facts;
    let (cluster, Some(bootstrap)) = (&found.cluster.metadata, &found.bootstrap) else {
        return Ok(false);
    };
    let bootstrap = &bootstrap.metadata;
    let cached = [cluster.generation, bootstrap.generation].map(Option::unwrap_or_default);
    if !found
        .record()
        .is_some_and(|record| is_older(cached.into(), record))
    {
        return Ok(false);
    }
    let at = |key: Key| context.object(key, ReadPhase::Plan);
    let (namespace, name) = (Some(found.owner.namespace.as_str()), &found.owner.name);
    let read = [
        at(Key::of::<Cluster>(Server::Management, namespace, name)),
        at(Key::of::<ClusterBootstrap>(Server::Management, namespace, name)),
    ];
    together(read.each_ref().map(needs_of))?;
    let mut is_unchanged = true;
    for (read, cached) in read.into_iter().zip([cluster, bootstrap]) {
        is_unchanged &= read?.is_some_and(|read| is_same(read, cached.uid.as_deref(), cached.generation));
    }
    Ok(is_unchanged)
}

/// Selects the release of the hop. The label of a Cluster that requests machines of another release wins over the entry of its machines,
/// and so does the release of packages that are kept.
fn release(
    found: &Facts,
    progress: &Progress,
    context: &[TkrFacts],
    (follows_label, kept): (bool, Option<&str>),
) -> Result<String, Hold> {
    if found.label.is_empty() {
        return Err(Hold::new(
            GateReason::TKRLabelRemoved,
            format!("the Cluster has a ClusterBootstrap, but no label {}", label::TKR),
        ));
    }
    match context.iter().find(|release| release.name == found.label) {
        None => return Err(tkr_not_found(&found.label)),
        Some(release) if release.legacy => return Err(tkr_legacy(&found.label)),
        Some(_) => {}
    }
    if let Some(kept) = kept {
        return Ok(kept.to_owned());
    }
    let pinned = pinned(&found.topology, &progress.hop).filter(|_| !follows_label);
    let chosen = match &pinned {
        Some(_) => None,
        None => hop_entry::chosen(found, progress, context)?,
    };
    let named = pinned.as_deref().or(chosen.as_deref());
    let to = &found.topology.version;
    let resolved = found.resolved_release();
    let release = match (progress.direction, &found.own_steps) {
        // Cluster API gets no plan either.
        (UpgradeDirection::PlanUnknown, Some(Err(missing))) => return Err(missing.into()),
        _ => for_progress(progress, resolved.release(), to, named, &found.label, context)?,
    };
    // The only known release of a version may not be the only one.
    let is_named = pinned.is_some() || release == found.label || resolved.release() == Some(&release);
    match &found.undecodable_release {
        Some(object) if !is_named => Err(object.hold()),
        _ => Ok(release),
    }
}

/// Returns the release of the label, to whose packages a Cluster goes back.
fn labelled(found: &Facts, releases: &[TkrFacts]) -> Result<String, Hold> {
    let is_legacy = |release: &TkrFacts| release.name == found.label && release.legacy;
    if releases.iter().any(is_legacy) {
        return Err(tkr_legacy(&found.label));
    }
    let to = &found.topology.version;
    for_hop(to, to, None, &found.label, releases)
}

fn needed_template<'a>(context: &'a Context<'_>, release: &str) -> Step<&'a ClusterBootstrapSpec> {
    let system = &context.facts.settings.system_namespace;
    let missing = || template_not_found(system, release);
    let template = context.template(release)?.ok_or_else(missing)?;
    match too_many(template, &format!("ClusterBootstrapTemplate {system}/{release}")) {
        Some(hold) => Err(hold.into()),
        None => Ok(template),
    }
}

/// Returns the draft of the ClusterBootstrap with the spec of `release`, or of its snapshot; `None` if no write is needed.
fn change(
    context: &Context<'_>,
    release: &str,
    progress: &Progress,
    rollback: &rollback::Decision,
) -> Step<Option<Draft>> {
    let found = context.facts;
    let Some(bootstrap) = &found.bootstrap else {
        if is_custom(&found.cluster) {
            return Ok(None);
        }
        let new = needed_template(context, release)?;
        return Ok(from_template(&found.owner.name, new, &found.catalogue).map(Some)?);
    };
    let is_owned = adopted(&found.owner, bootstrap.owner_references()).is_none();
    if let Some(named) = filled_from(bootstrap, is_owned, &found.label)? {
        // The webhook filled the spec from the release that the annotation names.
        if named != release {
            return Err(other_hop(&found.owner.name, named, release).into());
        }
        return filled(context, bootstrap, release).map(Some);
    }
    match found.resolved_release().change(release, progress) {
        ReleaseChange::Nothing if is_owned => Ok(None),
        ReleaseChange::Nothing | ReleaseChange::Annotate => Ok(Some(Draft {
            spec: bootstrap.spec.clone(),
            ..Draft::default()
        })),
        ReleaseChange::Merge if rollback.under_way().is_some() => {
            // The policy may have changed since the rollback was recorded. Packages that stay would count as those of the release.
            let all = UpgradePolicy {
                on_cancel: Some(OnCancel::Rollback),
                ..UpgradePolicy::default()
            };
            let policy = bootstrap.spec.upgrade_policy.as_ref();
            let policy = policy.filter(|policy| policy.rolls_back()).unwrap_or(&all);
            Ok(Some(restored_set(found, bootstrap, release, Some(policy))?))
        }
        // Without the record of the cancelled upgrade, its packages are not lowered to those of the template either.
        ReleaseChange::Merge if goes_back(found, bootstrap, release, progress) => {
            let policy = bootstrap.spec.upgrade_policy.as_ref();
            if policy.is_some_and(UpgradePolicy::rolls_back) && !is_reconciled(&found.cluster) {
                return Err(rollback::not_reconciled().into());
            }
            Ok(Some(restored_set(found, bootstrap, release, policy)?))
        }
        // A merge would not restore the packages, but take those of the template.
        ReleaseChange::Merge if rollback.holds(release) => {
            Err(rollback::control_plane_unknown(&found.topology.version).into())
        }
        ReleaseChange::Merge => {
            let draft = with_inputs(context, bootstrap, release, merge)??;
            Ok(Some(Draft {
                snapshot: snapshot(found, bootstrap, progress),
                ..draft
            }))
        }
    }
}

/// Whether a control plane that has its version goes back to the release of the snapshot.
fn goes_back(found: &Facts, bootstrap: &ClusterBootstrap, release: &str, progress: &Progress) -> bool {
    let is_its =
        |snapshot: Snapshot| snapshot.release == release && same(&snapshot.version, &found.topology.version);
    progress.settled_at_hop()
        && same(&progress.hop, &found.topology.version)
        && way_back(bootstrap).is_some_and(is_its)
}

/// Returns the snapshot that the merge of a release writes; `None` if the present one stays, or there is nothing to go back to.
fn snapshot(found: &Facts, bootstrap: &ClusterBootstrap, progress: &Progress) -> Option<String> {
    let stage = progress.stage()?;
    let merged = ResolvedRelease::of(bootstrap).release();
    // Packages that are those of the hop already are not from before it.
    let release = merged.and_then(|merged| found.releases.get(merged));
    if release.is_some_and(|release| !same(&release.spec.kubernetes.version, stage)) {
        return None;
    }
    let completed = completed(bootstrap);
    // A snapshot that cannot be read is not of this upgrade.
    let present = Snapshot::in_bootstrap(bootstrap).ok().flatten();
    if present.is_some_and(|present| present.is_kept(stage, merged, completed)) {
        return None;
    }
    Some(Snapshot::of(stage, merged?, &bootstrap.spec, &found.catalogue).to_json())
}

/// Returns the draft with the packages of the snapshot of `release`.
fn restored_set(
    found: &Facts,
    bootstrap: &ClusterBootstrap,
    release: &str,
    policy: Option<&UpgradePolicy>,
) -> Result<Draft, Hold> {
    let snapshot = Snapshot::in_bootstrap(bootstrap).ok().flatten();
    let is_its = |kept: &Snapshot| kept.release == release && same(&kept.version, &found.topology.version);
    let snapshot = snapshot.filter(is_its).ok_or_else(rollback::no_snapshot)?;
    let restored = restored(
        &found.owner.name,
        &bootstrap.spec,
        &snapshot,
        &found.catalogue,
        policy,
    )?;
    Ok(Draft {
        spec: restored.spec,
        ..Draft::default()
    })
}

/// Returns the user's `bootstrap` with missing fields filled.
fn filled(context: &Context<'_>, bootstrap: &ClusterBootstrap, release: &str) -> Step<Draft> {
    let found = context.facts;
    let template = needed_template(context, release)?;
    let packages = packages_of(found, release);
    let filling = Filling {
        template,
        release: Release {
            name: release,
            packages: &packages,
        },
        unmanaged_cni: bootstrap.annotations().contains_key(annotation::UNMANAGED_CNI),
        kept: &KeptVersions::of(bootstrap)?,
    };
    Ok(fill_with_values(
        &found.owner.name,
        &bootstrap.spec,
        filling,
        &found.catalogue,
    )?)
}

/// Returns the Packages that a release lists.
fn packages_of(found: &Facts, release: &str) -> Vec<String> {
    let release = found.releases.get(release);
    let listed = release.and_then(|release| release.spec.bootstrap_packages.as_ref());
    listed
        .into_iter()
        .flatten()
        .map(|package| package.name.clone())
        .collect()
}

/// Returns the hold for packages of the current `bootstrap` that are below the release, while the release is binding.
pub(super) fn below_release(
    context: &Context<'_>,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
) -> Step<Option<Hold>> {
    let Ok(release) = validated.release.as_deref() else {
        return Ok(None);
    };
    below(
        context,
        (&validated.progress, release, &validated.swap),
        bootstrap,
    )
}

fn below(
    context: &Context<'_>,
    (progress, release, swap): (&Progress, &str, &SwapFacts),
    bootstrap: &ClusterBootstrap,
) -> Step<Option<Hold>> {
    let found = context.facts;
    let merged = ResolvedRelease::of(bootstrap).resolved(progress) == Some(release);
    // An unmerged ClusterBootstrap has its own hold.
    let is_bound = swap.is_requested() || must_match_release(progress, &found.workers, found.record());
    if !merged || !is_bound {
        return Ok(None);
    }
    match with_inputs(context, bootstrap, release, bootstrap::below_release) {
        Ok(hold) => Ok(hold),
        Err(stop) => stop.held().map(Some),
    }
}

/// Returns the result of `evaluate` for a merge of `bootstrap` with `release`.
fn with_inputs<T>(
    context: &Context<'_>,
    bootstrap: &ClusterBootstrap,
    release: &str,
    evaluate: impl FnOnce(&Inputs<'_>) -> T,
) -> Step<T> {
    let found = context.facts;
    let packages = packages_of(found, release);
    let new = needed_template(context, release)?;
    let old = match ResolvedRelease::of(bootstrap).release() {
        Some(old) => context.template(old)?,
        None => None,
    };
    Ok(evaluate(&Inputs {
        cluster: &found.owner.name,
        current: &bootstrap.spec,
        old,
        new,
        release: Release {
            name: release,
            packages: &packages,
        },
        catalogue: &found.catalogue,
        unmanaged_cni: bootstrap.annotations().contains_key(annotation::UNMANAGED_CNI),
        kept: &KeptVersions::of(bootstrap)?,
    }))
}

fn facts(release: &TanzuKubernetesRelease) -> TkrFacts {
    TkrFacts {
        name: release.name_any(),
        version: release.spec.version.clone(),
        kubernetes_version: release.spec.kubernetes.version.clone(),
        legacy: is_legacy(&release.metadata),
    }
}
