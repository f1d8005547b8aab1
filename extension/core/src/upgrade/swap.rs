//! Swap: machines of one release are replaced by those of another release of the Kubernetes version that they run.
//!
//! Cluster API calls no hook for it. The entry for the version in variable `TKR_DATA` names the release that the machines are made of, and
//! the label of the Cluster names the requested one.

use std::cmp::Ordering;

use sluice_crds::{
    foreign::{ClusterClass, cluster::Topology},
    labels::{label, name},
    run::{Outcome, UpgradeRecord},
};

use super::{
    hop::{Progress, UpgradeDirection, WorkerFacts},
    tkr::TkrFacts,
};
use crate::{
    reasons::Hold,
    releases::from_label,
    version::{order, same},
};

/// Request for machines of another release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapRequest {
    /// The Kubernetes version that control plane and workers have.
    pub version: String,
    /// Release that the machines are made of; empty if no entry names one.
    pub from: String,
    /// Release that the label names.
    pub to: String,
    /// Reason why the machines stay, if they do. The packages follow the label nevertheless.
    pub kept: Option<String>,
}

impl SwapRequest {
    /// Whether the machines are to be replaced.
    #[must_use]
    pub const fn replaces(&self) -> bool {
        self.kept.is_none()
    }
}

/// Observed state of the machines of a Cluster, as far as a swap depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwapFacts {
    /// Release that the entry for the version of the target names.
    pub made_of: Option<String>,
    /// Request for another one.
    pub request: Option<SwapRequest>,
    /// Hold of an entry that cannot be rendered or written.
    pub hold: Option<Hold>,
    /// Machines that Cluster API still has to replace, if any.
    pub outdated: Option<String>,
}

/// Nothing is known of the machines.
pub static NO_SWAP: SwapFacts = SwapFacts {
    made_of: None,
    request: None,
    hold: None,
    outdated: None,
};

impl SwapFacts {
    /// Whether machines are to be replaced, and their entry is not written yet.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.request.as_ref().is_some_and(SwapRequest::replaces)
    }
}

/// Returns the release that machines of a Kubernetes version are made of. An entry without an image only pins a release.
#[must_use]
pub fn made_of(topology: &Topology, version: &str) -> Option<String> {
    let data = topology.variable(name::TKR_DATA)?;
    let entry = data.get(version)?;
    entry.get("osImageRef")?;
    Some(entry.get("labels")?.get(label::TKR)?.as_str()?.to_owned())
}

/// Whether the label of a Cluster names a newer release than its machines at a Kubernetes version are made of, by the names of both.
#[must_use]
pub fn is_requested(topology: &Topology, version: &str, label: &str) -> bool {
    made_of(topology, version).is_some_and(|made_of| is_newer(label, &made_of, &[]))
}

/// Whether one release is newer than another. The name of a deleted release states its version.
fn is_newer(release: &str, than: &str, known: &[TkrFacts]) -> bool {
    let version = |name: &str| {
        let found = known.iter().find(|known| known.name == name);
        found.map_or_else(|| from_label(name), |known| known.version.clone())
    };
    order(&version(release), &version(than)) == Some(Ordering::Greater)
}

/// Inputs of a request.
#[derive(Clone, Copy, Debug)]
pub struct SwapInputs<'a> {
    /// Topology of the Cluster.
    pub topology: &'a Topology,
    /// Its class, if it exists.
    pub class: Option<&'a ClusterClass>,
    /// Release that its machines at the target are [made of](made_of).
    pub made_of: Option<&'a str>,
    /// Release of its label.
    pub label: &'a str,
    /// Its workers.
    pub workers: &'a [WorkerFacts],
    /// Its record.
    pub record: Option<&'a UpgradeRecord>,
    /// All releases.
    pub releases: &'a [TkrFacts],
}

