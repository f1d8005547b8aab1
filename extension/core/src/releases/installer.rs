//! Installation of Packages that contain releases: kapp-controller installs each by a PackageInstall of Sluice; Sluice unpacks nothing
//! (addons-manager §3.9; docs/decisions/0031).

#[cfg(test)]
mod tests;
mod underway;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::{
        Package, PackageInstall, condition,
        packaging::{PackageInstallSpec, PackageRef, Prereleases, VersionSelection},
    },
    labels::{annotation, label, name},
};

use crate::{
    digest::hash,
    events::Notice,
    names::is_object_name,
    packages::build::update,
    protocol::{Context, Done, Key, ReadPhase, Reconciler, Server, Step, Write},
    reasons::reasons,
};

/// Longest name of a PackageInstall that is derived from a Package name. kapp derives longer names from it, which must be valid too.
const LONGEST_NAME: usize = 200;

/// Longest event note, in bytes: the API server refuses longer notes.
const LONGEST_NOTE: usize = 1000;

/// Digits of a digest in the name of a PackageInstall if the name of the Package is unsuitable.
const DIGITS: usize = 20;

reasons! {
    /// Why the releases of a Package are not installed.
    InstallReason:
    /// It brings an object that another App has brought.
    OwnedByAnotherApp,
    /// There is a PackageInstall of the name that Sluice has not made.
    PackageInstallNotOurs,
    /// It brings an object that the ServiceAccount may not write.
    RightMissing,
    /// kapp-controller could not fetch, read or apply it.
    TKRPackageFailed,
}

pub use underway::Underway;

/// Fault of a Package that contains releases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallFault {
    /// Reason in one word.
    pub reason: InstallReason,
    /// Description and remedy, on one line.
    pub message: String,
}

impl InstallFault {
    /// Returns the event for this fault. It is about the PackageInstall: an event is named after its object, and names of Packages may have
    /// a `+`.
    #[must_use]
    pub fn notice(&self) -> Notice<'_> {
        Notice {
            warns: true,
            reason: self.reason.as_str(),
            note: &self.message,
        }
    }
}

/// State of the installation of a Package with releases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstallState {
    /// The releases are installed, or a user paused the installation, or there is nothing to install.
    Settled,
    /// kapp-controller is reconciling.
    Underway,
    /// The installation failed.
    Failed(InstallFault),
}

/// A Package of the system namespace, and the PackageInstall with the name that Sluice derives from it.
#[derive(Debug, Clone, Copy)]
pub struct TkrPackage<'a> {
    namespace: &'a str,
    name: &'a str,
    package: Option<&'a Package>,
    found: Option<&'a PackageInstall>,
}

/// Returns the name of the Package that a PackageInstall of Sluice with this metadata installs.
#[must_use]
pub fn package_in(install: &ObjectMeta) -> Option<&str> {
    let annotations = install.annotations.as_ref()?;
    annotations.get(annotation::TKR_PACKAGE).map(String::as_str)
}

impl<'a> TkrPackage<'a> {
    /// Finds Package `name` and PackageInstall [`Self::install_name`] in the system namespace `namespace`.
    #[must_use]
    pub const fn of(
        namespace: &'a str,
        name: &'a str,
        package: Option<&'a Package>,
        found: Option<&'a PackageInstall>,
    ) -> Self {
        Self {
            namespace,
            name,
            package,
            found,
        }
    }

    /// Returns the name of the PackageInstall of a Package: the same with `---` for `+`. Names of Packages may be longer and have more
    /// characters than names of other objects; then the name is `tkr-package-<digest>`.
    #[must_use]
    pub fn install_name(package: &str) -> String {
        let is_segment = |segment: &str| is_object_name(segment) && !segment.contains('.');
        // Otherwise two Packages would share one name.
        let is_plain = !package.contains("---") && package.len() <= LONGEST_NAME;
        let name = package.replace('+', "---");
        if is_plain && name.len() <= LONGEST_NAME && name.split('.').all(is_segment) {
            name
        } else {
            format!("tkr-package-{}", hash([package.as_bytes()], DIGITS))
        }
    }

