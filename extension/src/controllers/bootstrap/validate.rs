//! Step 2: what follows from what was found. Pure.

use kube::ResourceExt;
use sluice_core::{
    bootstrap::{Change, Draft, Inputs, Release, from_template, merge},
    hold::{Hold, HoldReason},
    hop::{Progress, progress},
    record::pause,
    tkr::{TkrFacts, for_progress},
};
use sluice_crds::{
    labels::{annotation, label, name},
    run::{ClusterBootstrapSpec, TanzuKubernetesRelease},
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
    /// The release that the spec of the ClusterBootstrap is merged for once the change is written.
    pub(super) resolved: Option<String>,
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
    let resolved = match &release {
        Ok(name) if problem.is_none() && (change.is_none() || paused.is_none()) => Some(name.clone()),
        _ => found.belonging().release().map(str::to_owned),
    };
    Validated {
        progress,
        release,
        change,
        resolved,
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
    if !known.iter().any(|release| release.name == found.label) {
        return Err(tkr_not_found(&found.label));
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
    let new = || template(release).ok_or_else(|| template_not_found(system_namespace, release));
    let cluster = &found.owner.name;
    let Some(bootstrap) = &found.bootstrap else {
        if found
            .cluster
            .annotations()
            .contains_key(annotation::CUSTOM_CLUSTER_BOOTSTRAP)
        {
            return Ok(None);
        }
        return from_template(cluster, &new()?, &found.catalogue).map(Some);
    };
    let belonging = found.belonging();
    match belonging.change(release, progress) {
        Change::Nothing => return Ok(None),
        Change::Mark => {
            return Ok(Some(Draft {
                spec: bootstrap.spec.clone(),
                clones: Vec::new(),
            }));
        }
        Change::Merge => {}
    }
    let packages: Vec<String> = found
        .releases
        .iter()
        .filter(|each| each.name_any() == release)
        .flat_map(|each| {
            each.spec
                .bootstrap_packages
                .iter()
                .flatten()
                .map(|package| package.name.clone())
        })
        .collect();
    merge(&Inputs {
        cluster,
        current: &bootstrap.spec,
        old: belonging.release().and_then(template).as_ref(),
        new: &new()?,
        release: Release {
            name: release,
            packages: &packages,
        },
        catalogue: &found.catalogue,
        unmanaged_cni: bootstrap.annotations().contains_key(annotation::UNMANAGED_CNI),
    })
    .map(Some)
}

fn facts(release: &TanzuKubernetesRelease) -> TkrFacts {
    TkrFacts {
        name: release.name_any(),
        kubernetes_version: release.spec.kubernetes.version.clone(),
        legacy: release.labels().contains_key(label::LEGACY_TKR),
    }
}
