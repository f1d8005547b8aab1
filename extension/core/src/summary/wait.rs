//! What a Cluster waits for: the worst package, or what its gate says.

use std::fmt;

use sluice_crds::run::{Gate, Hook, PackageRecord, PackageState, UpgradeRecord};

use crate::reasons::{GateReason, PackageReason};
use crate::text::one_line;
use crate::upgrade::record::is_ready;

/// The longest name and version of what is waited for, in characters.
const LONGEST_SUBJECT: usize = 48;

/// What a Cluster waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// A package with its version, or the reason of the gate.
    pub subject: String,
    /// Why it is waited for, in a few words. It may be of any length, and holds what kapp-controller says.
    pub why: String,
    /// The same as a reason, PascalCase.
    pub reason: String,
    /// Whether something has failed.
    pub failed: bool,
    /// Whether Cluster API is at work, and nothing is held.
    pub on_cluster_api: bool,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why.as_str() {
            "" => f.write_str(&self.subject),
            why => write!(f, "{}: {why}", self.subject),
        }
    }
}

impl Wait {
    /// What the Cluster of a record waits for; `None` where it waits for nothing.
    #[must_use]
    pub fn of(record: &UpgradeRecord) -> Option<Self> {
        let closed = closed_gate(record);
        let reason = closed.and_then(|gate| GateReason::parse(&gate.reason));
        let gate = closed.map(|gate| Self {
            subject: one_line(&gate.reason, LONGEST_SUBJECT),
            why: gate.message.clone(),
            reason: gate.reason.clone(),
            failed: false,
            on_cluster_api: is_of_cluster_api(&gate.reason),
        });
        match reason {
            // Where the gate has another reason, packages are not what is waited for.
            None | Some(GateReason::PackagesNotReady | GateReason::PackageFailed) => {
                worst(record).map(Self::of_package).or(gate)
            }
            Some(_) => gate,
        }
    }

    /// What keeps a Cluster from being ready that waits for this. Where that is a step of Cluster API, it is what the worst package lacks.
    pub(super) fn of_packages(record: &UpgradeRecord, wait: Option<&Self>) -> Option<Self> {
        let wait = wait?;
        if !wait.on_cluster_api {
            return Some(wait.clone());
        }
        if let Some(package) = worst(record) {
            return Some(Self::of_package(package));
        }
        // Nothing is known of its packages before there is a control plane.
        let is_created = record.from.is_none() && record.packages.is_empty();
        is_created.then(|| Self {
            on_cluster_api: false,
            ..wait.clone()
        })
    }

    fn of_package(package: &PackageRecord) -> Self {
        let subject = one_line(&format!("{} {}", package.name, package.version), LONGEST_SUBJECT);
        let failed = package.state == PackageState::Failed;
        let reason = PackageReason::parse(&package.reason);
        let why = match (failed, reason) {
            (true, _) if package.message.is_empty() => "failed to reconcile".to_owned(),
            (true, _) => format!("failed: {}", package.message),
            (false, Some(reason)) => in_words(reason).to_owned(),
            (false, None) => package.reason.clone(),
        };
        Self {
            subject,
            why,
            reason: package.reason.clone(),
            failed,
            on_cluster_api: false,
        }
    }
}

/// The first closed gate, in the order in which hooks are called; the one for the deletion where the Cluster is being deleted.
pub(super) fn closed_gate(record: &UpgradeRecord) -> Option<&Gate> {
    let closed = || record.gates.iter().filter(|gate| !gate.open);
    let deletion = record
        .gates
        .iter()
        .find(|gate| gate.hook == Hook::BeforeClusterDelete);
    match deletion {
        Some(gate) => Some(gate).filter(|gate| !gate.open),
        None => closed().next(),
    }
}

/// Whether a gate is closed only because Cluster API has not come so far.
pub(super) fn is_of_cluster_api(reason: &str) -> bool {
    matches!(
        GateReason::parse(reason),
        Some(
            GateReason::ControlPlaneCreating
                | GateReason::ControlPlaneUpgrading
                | GateReason::WorkersUpgrading
        )
    )
}

/// The first package that has failed, else the first one without a proof.
fn worst(record: &UpgradeRecord) -> Option<&PackageRecord> {
    let failed = |package: &&PackageRecord| package.state == PackageState::Failed;
    let mut unproven = record.packages.iter().filter(|package| !is_ready(package));
    let packages = &record.packages;
    packages.iter().find(failed).or_else(|| unproven.next())
}

/// What a package without a proof waits for, as a column has room for it.
const fn in_words(reason: PackageReason) -> &'static str {
    match reason {
        PackageReason::PackageInstallPending => "not written yet",
        PackageReason::WorkloadUnreachable => "the workload cluster does not answer",
        PackageReason::PackageInstallDeleting => "its PackageInstall is being deleted",
        PackageReason::PackageInstallPaused => "its PackageInstall is paused",
        PackageReason::PackageInstallCanceled => "its PackageInstall is canceled",
        PackageReason::PackageInstallMismatch => "its PackageInstall is being changed",
        PackageReason::PackageInstallNotObserved
        | PackageReason::PackageInstallVersionMismatch
        | PackageReason::AppNotFound
        | PackageReason::AppVersionMismatch
        | PackageReason::AppValuesMismatch
        | PackageReason::AppNotObserved => "kapp-controller takes it up",
        PackageReason::PackageInstallReconciling | PackageReason::AppReconciling => "kapp-controller deploys",
        PackageReason::PackageInstallFailed | PackageReason::AppFailed => "failed to reconcile",
        PackageReason::AppOwnerMismatch => "an App of its name belongs to something else",
        PackageReason::AppDeleting => "its App is being deleted",
        PackageReason::AppPaused => "its App is paused",
        PackageReason::AppCanceled => "its App is canceled",
        PackageReason::AppManuallyControlled => "its App is cut off by annotation",
        PackageReason::AppTemplateMismatch => "its App is not made from its Package",
    }
}
