//! Management packages that a release needs (annotation [`annotation::REQUIRES`]), and whether they are proven.
//!
//! Their PackageInstalls belong to other clients. Sluice installs none of them.

use std::{cmp::Ordering, collections::BTreeMap, fmt, sync::Arc};

use kube::ResourceExt as _;
use sluice_crds::{
    foreign::{App, PackageInstall},
    labels::annotation,
    run::{
        PackageRecord, PackageState, Phase, ProvenPackage, Readiness, Requirements, TanzuKubernetesRelease,
    },
};

use crate::{
    names::{LONGEST_NAME, is_object_name},
    proof::{JudgedOn, Target, judge_of_others},
    reasons::{Class, PackageReason},
    text::one_line,
    version::{Ordered, order},
};

/// Maximum number of requirements of a release.
const MOST: usize = 16;

/// Longest part of an annotation in a message, in characters.
const SHOWN: usize = 80;

/// Requirement of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement<'a> {
    /// `spec.refName` of the package.
    package: &'a str,
    operator: Operator,
    version: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    /// Exactly the version.
    Equal,
    /// The version or a higher one.
    AtLeast,
}

impl fmt::Display for Requirement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = match self.operator {
            Operator::Equal => "=",
            Operator::AtLeast => ">=",
        };
        write!(f, "{operator}{}", self.version)
    }
}

impl Requirement<'_> {
    /// Whether a version of the package meets the requirement, by the [order](Ordered) of packages.
    fn admits(&self, version: &str) -> bool {
        match order(version, self.version) {
            Some(Ordering::Equal) => true,
            Some(Ordering::Greater) => self.operator == Operator::AtLeast,
            Some(Ordering::Less) | None => false,
        }
    }
}

/// Returns the fault of the requirements of a release, if any.
#[must_use]
pub fn fault(release: &TanzuKubernetesRelease) -> Option<String> {
    parse(text_of(release)?).err()
}

/// Whether a release has requirements.
#[must_use]
pub fn has_requirements(release: &TanzuKubernetesRelease) -> bool {
    text_of(release).is_some()
}

fn text_of(release: &TanzuKubernetesRelease) -> Option<&str> {
    release
        .annotations()
        .get(annotation::REQUIRES)
        .map(String::as_str)
}

/// Parses the value of the annotation.
///
/// # Errors
/// The fault and its remedy.
fn parse(text: &str) -> Result<Vec<Requirement<'_>>, String> {
    let key = annotation::REQUIRES;
    let count = text.split(',').count();
    if count > MOST {
        return Err(format!(
            "annotation {key} has {count} requirements, at most {MOST} are allowed; remove some of them"
        ));
    }
    let each = text.split(',').map(str::trim);
    each.map(|part| requirement(part).ok_or_else(|| malformed(part)))
        .collect()
}

fn malformed(part: &str) -> String {
    format!(
        "annotation {} has requirement {:?}, which is not <package>=<version> or <package>>=<version>, such as \
         tkg-clusterclass-vsphere.tanzu.vmware.com>=0.31.0; correct it or remove the annotation",
        annotation::REQUIRES,
        one_line(part, SHOWN)
    )
}

fn requirement(part: &str) -> Option<Requirement<'_>> {
    let (package, operator, version) = if let Some((package, version)) = part.split_once(">=") {
        (package, Operator::AtLeast, version)
    } else {
        let (package, version) = part.split_once('=')?;
        (package, Operator::Equal, version)
    };
    let (package, version) = (package.trim(), version.trim());
    let is_valid = is_object_name(package) && version.len() <= LONGEST_NAME && Ordered::of(version).is_some();
    is_valid.then_some(Requirement {
        package,
        operator,
        version,
    })
}

/// PackageInstalls and Apps of the system namespace, as far as they may prove a management package.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ManagementPackages {
    installs: BTreeMap<String, Arc<PackageInstall>>,
    apps: BTreeMap<String, Arc<App>>,
}