/// Returns the request of a Cluster whose label names another release of the Kubernetes version that control plane and workers have.
///
/// During an upgrade to that version, the release of the entry stays. A release that is not newer than the one of the machines is no
/// request.
#[must_use]
pub fn request(progress: &Progress, inputs: SwapInputs<'_>) -> Option<SwapRequest> {
    let SwapInputs {
        topology,
        class,
        made_of,
        label,
        workers,
        record,
        releases,
    } = inputs;
    let version = settled_at_target(progress, &topology.version)?;
    let is_at_version = |worker: &WorkerFacts| {
        let spec = worker.spec_version.as_deref();
        spec.is_some_and(|spec| same(spec, version))
    };
    if !workers.iter().all(is_at_version) || record.is_some_and(is_under_way) {
        return None;
    }
    let labelled = releases.iter().find(|release| release.name == label)?;
    if labelled.legacy || labelled.kubernetes_version != version {
        return None;
    }
    let request = |from: String, kept| SwapRequest {
        version: version.to_owned(),
        from,
        to: label.to_owned(),
        kept,
    };
    let Some(from) = made_of else {
        // An entry without an image pins the packages.
        let is_pinned = super::tkr::pinned(topology, version).is_some();
        let kept = format!("{} has no entry for {version}", name::TKR_DATA);
        return (!is_pinned).then(|| request(String::new(), Some(kept)));
    };
    if !is_newer(label, from, releases) {
        return None;
    }
    let declares = |class: &ClusterClass| class.spec.declares(name::TKR_DATA);
    let kept = class.filter(|class| !declares(class)).map(|class| {
        let class = class.metadata.name.as_deref().unwrap_or_default();
        format!("ClusterClass {class} does not declare {}", name::TKR_DATA)
    });
    Some(request(from.to_owned(), kept))
}

/// Returns the version of a control plane that is settled at the target.
fn settled_at_target<'a>(progress: &'a Progress, to: &str) -> Option<&'a str> {
    let version = progress.settled_at()?;
    let is_target = same(version, to) && progress.hop == version;
    (is_target && progress.direction == UpgradeDirection::Forward).then_some(version)
}

/// Whether an upgrade to another Kubernetes version, or the first installation, is not completed.
fn is_under_way(record: &UpgradeRecord) -> bool {
    let stays = record.from.as_deref().is_some_and(|from| same(from, &record.to));
    record.outcome.is_none() && !stays
}

/// Returns the release whose packages a Cluster keeps although its label does not request machines of it any more: the `resolved` one is
/// newer than that of the machines, and its packages are not downgraded.
#[must_use]
pub fn kept_release<'a>(
    progress: &Progress,
    inputs: SwapInputs<'_>,
    resolved: Option<&'a str>,
) -> Option<&'a str> {
    let SwapInputs {
        topology,
        made_of,
        record,
        releases,
        ..
    } = inputs;
    let version = progress.hop.as_str();
    let is_there =
        progress.taken && progress.direction == UpgradeDirection::Forward && same(version, &topology.version);
    let made_of = made_of.filter(|_| is_there)?;
    let resolved = resolved.filter(|resolved| is_newer(resolved, made_of, releases))?;
    if record.is_some_and(is_under_way) {
        return None;
    }
    let is_of_version = match releases.iter().find(|release| release.name == resolved) {
        Some(release) => release.kubernetes_version == version,
        // A deleted release.
        None => record.is_some_and(|record| {
            record.tkr.as_deref() == Some(resolved)
                && record.hop.as_deref().is_some_and(|hop| same(hop, version))
        }),
    };
    is_of_version.then_some(resolved)
}

/// Whether the upgrade of a record has ended at the version of the control plane, so that the Cluster may rest.
#[must_use]
pub fn has_ended(record: &UpgradeRecord) -> bool {
    matches!(record.outcome, Some(Outcome::Completed | Outcome::RolledBack)) || is_cancelled_swap(record)
}

/// Whether a record was closed because its label moved back to the release of the machines.
#[must_use]
pub fn is_cancelled_swap(record: &UpgradeRecord) -> bool {
    let is_target = |version: &Option<String>| {
        version
            .as_deref()
            .is_some_and(|version| same(version, &record.to))
    };
    record.outcome == Some(Outcome::Cancelled) && is_target(&record.from) && is_target(&record.hop)
}

#[cfg(test)]
mod tests;
