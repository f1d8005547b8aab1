//! Packages of a ClusterBootstrap from before an upgrade, and the return to them once the upgrade is cancelled.

use std::collections::BTreeMap;

use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};
use sluice_crds::{
    labels::annotation,
    run::{
        ClusterBootstrap, ClusterBootstrapPackage, ClusterBootstrapSpec, OnCancel, Outcome, UpgradePolicy,
    },
};

use super::{Catalogue, all_mut, package_not_found, packages};
use crate::{names, reasons::Hold, version::same};

/// Maximum size of a snapshot, in bytes. A ClusterBootstrap has 128 packages at most, with names of 253 bytes.
pub const LARGEST: usize = 64 * 1024;

/// Packages of a ClusterBootstrap from before an upgrade: the value of annotation `lifecycle.sluice.dev/rollback-to`. The update that
/// merges a release writes it, so it is never of another spec, and it moves with the object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Snapshot {
    /// Kubernetes version of the control plane, `v1.35.4+vmware.1`.
    pub version: String,
    /// TanzuKubernetesRelease of the packages.
    pub release: String,
    /// Packages by `spec.refName` of their Package; by its name if it did not exist.
    pub packages: BTreeMap<String, SnapshotPackage>,
}

/// One package of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SnapshotPackage {
    /// Name of its Package.
    pub name: String,
    /// Whether it had values.
    pub values: bool,
}

impl Snapshot {
    /// Returns the snapshot of a ClusterBootstrap; `None` without one.
    ///
    /// # Errors
    /// One line that says why it cannot be read.
    pub fn in_bootstrap(bootstrap: &ClusterBootstrap) -> Result<Option<Self>, String> {
        rollback_to(&bootstrap.metadata).map(Self::parse).transpose()
    }

    /// Parses the value of the annotation.
    ///
    /// # Errors
    /// One line that says why it cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LARGEST {
            return Err(format!("it is larger than {LARGEST} bytes"));
        }
        let snapshot: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let odd = |(ref_name, before): &(&String, &SnapshotPackage)| !is_of(&before.name, ref_name);
        match snapshot.packages.iter().find(odd) {
            Some((ref_name, before)) => {
                Err(format!("it names Package {} for package {ref_name}", before.name))
            }
            None => Ok(snapshot),
        }
    }

    /// Returns the snapshot of a spec with the packages of this release.
    #[must_use]
    pub fn of(version: &str, release: &str, spec: &ClusterBootstrapSpec, catalogue: &Catalogue) -> Self {
        let each = packages(spec).into_iter().map(|(_, package)| {
            let name = &package.ref_name;
            let facts = catalogue.get(name);
            let kept = SnapshotPackage {
                name: name.clone(),
                values: package.values_from.is_some(),
            };
            (facts.map_or(name, |facts| &facts.ref_name).clone(), kept)
        });
        Self {
            version: version.to_owned(),
            release: release.to_owned(),
            packages: each.collect(),
        }
    }

    /// Returns the value of the annotation; empty if it would be too large, so that no earlier one stays.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, booleans and maps of strings always serialize.
        let text = serde_json::to_string(self).unwrap_or_default();
        if text.len() > LARGEST { String::new() } else { text }
    }

    /// Returns `spec.refName` of a Package that does not exist, by its name; the name itself if the snapshot has no such package.
    fn ref_name_of(&self, name: &str) -> String {
        let keys = self.packages.keys().filter(|key| is_of(name, key));
        let longest = keys.max_by_key(|key| key.len());
        longest.map_or(name, |key| key.as_str()).to_owned()
    }

    /// Returns the entry of a package by `spec.refName`.
    fn before(&self, ref_name: &str) -> Option<&SnapshotPackage> {
        let by_name = || {
            let mut others = self.packages.iter().filter(|(key, before)| **key == before.name);
            others.find(|(key, _)| is_of(key, ref_name))
        };
        let found = self.packages.get(ref_name);
        found.or_else(|| by_name().map(|(_, before)| before))
    }

    /// Whether a further merge keeps the snapshot: the control plane still has its version, the packages of another release are in the
    /// spec, and `completed`, the release of the last completed upgrade, is its release or not known.
    #[must_use]
    pub fn is_kept(&self, version: &str, merged: Option<&str>, completed: Option<&str>) -> bool {
        same(&self.version, version)
            && merged.is_some_and(|merged| merged != self.release)
            && completed.is_none_or(|completed| completed == self.release)
    }
}

/// Returns annotation `lifecycle.sluice.dev/rollback-to` of a ClusterBootstrap.
#[must_use]
pub fn rollback_to(bootstrap: &ObjectMeta) -> Option<&str> {
    let annotations = bootstrap.annotations.as_ref()?;
    annotations.get(annotation::ROLLBACK_TO).map(String::as_str)
}