/// State of the requirements of one release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assessment {
    /// Record for the status of the release.
    pub record: Requirements,
    /// The first requirement that is not met now; `None` if all are met. Gates depend on it.
    pub unmet: Option<Unmet>,
    /// The first one that has no recorded proof either, or whose proof is not only being renewed. The status of the release depends on
    /// it: otherwise each upgrade of a package would change the release and all its Clusters twice.
    pub lost: Option<Unmet>,
    /// Names of the PackageInstalls of the required packages.
    pub installs: Vec<String>,
}

/// Requirement that is not met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    /// The package and its wanted version.
    pub wanted: String,
    /// What was found, and the way out.
    pub found: String,
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.wanted, self.found)
    }
}

impl ManagementPackages {
    /// Observes an existing or deleted PackageInstall of the system namespace. Returns whether a requirement may depend on it.
    ///
    /// One that deploys to another cluster, or that installs releases, proves no management package.
    pub fn install(&mut self, install: &PackageInstall, is_there: bool) -> bool {
        let name = install.name_any();
        let installs_releases = install.annotations().contains_key(annotation::TKR_PACKAGE);
        let counts = install.spec.cluster.is_none() && !installs_releases;
        if !is_there || !counts {
            return self.installs.remove(&name).is_some();
        }
        let mut kept = install.clone();
        kept.metadata.resource_version = None;
        kept.spec.values.clear();
        if let Some(status) = &mut kept.status {
            (status.friendly_description, status.useful_error_message) = (None, None);
        }
        let kept = Arc::new(kept);
        let before = self.installs.insert(name, Arc::clone(&kept));
        before.is_none_or(|before| before != kept)
    }

    /// Observes an existing or deleted App of the system namespace. Returns whether a requirement may depend on it.
    pub fn app(&mut self, app: &App, is_there: bool) -> bool {
        let name = app.name_any();
        if !is_there {
            return self.apps.remove(&name).is_some();
        }
        let mut kept = app.clone();
        kept.metadata.resource_version = None;
        kept.spec.template.clear();
        if let Some(status) = &mut kept.status {
            (status.friendly_description, status.useful_error_message) = (None, None);
            (status.fetch, status.template, status.deploy) = (None, None, None);
            status.consecutive_reconcile_successes = None;
            // Proofs of these packages do not depend on the number.
            status.consecutive_reconcile_failures = None;
        }
        let kept = Arc::new(kept);
        let before = self.apps.insert(name, Arc::clone(&kept));
        before.is_none_or(|before| before != kept)
    }

    /// Returns the package that the PackageInstall of this name installs.
    #[must_use]
    pub fn package_of(&self, install: &str) -> Option<&str> {
        self.installs.get(install).map(|install| ref_name(install))
    }

    /// Returns why no Cluster may move to a release yet; `None` if all its requirements are met, or if a source of compatibility lists
    /// the release whatever it needs.
    #[must_use]
    pub fn unmet(&self, release: &TanzuKubernetesRelease) -> Option<String> {
        let named = |why: String| format!("TanzuKubernetesRelease {}: {why}", release.name_any());
        match self.assess(release)? {
            Err(fault) => Some(named(fault)),
            Ok(_) if is_overridden(release) => None,
            Ok(assessment) => assessment.unmet.map(|unmet| named(unmet.to_string())),
        }
    }

    /// Returns the state of the requirements of a release; `None` if it has none. The status of the release has the recorded proofs.
    ///
    /// # Errors
    /// The requirements are malformed.
    #[must_use]
    pub fn assess(&self, release: &TanzuKubernetesRelease) -> Option<Result<Assessment, String>> {
        let text = text_of(release)?;
        Some(parse(text).map(|requirements| self.assessed(text, &requirements, recorded(release))))
    }

