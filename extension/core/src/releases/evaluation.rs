//! Joint evaluation of all releases.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use kube::ResourceExt as _;
use sluice_crds::{
    labels::{label, name::UPDATES_AVAILABLE},
    run::{Requirements, TanzuKubernetesRelease},
};

use super::{
    ReleaseReason, Updates,
    compatibility::{Compatibility, Verdict},
    conditions::{COMPATIBLE, READY, Said, VALID, is_false, quoted, say},
    labels::{Labels, version_label, version_labels},
    release_status::ReleaseStatus,
    updates::Update,
};
use crate::{
    cache::stores::{Images, Releases},
    cluster::is_legacy,
    names::LONGEST_LABEL,
    packages::{
        bootstrap::Catalogue,
        requirements::{self, ManagementPackages},
    },
    version::Ordered,
};

/// Inputs of an evaluation.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// All releases.
    pub releases: &'a Releases,
    /// All OSImages; `None` before the first list.
    pub images: Option<&'a Images>,
    /// The Packages of the system namespace; `None` before the first list.
    pub packages: Option<&'a Catalogue>,
    /// Compatibility data; `None` before the first read.
    pub compatibility: Option<&'a Compatibility>,
    /// PackageInstalls and Apps of the system namespace; `None` before the first list.
    pub management_packages: Option<&'a ManagementPackages>,
}

/// Fault of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Reason in one word.
    pub reason: ReleaseReason,
    /// Description and remedy.
    pub message: String,
}

/// Result for each release.
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    releases: BTreeMap<String, Judged>,
    /// Releases that nothing excludes.
    pub updates: Updates,
}

/// Result for one release. Unknown parts leave the object unchanged.
#[derive(Debug, Clone)]
struct Judged {
    version: Option<Ordered>,
    valid: Option<Result<(), Fault>>,
    compatible: Option<Compatible>,
}

/// Compatibility of one release.
#[derive(Debug, Clone)]
struct Compatible {
    verdict: Verdict,
    /// State of its requirements, if it has any.
    requirements: Option<Requirements>,
}

impl Evaluation {
    /// Evaluates all releases.
    #[must_use]
    pub fn of(facts: Facts<'_>) -> Self {
        let owners = owners(facts.releases);
        let judged = facts.releases.iter().map(|(name, release)| {
            let version = Ordered::of(&release.spec.version);
            let valid = facts.images.zip(facts.packages).map(|(images, packages)| {
                let owner = owners.get(&version_label(&release.spec.version)).copied();
                valid(release, version.is_some(), owner, images, packages)
            });
            let judged = Judged {
                version,
                valid,
                compatible: compatible(release, &facts),
            };
            (name.clone(), judged)
        });
        let judged: BTreeMap<_, _> = judged.collect();
        let offered = facts.releases.iter().filter_map(|(name, release)| {
            let judged = judged.get(name)?;
            let version = judged.version.clone()?;
            is_offered(release, judged, facts.images).then(|| Update {
                version,
                text: release.spec.version.clone(),
                name: name.clone(),
            })
        });
        Self {
            updates: Updates::of(offered),
            releases: judged,
        }
    }