/// Returns the snapshot that a ClusterBootstrap goes back to if its upgrade is cancelled; `None` once an upgrade to another release is
/// completed.
#[must_use]
pub fn way_back(bootstrap: &ClusterBootstrap) -> Option<Snapshot> {
    let snapshot = Snapshot::in_bootstrap(bootstrap).ok().flatten()?;
    let completed = completed(bootstrap);
    completed
        .is_none_or(|completed| completed == snapshot.release)
        .then_some(snapshot)
}

/// Returns the release of the last completed upgrade, as far as it is known.
#[must_use]
pub fn completed(bootstrap: &ClusterBootstrap) -> Option<&str> {
    let status = bootstrap.status.as_ref()?;
    match &status.upgrade {
        Some(record) if record.outcome == Some(Outcome::Completed) => record.tkr.as_deref(),
        _ => {
            let mut history = status.history.iter();
            let past = history.find(|past| past.outcome == Some(Outcome::Completed));
            past?.to_release.as_deref()
        }
    }
}

/// Packages after a rollback.
#[derive(Debug, Clone, PartialEq)]
pub struct Restored {
    /// Spec of the ClusterBootstrap.
    pub spec: ClusterBootstrapSpec,
    /// Packages that stay at another version, or that the cancelled release added: short name and reason.
    pub staying: Vec<(String, Stays)>,
}

/// Reason why a rollback does not change a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// The policy keeps it.
    Policy,
    /// Its Package says that no rollback goes back from it.
    Package,
    /// It was not there before. Sluice uninstalls nothing.
    Added,
}

/// Whether a Package of this name is of the package, or named by the whole name. kapp-controller requires that the name consists of
/// `spec.refName` and version.
fn is_of(name: &str, ref_name: &str) -> bool {
    let rest = name.strip_prefix(ref_name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns `spec` with the packages of a snapshot. Values stay, unless a merge has added them.
///
/// # Errors
/// The hold of a Package of the snapshot that does not exist.
pub fn restored(
    cluster: &str,
    spec: &ClusterBootstrapSpec,
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    policy: Option<&UpgradePolicy>,
) -> Result<Restored, Hold> {
    let mut restored = Restored {
        spec: spec.clone(),
        staying: Vec::new(),
    };
    for package in all_mut(&mut restored.spec) {
        // The Package of a failed release may be withdrawn already.
        let facts = catalogue.get(&package.ref_name);
        let ref_name = match facts {
            Some(facts) => facts.ref_name.clone(),
            None => snapshot.ref_name_of(&package.ref_name),
        };
        let short = names::short(&ref_name).to_owned();
        let Some(before) = snapshot.before(&ref_name) else {
            restored.staying.push((short, Stays::Added));
            continue;
        };
        let is_other = package.ref_name != before.name;
        let adds_values = !before.values && has_merged_values(cluster, package);
        if !is_other && !adds_values {
            continue;
        }
        if policy.map(|policy| policy.on_cancel(&short)).unwrap_or_default() == OnCancel::Keep {
            restored.staying.push((short, Stays::Policy));
        } else if is_other && facts.is_some_and(|facts| facts.stays) {
            restored.staying.push((short, Stays::Package));
        } else {
            rename(package, before, catalogue, &ref_name)?;
            if adds_values {
                package.values_from = None;
            }
        }
    }
    Ok(restored)
}

/// Whether the values of a package come from a merge, which clones those of the template. Other ones may be a user's.
fn has_merged_values(cluster: &str, package: &ClusterBootstrapPackage) -> bool {
    let Some(from) = &package.values_from else {
        return false;
    };
    let clone = names::clone(cluster, &package.ref_name).ok();
    let provider = from.provider_ref.as_ref().map(|provider| &provider.name);
    let refers = from.secret_ref.as_ref().or(provider);
    refers.is_some_and(|name| clone.as_ref() == Some(name))
}

fn rename(
    package: &mut ClusterBootstrapPackage,
    before: &SnapshotPackage,
    catalogue: &Catalogue,
    ref_name: &str,
) -> Result<(), Hold> {
    let by = format!("annotation {} of the ClusterBootstrap", annotation::ROLLBACK_TO);
    let found = catalogue.get(&before.name);
    // An edited snapshot must not install another package.
    if found.is_none_or(|found| found.ref_name != ref_name) {
        return Err(package_not_found(&before.name, &by));
    }
    before.name.clone_into(&mut package.ref_name);
    Ok(())
}

#[cfg(test)]
mod tests;