    fn assessed(
        &self,
        text: &str,
        requirements: &[Requirement<'_>],
        recorded: &[ProvenPackage],
    ) -> Assessment {
        let mut assessment = Assessment {
            record: Requirements {
                requires: text.to_owned(),
                ..Requirements::default()
            },
            unmet: None,
            lost: None,
            installs: Vec::new(),
        };
        let (mut first, mut further) = (Vec::new(), Vec::new());
        for requirement in requirements {
            let named = self.installs.iter();
            let named = named.filter(|(_, install)| ref_name(install) == requirement.package);
            let all = named.clone().map(|(name, _)| name.clone());
            assessment.installs.extend(all);
            let found: Vec<Found<'_>> = named
                .map(|(name, install)| self.found(name, install, requirement, recorded))
                .collect();
            let mut proven = found.iter().filter_map(|found| found.proven.clone());
            if let Some(proven) = proven.next() {
                first.push(proven);
            } else {
                let unmet = why(requirement, &found);
                let renewed = |proven: &&ProvenPackage| found.iter().any(|found| found.renews(proven));
                let mut renewed = recorded.iter().filter(renewed).cloned();
                match renewed.next() {
                    Some(proven) => first.push(proven),
                    None => {
                        assessment.lost.get_or_insert_with(|| unmet.clone());
                    }
                }
                further.extend(renewed.take(MOST));
                assessment.unmet.get_or_insert(unmet);
            }
            further.extend(proven.take(MOST));
        }
        // A second PackageInstall proves the package after the first one, and its proof outlasts failed resyncs, too.
        let record = &mut assessment.record.proven;
        for proven in first.into_iter().chain(further) {
            if record.len() < MOST && !record.contains(&proven) {
                record.push(proven);
            }
        }
        assessment.installs.sort_unstable();
        assessment.installs.dedup();
        assessment
    }

    /// Judges one PackageInstall of a required package.
    fn found<'a>(
        &'a self,
        name: &'a str,
        install: &'a PackageInstall,
        requirement: &Requirement<'_>,
        recorded: &[ProvenPackage],
    ) -> Found<'a> {
        let app: Option<&App> = self.apps.get(name).map(AsRef::as_ref);
        let version = install
            .status
            .as_ref()
            .and_then(|status| status.version.as_deref());
        let target = target(requirement.package, version.unwrap_or_default());
        let latch = app.and_then(|app| latch(&target, app, recorded));
        let judged = judge_of_others(&target, Some(install), app, latch.as_ref());
        let admits = version.is_some_and(|version| requirement.admits(version));
        let proven = (admits && judged.ready())
            .then(|| proven(&target, &judged.record))
            .flatten();
        Found {
            install,
            app_uid: app.and_then(|app| app.metadata.uid.as_deref()),
            version,
            admits,
            proven,
            reason: PackageReason::parse(&judged.record.reason),
        }
    }
}

/// PackageInstall of a required package.
struct Found<'a> {
    install: &'a PackageInstall,
    app_uid: Option<&'a str>,
    /// Version that kapp-controller has selected.
    version: Option<&'a str>,
    /// Whether the version meets the requirement.
    admits: bool,
    /// Its proof, if the version meets the requirement.
    proven: Option<ProvenPackage>,
    /// Reason of a missing proof.
    reason: Option<PackageReason>,
}

impl Found<'_> {
    /// Whether kapp-controller is only deploying an admitted version by the App of a recorded proof, or is about to.
    fn renews(&self, recorded: &ProvenPackage) -> bool {
        let is_in_progress = matches!(
            self.reason,
            Some(
                PackageReason::PackageInstallNotObserved
                    | PackageReason::PackageInstallReconciling
                    | PackageReason::AppVersionMismatch
                    | PackageReason::AppNotObserved
                    | PackageReason::AppReconciling
            )
        );
        let is_of_app =
            recorded.package == ref_name(self.install) && Some(recorded.app_uid.as_str()) == self.app_uid;
        self.admits && is_in_progress && is_of_app
    }
}

fn ref_name(install: &PackageInstall) -> &str {
    let package = install.spec.package_ref.as_ref();
    package.map_or("", |package| package.ref_name.as_str())
}

fn target<'a>(package: &'a str, version: &'a str) -> Target<'a> {
    Target {
        name: package,
        ref_name: package,
        version,
        digest: "",
        secret_name: "",
        kept: false,
        sync_period: None,
        judged_on: JudgedOn::Management,
        readiness: Readiness::Reconciled,
        phase: Phase::BeforeControlPlane,
    }
}

