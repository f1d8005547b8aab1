//! Compares the packages of a ClusterBootstrap with those of a release.
//!
//! A user may overwrite a merged spec, for example with an old manifest. The mark names the merged release, but does not show later
//! edits of the spec.

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

/// Whether the packages currently have to be those of the hop's release. This begins when the target is a version that the control
/// plane does not run, and ends when the specs of all workers have it, also if the next hop was cancelled meanwhile. At any other
/// time the user chooses the packages.
///
/// `record` belongs to this very Cluster. If it is lost, the workers show whether they still have to follow.
#[must_use]
pub fn must_match_release(
    progress: &Progress,
    workers: &[WorkerFacts],
    record: Option<&UpgradeRecord>,
) -> bool {
    let lag_behind = |version: &str| {
        workers.iter().any(|worker| {
            worker
                .spec_version
                .as_deref()
                .is_some_and(|spec| !reached(spec, version))
        })
    };
    match progress.direction {
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

/// Whether the hop of a record differs from the control plane's version, and workers may still follow.
fn is_on_its_way(record: &UpgradeRecord, hop: &str) -> bool {
    let workers_asked = record
        .gates
        .iter()
        .any(|gate| gate.hook == Hook::AfterWorkersUpgrade && gate.open && same(&gate.version, hop));
    !workers_asked && record.from.as_deref().is_some_and(|from| !same(from, hop))
}

/// Returns the hold if `inputs.current` is below the package set of `inputs.release`.
///
/// The result of a merge is the measure: every package is present and at least as high. Content that a merge leaves unchanged belongs to
/// the user: packages that the release does not list, an unmanaged CNI, versions kept by annotation. An obstacle to a merge holds
/// here, too.
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
            // Versions without an order do not count as high enough.
            order(&found.version, &wanted.version).is_none_or(|order| order == Ordering::Less)
        };
        let lower = found.into_iter().find(is_below)?;
        Some(below(inputs, role, lower, wanted, &package.ref_name))
    })
}

/// Returns the versions of a package that the Cluster has in the field where the release has it.
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
