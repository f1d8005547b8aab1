//! Packages that bring releases: kapp-controller installs each by a PackageInstall of Sluice, and nothing is unpacked here
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

/// The longest name of a PackageInstall that follows from that of a Package. kapp makes longer names of it, which have to be valid, too.
const LONGEST_NAME: usize = 200;

/// What an event may say at most, in bytes: the API server refuses longer notes.
const LONGEST_NOTE: usize = 1000;

/// So many digits of a digest make a name where the one of the Package cannot be one.
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

/// What is wrong with a Package that brings releases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallFault {
    /// In one word.
    pub reason: InstallReason,
    /// What it is, and what to do, in one line.
    pub message: String,
}

impl InstallFault {
    /// The event of the PackageInstall that says so: an event is named after its object, and names of Packages may have a `+`.
    #[must_use]
    pub fn notice(&self) -> Notice<'_> {
        Notice {
            warns: true,
            reason: self.reason.as_str(),
            note: &self.message,
        }
    }
}

/// How far the releases of a Package are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstallState {
    /// There are none to be installed, or they are, or a user has paused that.
    Settled,
    /// kapp-controller is at work.
    Underway,
    /// They cannot be installed.
    Failed(InstallFault),
}

/// A Package of the system namespace, and the PackageInstall of the name that Sluice would give it.
#[derive(Debug, Clone, Copy)]
pub struct TkrPackage<'a> {
    namespace: &'a str,
    name: &'a str,
    package: Option<&'a Package>,
    found: Option<&'a PackageInstall>,
}

/// The name of the Package that a PackageInstall of Sluice with this metadata installs.
#[must_use]
pub fn package_in(install: &ObjectMeta) -> Option<&str> {
    let annotations = install.annotations.as_ref()?;
    annotations.get(annotation::TKR_PACKAGE).map(String::as_str)
}

impl<'a> TkrPackage<'a> {
    /// The Package `name` of the system namespace `namespace`, if there is one; and the PackageInstall [`Self::install_name`] there.
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

    /// The name of the PackageInstall of a Package: the same with `---` for `+`. Names of Packages may have letters that names of other
    /// objects may not have, and be longer; then it is `tkr-package-<digest>`.
    #[must_use]
    pub fn install_name(package: &str) -> String {
        let is_segment = |segment: &str| is_object_name(segment) && !segment.contains('.');
        // Otherwise two Packages would have the same.
        let is_plain = !package.contains("---") && package.len() <= LONGEST_NAME;
        let name = package.replace('+', "---");
        if is_plain && name.len() <= LONGEST_NAME && name.split('.').all(is_segment) {
            name
        } else {
            format!("tkr-package-{}", hash([package.as_bytes()], DIGITS))
        }
    }

    /// The Package, if it brings releases.
    fn bringing(&self) -> Option<&'a Package> {
        self.package.filter(|package| brings_releases(&package.metadata))
    }

    /// Whether the PackageInstall is that of this Package, and Sluice's.
    fn is_ours(&self, install: &PackageInstall) -> bool {
        package_in(&install.metadata) == Some(self.name)
    }

    /// What has to be written; `None` where all is as it shall be, or where it is another's.
    ///
    /// A PackageInstall that is being deleted is waited for, and takes nothing with it. One whose Package is gone, or brings releases no more, is removed, and what it
    /// has installed stays (`noopDelete`).
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
            // Edited: what it has installed would go with it.
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
                // A release is in use for longer than a repository offers it.
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

    /// How far the releases are, in kapp-controller's words where it fails.
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
                "{package}: PackageInstall {} exists and has no annotation {} {:?}: Sluice leaves it alone, and the releases are not installed; delete it",
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

/// Whether what a Package with this metadata installs are releases.
fn brings_releases(meta: &ObjectMeta) -> bool {
    let mut labels = meta.labels.iter().flatten();
    labels.any(|(key, _)| key == label::TKR_PACKAGE)
}

/// What the words of kapp-controller are about. They may be many lines, and event and log have one.
fn fault(package: &str, words: &str) -> InstallFault {
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let (reason, advice) = if let Some(owner) = owner(&words) {
        let advice = format!("{owner} has brought an object of the bundle; have one of both bring it");
        (InstallReason::OwnedByAnotherApp, advice)
    } else if is_without_right(&words) {
        let advice = format!(
            "the bundle has what releases do not consist of, or drops an object; correct it, or, where the kind is meant to come, bind a Role \
             with it to ServiceAccount {}",
            name::TKR_INSTALLER
        );
        (InstallReason::RightMissing, advice)
    } else {
        let advice = "correct the Package or what it fetches; it is tried again by itself".to_owned();
        (InstallReason::TKRPackageFailed, advice)
    };
    let mut message = format!("{package}: {advice}: {words}");
    message.truncate(message.floor_char_boundary(LONGEST_NOTE));
    InstallFault { reason, message }
}

/// Whether a ServiceAccount has no right to do what kapp wanted. Quotas, namespaces that end and policies forbid as well.
fn is_without_right(words: &str) -> bool {
    let mut refusals = words.split(" is forbidden: ").skip(1);
    refusals.any(|why| why.to_lowercase().starts_with("user \"") && why.contains(" cannot "))
}

/// What kapp names as the owner of an object, `App tkg-system/one` of `different app 'one.app' namespace: tkg-system`. Where kapp does not
/// know its name, the label that it names.
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
    // kapp-controller names its kapp apps so.
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

/// What has to be written of a PackageInstall.
#[derive(Debug)]
pub enum Install {
    /// There is none.
    Create(Box<PackageInstall>),
    /// It says something else: its key, and a merge patch.
    Update(Key, Value),
    /// Its Package is gone.
    Remove {
        /// The PackageInstall.
        install: Key,
        /// Its UID.
        uid: Option<String>,
        /// The Package, of which the API server is asked first.
        package: Key,
    },
}

impl Reconciler for Install {
    type LocalState = ();
    type Effects = ();
    type Hold = String;

    fn effects((): &()) {}

    fn reconcile(known: &Context<'_, Self>, (): &mut ()) -> Step<Done, String> {
        match known.facts {
            Self::Create(install) => {
                let why = "releases that a Package brings";
                known.write(Write::create(Server::Management, install.as_ref(), why))?;
            }
            Self::Update(key, patch) => {
                let why = "it does not install what the Package brings";
                known.write(Write::patch(key.clone(), patch.clone(), why))?;
            }
            Self::Remove {
                install,
                uid,
                package,
            } => {
                let found = known.object(package.clone(), ReadPhase::Plan)?;
                let labels = found.map(|found| &found["metadata"]["labels"]);
                if labels.is_none_or(|labels| labels.get(label::TKR_PACKAGE).is_none()) {
                    let why = "its Package is gone; the releases stay";
                    known.write(Write::delete(install.clone(), uid.clone(), why))?;
                }
            }
        }
        Ok(Done::AwaitChange)
    }
}