    /// Returns the names of all releases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.releases.keys().map(String::as_str)
    }

    /// Returns the known fault of a release.
    #[must_use]
    pub fn fault(&self, release: &str) -> Option<&Fault> {
        self.releases.get(release)?.valid.as_ref()?.as_ref().err()
    }

    /// Returns the version of a release.
    #[must_use]
    pub fn version(&self, release: &str) -> Option<&Ordered> {
        self.releases.get(release)?.version.as_ref()
    }

    /// Returns condition `ReleaseCompatible` of a Cluster on a release; `None` while its compatibility is unknown.
    pub(super) fn said_of_compatibility(&self, release: &str) -> Option<Said> {
        let Some(judged) = self.releases.get(release) else {
            let message = format!("TanzuKubernetesRelease {release} does not exist");
            return Some(Said::unknown(ReleaseReason::ReleaseNotFound, message));
        };
        let said = said(&judged.compatible.as_ref()?.verdict.of_clusters(release));
        let is_without_reason = said.reason.is_empty() && said.status == "False";
        Some(if is_without_reason {
            Said {
                reason: ReleaseReason::Incompatible.as_str().to_owned(),
                ..said
            }
        } else {
            said
        })
    }

    /// Whether both evaluations have the same result for every Cluster.
    #[must_use]
    pub fn is_same_for_clusters(&self, other: &Self) -> bool {
        let of = |name: &str, judged: &Judged| {
            let compatible = judged.compatible.as_ref();
            let verdict = compatible.map(|compatible| compatible.verdict.of_clusters(name));
            (judged.version.clone(), verdict)
        };
        let known = |evaluation: &Self| {
            let known = evaluation.releases.iter();
            known
                .map(|(name, judged)| (name.clone(), of(name, judged)))
                .collect::<BTreeMap<_, _>>()
        };
        self.updates == other.updates && known(self) == known(other)
    }

    /// Counts the releases by fault.
    #[must_use]
    pub fn faults(&self) -> BTreeMap<ReleaseReason, u64> {
        let mut faults = BTreeMap::new();
        for name in self.releases.keys() {
            if let Some(fault) = self.fault(name) {
                *faults.entry(fault.reason).or_default() += 1;
            }
        }
        faults
    }

    /// Returns the write of a release; `None` if the release is up to date or unknown.
    #[must_use]
    pub fn of_release(&self, release: &TanzuKubernetesRelease, now: Timestamp) -> Option<ReleaseStatus> {
        let judged = self.releases.get(&release.name_any())?;
        let known = judged.version.is_some().then_some(release.spec.version.as_str());
        let mut labels = version_labels(known, release.metadata.labels.as_ref());
        let before = conditions(release);
        let mut conditions = before.clone();
        if let Some(valid) = &judged.valid {
            let said = valid.as_ref().map_or_else(
                |fault| Said::no("Warning", fault.reason.as_str(), fault.message.clone()),
                |()| Said::yes(String::new()),
            );
            say(&mut conditions, VALID, said, now);
            labels.insert(label::INVALID.to_owned(), valid.is_err().then(String::new));
        }
        if let Some(compatible) = &judged.compatible {
            say(&mut conditions, COMPATIBLE, said(&compatible.verdict), now);
            let excluded = compatible.verdict.excludes();
            labels.insert(label::INCOMPATIBLE.to_owned(), excluded.then(String::new));
        }
        let ready = ready(release.metadata.labels.as_ref(), &labels);
        say(&mut conditions, READY, ready, now);
        let updates = updates_of(judged.version.as_ref(), &release.spec.version, &self.updates);
        say(&mut conditions, UPDATES_AVAILABLE, updates, now);
        let mut status = ReleaseStatus::of(release, labels, &before, conditions);
        if let Some(compatible) = &judged.compatible {
            let recorded = release.status.as_ref();
            let recorded = recorded.and_then(|status| status.requirements.as_ref());
            status.requires(recorded, compatible.requirements.as_ref());
        }
        status.if_any()
    }
}

/// Returns the compatibility of a release; `None` while a part of it is unknown.
fn compatible(release: &TanzuKubernetesRelease, facts: &Facts<'_>) -> Option<Compatible> {
    let (version, compatibility) = (&release.spec.version, facts.compatibility?);
    let by_data = || Compatible {
        verdict: compatibility.verdict(version),
        requirements: None,
    };
    if !requirements::has_requirements(release) || requirements::fault(release).is_some() {
        return Some(by_data());
    }
    let Some(Ok(assessment)) = facts.management_packages?.assess(release) else {
        return Some(by_data());
    };
    // What cannot be read withdraws nothing.
    let overridden = compatibility
        .overrides(version)
        .unwrap_or_else(|| requirements::is_overridden(release));
    let requirements = Requirements {
        overridden,
        ..assessment.record
    };
    Some(Compatible {
        verdict: compatibility.verdict_on_requiring(version, overridden, assessment.lost.as_ref()),
        requirements: Some(requirements),
    })
}

/// Builds condition `Compatible` of a release.
fn said(verdict: &Verdict) -> Said {
    match verdict {
        Verdict::Compatible => Said::yes(String::new()),
        // Without a reason, as in the addons-manager.
        Verdict::Incompatible(why) => Said::no("Warning", "", why.clone()),
        Verdict::NotReady(why) => {
            let reason = ReleaseReason::ManagementPackageNotReady.as_str();
            Said::no("Warning", reason, why.to_string())
        }
        Verdict::Unknown(reason, why) => Said::unknown(*reason, why.clone()),
    }
}

/// Returns the conditions of a release.
fn conditions(release: &TanzuKubernetesRelease) -> Vec<sluice_crds::run::Condition> {
    let status = release.status.as_ref();
    status.map(|status| status.conditions.clone()).unwrap_or_default()
}

/// Whether nothing excludes a release from the available updates.
fn is_offered(release: &TanzuKubernetesRelease, judged: &Judged, images: Option<&Images>) -> bool {
    let excluding = [label::INCOMPATIBLE, label::DEACTIVATED, label::INVALID];
    let has_image = images.is_none_or(|images| {
        let named = || release.spec.os_images.iter();
        let mut known = named().filter_map(|named| images.get(&named.name));
        let usable = known.any(|image| !excluding.iter().any(|key| image.labels().contains_key(*key)));
        named().next().is_none() || usable
    });
    let is_valid = judged
        .valid
        .as_ref()
        .map_or_else(|| !is_false(&conditions(release), VALID), Result::is_ok);
    let is_compatible = judged.compatible.as_ref().map_or_else(
        || !is_false(&conditions(release), COMPATIBLE),
        |compatible| !compatible.verdict.excludes(),
    );
    is_valid
        && is_compatible
        && has_image
        && release.metadata.deletion_timestamp.is_none()
        && !release.labels().contains_key(label::DEACTIVATED)
        && !is_legacy(&release.metadata)
}

