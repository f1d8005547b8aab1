//! Step 2: what follows from what was found. Pure.

use kube::ResourceExt;
use sluice_core::{
    bootstrap::{
        self, Belonging, Change, Draft, Inputs, KeptVersions, Release, from_template, is_bound, merge,
    },
    cluster::is_legacy,
    hold::{Hold, HoldReason},
    hop::{Progress, progress},
    record::pause,
    tkr::{TkrFacts, for_progress, tkr_legacy},
};
use sluice_crds::{
    labels::{annotation, label, name},
    run::{ClusterBootstrap, ClusterBootstrapSpec, TanzuKubernetesRelease},
};

use super::dereference::Found;
use crate::index::{template_not_found, tkr_not_found};

/// What follows.
#[derive(Debug)]
pub(super) struct Validated {
    pub(super) progress: Progress,
    /// The release whose packages belong to the hop.
    pub(super) release: Result<String, Hold>,
    /// The ClusterBootstrap that has to be written first.
    pub(super) change: Option<Draft>,
    /// Somebody wants nothing to be written.
    pub(super) paused: Option<Hold>,
    /// What keeps the release or the ClusterBootstrap from being known.
    pub(super) problem: Option<Hold>,
}

/// Decides what shall be; `template` finds the template of a release in `system_namespace`.
pub(super) fn run(
    found: &Found,
    system_namespace: &str,
    template: impl Fn(&str) -> Option<ClusterBootstrapSpec>,
) -> Validated {
    let to = &found.topology.version;
    let record = found.record();
    let progress = progress(
        found.control_plane.as_ref(),
        &found.workers,
        to,
        &found.plan,
        record,
    );

    let known: Vec<TkrFacts> = found.releases.iter().map(|release| facts(release)).collect();
    let release = release(found, &progress, &known);
    let change = release
        .clone()
        .and_then(|name| change(found, &name, &progress, system_namespace, &template));
    let (change, problem) = match change {
        Ok(change) => (change, None),
        Err(hold) => (None, Some(hold)),
    };
    let bootstrap_paused = found
        .bootstrap
        .as_ref()
        .is_some_and(|bootstrap| bootstrap.spec.paused);
    let paused = pause(record, &progress, &found.facts(), bootstrap_paused);
    Validated {
        progress,
        release,
        change,
        paused,
        problem,
    }
}

fn release(found: &Found, progress: &Progress, known: &[TkrFacts]) -> Result<String, Hold> {
    if found.label.is_empty() {
        return Err(Hold::new(
            HoldReason::TKRLabelRemoved,
            format!("the Cluster has a ClusterBootstrap, but no label {}", label::TKR),
        ));
    }
    match known.iter().find(|release| release.name == found.label) {
        None => return Err(tkr_not_found(&found.label)),
        Some(release) if release.legacy => return Err(tkr_legacy(&found.label)),
        Some(_) => {}
    }
    let data = found.topology.variable(name::TKR_DATA);
    let pinned = data.and_then(|data| data.get(&progress.hop)?.get("labels")?.get(label::TKR)?.as_str());
    let to = &found.topology.version;
    for_progress(
        progress,
        found.belonging().release(),
        to,
        pinned,
        &found.label,
        known,
    )
}

/// The ClusterBootstrap that has to be written so that its spec is that of `release`; `None` when it is already.
fn change(
    found: &Found,
    release: &str,
    progress: &Progress,
    system_namespace: &str,
    template: &impl Fn(&str) -> Option<ClusterBootstrapSpec>,
) -> Result<Option<Draft>, Hold> {
    let Some(bootstrap) = &found.bootstrap else {
        if found
            .cluster
            .annotations()
            .contains_key(annotation::CUSTOM_CLUSTER_BOOTSTRAP)
        {
            return Ok(None);
        }
        let new = template(release).ok_or_else(|| template_not_found(system_namespace, release))?;
        return from_template(&found.owner.name, &new, &found.catalogue).map(Some);
    };
    match found.belonging().change(release, progress) {
        Change::Nothing => return Ok(None),
        Change::Mark => {
            return Ok(Some(Draft {
                spec: bootstrap.spec.clone(),
                clones: Vec::new(),
            }));
        }
        Change::Merge => {}
    }
    with_inputs(found, bootstrap, release, template, system_namespace, |inputs| {
        merge(inputs).map(Some)
    })?
}

/// What keeps the packages of `bootstrap`, as it is now, from being those of the release, while they have to be.
pub(super) fn below_release(
    found: &Found,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    system_namespace: &str,
    template: impl Fn(&str) -> Option<ClusterBootstrapSpec>,
) -> Option<Hold> {
    let release = validated.release.as_deref().ok()?;
    let merged = Belonging::of(bootstrap).resolved(&validated.progress) == Some(release);
    // What is not merged is held as such.
    if !merged || !is_bound(&validated.progress, &found.workers, found.record()) {
        return None;
    }
    match with_inputs(
        found,
        bootstrap,
        release,
        &template,
        system_namespace,
        bootstrap::below_release,
    ) {
        Ok(hold) => hold,
        Err(hold) => Some(hold),
    }
}

/// What `look` makes of a merge of `bootstrap` for `release`.
fn with_inputs<T>(
    found: &Found,
    bootstrap: &ClusterBootstrap,
    release: &str,
    template: &impl Fn(&str) -> Option<ClusterBootstrapSpec>,
    system_namespace: &str,
    look: impl FnOnce(&Inputs<'_>) -> T,
) -> Result<T, Hold> {
    let packages: Vec<String> = found
        .releases
        .iter()
        .filter(|each| each.name_any() == release)
        .flat_map(|each| each.spec.bootstrap_packages.iter().flatten())
        .map(|package| package.name.clone())
        .collect();
    let new = template(release).ok_or_else(|| template_not_found(system_namespace, release))?;
    Ok(look(&Inputs {
        cluster: &found.owner.name,
        current: &bootstrap.spec,
        old: Belonging::of(bootstrap).release().and_then(template).as_ref(),
        new: &new,
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
        kubernetes_version: release.spec.kubernetes.version.clone(),
        legacy: is_legacy(release),
    }
}
