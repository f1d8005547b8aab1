//! Whether the packages of a ClusterBootstrap are those of a release, or later ones.
//!
//! What was merged may be replaced: an old manifest is applied again. The mark says which release was merged, and nothing of
//! what became of the spec since.

use std::cmp::Ordering;

use sluice_crds::{
    labels::annotation,
    run::{Hook, UpgradeRecord},
};

use super::{Inputs, PackageFacts, Role, merge, packages};
use crate::{
    names,
    reasons::{GateReason, Hold},
    upgrade::hop::{Progress, UpgradeDirection, WorkerFacts},
    version::{order, reached, same},
};

/// Whether the packages have to be those of the hop's release at the moment: from when a version is asked for that the
/// control plane does not run until all workers were asked to take it, also where the next hop was cancelled meanwhile. At any other
/// time they are the user's.
///
/// `record` is that of this very Cluster. It may be lost; then workers tell that they are still to follow.
#[must_use]
pub fn is_bound(progress: &Progress, workers: &[WorkerFacts], record: Option<&UpgradeRecord>) -> bool {
    let lag_behind = |version: &str| {
        workers.iter().any(|worker| {
            worker
                .spec_version
                .as_deref()
                .is_some_and(|spec| !reached(spec, version))
        })
    };
    match progress.course {
        UpgradeDirection::Cancelled => return progress.settled_at().is_some_and(lag_behind),
        UpgradeDirection::Downgrade | UpgradeDirection::PlanUnknown => return false,
        UpgradeDirection::Forward if progress.stage().is_none() => return false,
        UpgradeDirection::Forward if !progress.settled_at_hop() => return true,
        UpgradeDirection::Forward => {}
    }
    if record.is_some_and(|record| record.outcome.is_some()) {
        return false;
    }
    let hop = progress.hop.as_str();
    lag_behind(hop) || record.is_some_and(|record| is_on_its_way(record, hop))
}

/// Whether a record says that the hop was another version than that of the control plane, and that workers may still follow.
fn is_on_its_way(record: &UpgradeRecord, hop: &str) -> bool {
    let workers_asked = record
        .gates
        .iter()
        .any(|gate| gate.hook == Hook::AfterWorkersUpgrade && gate.open && same(&gate.version, hop));
    !workers_asked && record.from.as_deref().is_some_and(|from| !same(from, hop))
}

/// What keeps `inputs.current` from being the package set of `inputs.release`, if anything does.
///
/// Measured by what a merge makes of it: a package that is there is at least as high, and none is absent. What a merge leaves
/// as it is, is the user's: packages that the release does not list, an unmanaged CNI, versions that are kept by annotation.
/// What keeps a merge from being made holds here, too.
#[must_use]
pub fn below_release(inputs: &Inputs<'_>) -> Option<Hold> {
    let merged = match merge(inputs) {
        Ok(merged) => merged.spec,
        Err(hold) => return Some(hold),
    };
    packages(&merged).into_iter().find_map(|(role, package)| {
        let wanted = inputs.catalogue.get(&package.ref_name)?;
        let found = of_package(inputs, role, &wanted.ref_name);
        if found.is_empty() {
            return Some(missing(inputs, role, wanted, &package.ref_name));
        }
        let is_below = |found: &&PackageFacts| {
            // Versions without an order cannot be said to be high enough.
            order(&found.version, &wanted.version).is_none_or(|order| order == Ordering::Less)
        };
        let lower = found.into_iter().find(is_below)?;
        Some(below(inputs, role, lower, wanted, &package.ref_name))
    })
}

/// What the cluster has of a package in the place where the release has it.
fn of_package<'a>(inputs: &Inputs<'a>, role: Role, ref_name: &str) -> Vec<&'a PackageFacts> {
    packages(inputs.current)
        .into_iter()
        .filter(|(of, _)| *of == role)
        .filter_map(|(_, package)| inputs.catalogue.get(&package.ref_name))
        .filter(|facts| facts.ref_name == ref_name)
        .collect()
}

fn below(inputs: &Inputs<'_>, role: Role, found: &PackageFacts, wanted: &PackageFacts, name: &str) -> Hold {
    let (cluster, field, tkr) = (inputs.cluster, role.field(), inputs.release.name);
    let (ref_name, version, least) = (&found.ref_name, &found.version, &wanted.version);
    let way_out = keep(ref_name, version);
    Hold::new(
        GateReason::PackageBelowRelease,
        format!(
            "{field} of ClusterBootstrap {cluster} has {ref_name} {version}, and TanzuKubernetesRelease {tkr} has {least}; \
             raise it to {name}, or keep it: {way_out}"
        ),
    )
}

fn missing(inputs: &Inputs<'_>, role: Role, wanted: &PackageFacts, name: &str) -> Hold {
    let (cluster, field, tkr) = (inputs.cluster, role.field(), inputs.release.name);
    let (ref_name, version) = (&wanted.ref_name, &wanted.version);
    let way_out = keep(ref_name, "none");
    Hold::new(
        GateReason::PackageMissing,
        format!(
            "{field} of ClusterBootstrap {cluster} lacks {ref_name}, and TanzuKubernetesRelease {tkr} has {version}; \
             add {name}, or leave it out: {way_out}"
        ),
    )
}

fn keep(ref_name: &str, version: &str) -> String {
    let (key, short) = (annotation::KEEP_PACKAGE_VERSIONS, names::short(ref_name));
    format!("\"{short}={version}\" in annotation {key}")
}

#[cfg(test)]
mod tests;