/// Selects the release of each version: of duplicates the one that is named after its version, otherwise the first.
fn owners(releases: &Releases) -> HashMap<String, &str> {
    let mut owners = HashMap::<String, &str>::new();
    for (name, release) in releases {
        // A leading `v` does not matter.
        let version = version_label(&release.spec.version);
        let is_named_so = *name == version;
        let owner = owners.entry(version).or_insert(name);
        if is_named_so {
            *owner = name;
        }
    }
    owners
}

/// Returns the fault of a release, if any.
fn valid(
    release: &TanzuKubernetesRelease,
    has_version: bool,
    owner: Option<&str>,
    images: &Images,
    packages: &Catalogue,
) -> Result<(), Fault> {
    let spec = &release.spec;
    let fault = |reason, message| Err(Fault { reason, message });
    let kubernetes = &spec.kubernetes.version;
    if !has_version {
        let message = format!(
            "spec.version {} is not a semantic version, such as v1.36.3+vmware.1-tkg.1",
            quoted(&spec.version)
        );
        return fault(ReleaseReason::VersionInvalid, message);
    }
    if version_label(&spec.version).len() > LONGEST_LABEL {
        let message = format!(
            "spec.version {} has more than {LONGEST_LABEL} characters: it is no value of a label, so no Cluster can name it",
            quoted(&spec.version)
        );
        return fault(ReleaseReason::VersionInvalid, message);
    }
    if Ordered::of(kubernetes).is_none() {
        let message = format!(
            "spec.kubernetes.version {} is not a semantic version, such as v1.36.3+vmware.1",
            quoted(kubernetes)
        );
        return fault(ReleaseReason::KubernetesVersionInvalid, message);
    }
    if let Some(message) = requirements::fault(release) {
        return fault(ReleaseReason::RequirementInvalid, message);
    }
    if let Some(owner) = owner.filter(|owner| *owner != release.name_any()) {
        let message = format!(
            "spec.version {} is that of TanzuKubernetesRelease {owner}, too; remove one of them",
            spec.version
        );
        return fault(ReleaseReason::DuplicateVersion, message);
    }
    for (index, named) in spec.os_images.iter().enumerate() {
        let field = format!("spec.osImages[{index}].name");
        match images.get(&named.name) {
            None => {
                let message = format!(
                    "{field} {}: there is no such OSImage, or it cannot be decoded",
                    quoted(&named.name)
                );
                return fault(ReleaseReason::OSImageNotFound, message);
            }
            Some(image) if image.spec.kubernetes_version != *kubernetes => {
                let message = format!(
                    "{field} {}: the OSImage has Kubernetes {}, the release {kubernetes}",
                    named.name, image.spec.kubernetes_version
                );
                return fault(ReleaseReason::OSImageOfAnotherVersion, message);
            }
            Some(_) => {}
        }
    }
    for (index, named) in spec.bootstrap_packages.iter().flatten().enumerate() {
        if !packages.contains_key(&named.name) {
            let message = format!(
                "spec.bootstrapPackages[{index}].name {}: there is no such Package in the system namespace, or it cannot be decoded",
                quoted(&named.name)
            );
            return fault(ReleaseReason::PackageNotFound, message);
        }
    }
    Ok(())
}

/// Builds condition `Ready` of an object with these labels after these changes.
pub(super) fn ready(existing: Option<&BTreeMap<String, String>>, changes: &Labels) -> Said {
    let has = |key: &str| match changes.get(key) {
        Some(change) => change.is_some(),
        None => existing.is_some_and(|labels| labels.contains_key(key)),
    };
    let excluding = [
        (label::INCOMPATIBLE, "Incompatible"),
        (label::DEACTIVATED, "Deactivated"),
        (label::INVALID, "Invalid"),
    ];
    let excluding = excluding.into_iter().find(|(key, _)| has(key));
    excluding.map_or_else(
        || Said::yes(String::new()),
        |(key, reason)| Said::no("Warning", reason, key.to_owned()),
    )
}

/// Builds condition `UpdatesAvailable` for the releases above this version.
pub(super) fn updates_of(version: Option<&Ordered>, text: &str, updates: &Updates) -> Said {
    let Some(version) = version else {
        let message = format!("{} is not a semantic version", quoted(text));
        return Said::unknown(ReleaseReason::CannotParseTKR, message);
    };
    updates.message(version).map_or_else(
        || Said::no("Info", ReleaseReason::AlreadyUpToDate.as_str(), String::new()),
        Said::yes,
    )
}