    /// Returns the Package if it contains releases.
    fn bringing(&self) -> Option<&'a Package> {
        self.package.filter(|package| brings_releases(&package.metadata))
    }

    /// Whether Sluice created the PackageInstall, for this Package.
    fn is_ours(&self, install: &PackageInstall) -> bool {
        package_in(&install.metadata) == Some(self.name)
    }

    /// Returns the write of the PackageInstall; `None` if it is up to date or not Sluice's.
    ///
    /// A PackageInstall that is being deleted is left alone. If its Package is gone, or contains no releases any more, the PackageInstall
    /// is deleted and the installed objects stay (`noopDelete`).
    #[must_use]
    pub fn install(&self) -> Option<Install> {
        let key = || {
            let name = Self::install_name(self.name);
            Key::of::<PackageInstall>(Server::Management, Some(self.namespace), &name)
        };
        match (self.bringing(), self.found) {
            (Some(package), None) => Some(Install::Create(Box::new(self.wanted(package)))),
            (_, Some(found)) if !self.is_ours(found) => None,
            (_, Some(found)) if is_deleted(found) && found.spec.noop_delete => None,
            (Some(package), Some(found)) if !is_deleted(found) => {
                let patch = update(&self.wanted(package), found)?;
                Some(Install::Update(key(), patch))
            }
            // A user edited `noopDelete`: a deletion would delete the installed objects as well.
            (_, Some(found)) if !found.spec.noop_delete => {
                let metadata = &found.metadata;
                let patch = json!({
                    "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
                    "spec": {"noopDelete": true},
                });
                Some(Install::Update(key(), patch))
            }
            (_, Some(found)) => Some(Install::Remove {
                install: key(),
                uid: found.uid(),
                package: Key::of::<Package>(Server::Management, Some(self.namespace), self.name),
            }),
            (None, None) => None,
        }
    }

    fn wanted(&self, package: &Package) -> PackageInstall {
        PackageInstall {
            metadata: ObjectMeta {
                name: Some(Self::install_name(self.name)),
                namespace: Some(self.namespace.to_owned()),
                annotations: Some(BTreeMap::from([
                    (annotation::TKR_PACKAGE.to_owned(), self.name.to_owned()),
                    (annotation::YTT_PATHS.to_owned(), name::TKR_KAPP_CONFIG.to_owned()),
                ])),
                ..ObjectMeta::default()
            },
            spec: PackageInstallSpec {
                service_account_name: Some(name::TKR_INSTALLER.to_owned()),
                // Clusters use a release for longer than a repository contains it.
                noop_delete: true,
                package_ref: Some(PackageRef {
                    ref_name: package.spec.ref_name.clone(),
                    version_selection: Some(VersionSelection {
                        constraints: Some(package.spec.version.clone()),
                        prereleases: Some(Prereleases::default()),
                    }),
                }),
                ..PackageInstallSpec::default()
            },
            status: None,
        }
    }

    /// Returns the state of the installation, with kapp-controller's message if it failed.
    #[must_use]
    pub fn state(&self) -> InstallState {
        let found = match (self.bringing(), self.found) {
            (Some(_), Some(found)) => found,
            (Some(_), None) => return InstallState::Underway,
            (None, Some(found)) if self.is_ours(found) && is_deleted(found) => found,
            (None, _) => return InstallState::Settled,
        };
        let package = format!("Package {}/{}", self.namespace, self.name);
        if !self.is_ours(found) {
            let message = format!(
                "{package}: PackageInstall {} exists and has no annotation {} {:?}: Sluice does not change it, and the releases are not installed; delete it",
                found.name_any(),
                annotation::TKR_PACKAGE,
                self.name
            );
            let reason = InstallReason::PackageInstallNotOurs;
            return InstallState::Failed(InstallFault { reason, message });
        }
        let status = found.status.clone().unwrap_or_default();
        let failed = |type_: &&&str| condition::is_true(&status.conditions, type_);
        if let Some(type_) = ["DeleteFailed", "ReconcileFailed"].iter().find(failed) {
            let failed = condition::find(&status.conditions, type_);
            let said = failed.map(|failed| failed.message.clone()).unwrap_or_default();
            let words = status.useful_error_message.unwrap_or(said);
            return InstallState::Failed(fault(&package, &words));
        }
        let is_installed = condition::is_true(&status.conditions, "ReconcileSucceeded")
            && status.observed_generation == found.metadata.generation;
        if is_installed || found.spec.paused || found.spec.canceled {
            InstallState::Settled
        } else {
            InstallState::Underway
        }
    }
}

fn is_deleted(install: &PackageInstall) -> bool {
    install.metadata.deletion_timestamp.is_some()
}