/// Returns the recorded proof of a target by this App.
fn latch(target: &Target<'_>, app: &App, recorded: &[ProvenPackage]) -> Option<PackageRecord> {
    let is_it = |proven: &&ProvenPackage| {
        (proven.package.as_str(), proven.version.as_str()) == (target.ref_name, target.version)
            && Some(&proven.app_uid) == app.metadata.uid.as_ref()
    };
    let proven = recorded.iter().find(is_it)?;
    Some(PackageRecord {
        name: target.name.to_owned(),
        version: target.version.to_owned(),
        values_digest: String::new(),
        state: PackageState::Ready,
        reason: String::new(),
        message: String::new(),
        app_uid: Some(proven.app_uid.clone()),
        app_generation: Some(proven.app_generation),
        proven_readiness: Some(Readiness::Reconciled),
        first_seen_run: None,
        repairs: 0,
    })
}

fn proven(target: &Target<'_>, record: &PackageRecord) -> Option<ProvenPackage> {
    Some(ProvenPackage {
        package: target.ref_name.to_owned(),
        version: target.version.to_owned(),
        app_uid: record.app_uid.clone()?,
        app_generation: record.app_generation?,
    })
}

fn by_version(one: &Found<'_>, other: &Found<'_>) -> Ordering {
    let version = |found: &Found<'_>| found.version.and_then(Ordered::of);
    version(one).cmp(&version(other))
}

/// Describes a requirement that no PackageInstall meets. The text is the same in each run of kapp-controller.
fn why(requirement: &Requirement<'_>, found: &[Found<'_>]) -> Unmet {
    let unmet = |found: String| Unmet {
        wanted: format!("package {}: wanted {requirement}", requirement.package),
        found,
    };
    let closest = found
        .iter()
        .filter(|found| found.admits)
        .max_by(|one, other| by_version(one, other))
        .or_else(|| found.iter().max_by(|one, other| by_version(one, other)));
    let Some(found) = closest else {
        return unmet("found no PackageInstall in the system namespace; install the package".to_owned());
    };
    let at = format!(
        "PackageInstall {}/{}",
        found.install.namespace().unwrap_or_default(),
        found.install.name_any()
    );
    let version = found.version.unwrap_or("no version");
    let reason = match found.reason {
        _ if !found.admits => "set another version in its spec",
        Some(reason) if matches!(reason.class(), Class::Blocked | Class::Pause) => reason.text(),
        _ => "kapp-controller has not reconciled it, and its conditions say why",
    };
    unmet(format!("found {version:.80} in {at}: {reason}"))
}

fn recorded(release: &TanzuKubernetesRelease) -> &[ProvenPackage] {
    let status = release.status.as_ref();
    let requirements = status.and_then(|status| status.requirements.as_ref());
    requirements.map_or(&[], |requirements| requirements.proven.as_slice())
}

/// Whether the status of a release says that a source of compatibility lists the release whatever it needs.
#[must_use]
pub fn is_overridden(release: &TanzuKubernetesRelease) -> bool {
    let status = release.status.as_ref();
    let requirements = status.and_then(|status| status.requirements.as_ref());
    requirements.is_some_and(|requirements| requirements.overridden)
}

/// Whether two states of a release have the same requirements, met or not.
#[must_use]
pub fn are_same(one: &TanzuKubernetesRelease, other: &TanzuKubernetesRelease) -> bool {
    let of = |release: &TanzuKubernetesRelease| {
        let status = release.status.as_ref();
        status.and_then(|status| status.requirements.clone())
    };
    text_of(one) == text_of(other) && of(one) == of(other)
}

/// Returns the packages that a release requires.
#[must_use]
pub fn required(release: &TanzuKubernetesRelease) -> Vec<String> {
    let requirements = text_of(release).and_then(|text| parse(text).ok());
    let requirements = requirements.unwrap_or_default().into_iter();
    requirements
        .map(|requirement| requirement.package.to_owned())
        .collect()
}