/// Whether a Package with this metadata contains releases.
fn brings_releases(meta: &ObjectMeta) -> bool {
    let mut labels = meta.labels.iter().flatten();
    labels.any(|(key, _)| key == label::TKR_PACKAGE)
}

/// Classifies a message of kapp-controller and puts it on one line for event and log.
fn fault(package: &str, words: &str) -> InstallFault {
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let (reason, advice) = if let Some(owner) = owner(&words) {
        let advice =
            format!("{owner} already owns an object of the bundle; remove the object from one of them");
        (InstallReason::OwnedByAnotherApp, advice)
    } else if is_without_right(&words) {
        let advice = format!(
            "the bundle contains other kinds than those of releases, or drops an object; correct it, or, if the kind is intended, bind a Role \
             for it to ServiceAccount {}",
            name::TKR_INSTALLER
        );
        (InstallReason::RightMissing, advice)
    } else {
        let advice = "correct the Package or what it fetches; kapp-controller retries it".to_owned();
        (InstallReason::TKRPackageFailed, advice)
    };
    let mut message = format!("{package}: {advice}: {words}");
    message.truncate(message.floor_char_boundary(LONGEST_NOTE));
    InstallFault { reason, message }
}

/// Whether the ServiceAccount of kapp lacks a right. Quotas, terminating namespaces and policies cause "forbidden" errors as well.
fn is_without_right(words: &str) -> bool {
    let mut refusals = words.split(" is forbidden: ").skip(1);
    refusals.any(|why| why.to_lowercase().starts_with("user \"") && why.contains(" cannot "))
}

/// Parses the owner of an object from a message of kapp: `App tkg-system/one` from `different app 'one.app' namespace: tkg-system`. If kapp
/// does not know the name, returns the label in the message.
fn owner(words: &str) -> Option<String> {
    const ASSOCIATED: &str = "is already associated with a different ";
    let (_, other) = words.split_once(ASSOCIATED)?;
    let Some((app, rest)) = other
        .strip_prefix("app '")
        .and_then(|other| other.split_once('\''))
    else {
        let label = other.strip_prefix("label '")?.split('\'').next()?;
        return Some(format!("App with label {label}"));
    };
    // Suffix that kapp-controller gives the kapp app of a PackageRepository.
    let (kind, name) = match app.strip_suffix(".pkgr") {
        Some(name) => ("PackageRepository", name),
        None => (
            "App",
            app.strip_suffix(".app")
                .or_else(|| app.strip_suffix("-ctrl"))
                .unwrap_or(app),
        ),
    };
    let namespace = rest.strip_prefix(" namespace: ").unwrap_or_default();
    let namespace = namespace.split_whitespace().next().unwrap_or_default();
    Some(format!("{kind} {namespace}/{name}"))
}

/// Write of a PackageInstall.
#[derive(Debug)]
pub enum Install {
    /// Creates a missing PackageInstall.
    Create(Box<PackageInstall>),
    /// Updates a PackageInstall: its key, and a merge patch.
    Update(Key, Value),
    /// Deletes a PackageInstall whose Package is gone.
    Remove {
        /// The PackageInstall.
        install: Key,
        /// Its UID.
        uid: Option<String>,
        /// The Package, which is read from the API server first.
        package: Key,
    },
}

impl Reconciler for Install {
    type LocalState = ();
    type Effects = ();
    type Hold = String;

    fn effects((): &()) {}

    fn reconcile(context: &Context<'_, Self>, (): &mut ()) -> Step<Done, String> {
        match context.facts {
            Self::Create(install) => {
                let why = "install the releases of a Package";
                context.write(Write::create(Server::Management, install.as_ref(), why))?;
            }
            Self::Update(key, patch) => {
                let why = "it does not install what the Package brings";
                context.write(Write::patch(key.clone(), patch.clone(), why))?;
            }
            Self::Remove {
                install,
                uid,
                package,
            } => {
                let found = context.object(package.clone(), ReadPhase::Plan)?;
                let labels = found.map(|found| &found["metadata"]["labels"]);
                if labels.is_none_or(|labels| labels.get(label::TKR_PACKAGE).is_none()) {
                    let why = "its Package is gone; the releases stay";
                    context.write(Write::delete(install.clone(), uid.clone(), why))?;
                }
            }
        }
        Ok(Done::AwaitChange)
    }
}
