//! The current wait of a Cluster: its worst package, or the reason of its gate.

use std::fmt;

use sluice_crds::run::{Gate, Hook, PackageRecord, PackageState, UpgradeRecord};

use crate::reasons::{GateReason, PackageReason};
use crate::text::one_line;
use crate::upgrade::record::is_ready;

/// Longest subject of a wait, in characters.
const LONGEST_SUBJECT: usize = 48;

/// Length to which a package name may be cut off in a column, in characters.
const SHORTEST_NAME: usize = 10;

/// The current wait of a Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Package with its version, or the reason of the gate.
    pub subject: String,
    /// Cause in a few words. It may contain a message of kapp-controller of any length.
    pub why: String,
    /// Cause as a reason, PascalCase.
    pub reason: String,
    /// Whether the cause is a failure.
    pub failed: bool,
    /// Whether the Cluster waits for Cluster API and no gate is held.
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
    /// Describes the wait in at most `longest` characters: without the build metadata of a package version, which is often longer than
    /// the version, and with a long package name cut off rather than the cause.
    #[must_use]
    pub fn in_column(&self, longest: usize) -> String {
        let subject = self.subject.split('+').next().unwrap_or_default();
        let subject = subject.split_once(' ').map_or_else(
            || subject.to_owned(),
            |(name, version)| {
                let others = " : ".len() + version.chars().count() + self.why.chars().count();
                let room = longest.saturating_sub(others).max(SHORTEST_NAME);
                format!("{} {version}", one_line(name, room))
            },
        );
        let short = Self {
            subject,
            ..self.clone()
        };
        one_line(&short.to_string(), longest)
    }

    /// Returns the wait of the Cluster of a record, if any.
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
            // With any other reason of the gate, the Cluster does not wait for packages.
            None | Some(GateReason::PackagesNotReady | GateReason::PackageFailed) => {
                worst(record).map(Self::of_package).or(gate)
            }
            Some(_) => gate,
        }
    }

    /// Returns the cause of an unready Cluster with this wait. During a step of Cluster API that is the state of the worst package.
    pub(super) fn of_packages(record: &UpgradeRecord, wait: Option<&Self>) -> Option<Self> {
        let wait = wait?;
        if !wait.on_cluster_api {
            return Some(wait.clone());
        }
        if let Some(package) = worst(record) {
            return Some(Self::of_package(package));
        }
        // The state of its packages is unknown before there is a control plane.
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

/// Returns the first closed gate in the order of hook calls; for a Cluster that is being deleted the deletion gate.
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

/// Whether a gate is closed only because Cluster API has not reached its step.
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

/// Returns the first failed package, otherwise the first without a proof.
fn worst(record: &UpgradeRecord) -> Option<&PackageRecord> {
    let failed = |package: &&PackageRecord| package.state == PackageState::Failed;
    let mut unproven = record.packages.iter().filter(|package| !is_ready(package));
    let packages = &record.packages;
    packages.iter().find(failed).or_else(|| unproven.next())
}

/// Describes the wait of an unproven package, short enough for a column.
const fn in_words(reason: PackageReason) -> &'static str {
    match reason {
        PackageReason::PackageInstallPending => "not written yet",
        PackageReason::WorkloadUnreachable => "workload API server unreachable",
        PackageReason::PackageInstallDeleting => "PackageInstall is being deleted",
        PackageReason::PackageInstallPaused => "PackageInstall is paused",
        PackageReason::PackageInstallCanceled => "PackageInstall is canceled",
        PackageReason::PackageInstallMismatch => "PackageInstall is being changed",
        PackageReason::PackageInstallNotObserved
        | PackageReason::PackageInstallVersionMismatch
        | PackageReason::AppNotFound
        | PackageReason::AppVersionMismatch
        | PackageReason::AppValuesMismatch
        | PackageReason::AppNotObserved => "not observed yet",
        PackageReason::PackageInstallReconciling | PackageReason::AppReconciling => "being deployed",
        PackageReason::PackageInstallFailed | PackageReason::AppFailed => "failed to reconcile",
        PackageReason::AppOwnerMismatch => "App has another owner",
        PackageReason::AppDeleting => "App is being deleted",
        PackageReason::AppPaused => "App is paused",
        PackageReason::AppCanceled => "App is canceled",
        PackageReason::AppManuallyControlled => "App is detached by annotation",
        PackageReason::AppTemplateMismatch => "App differs from its Package",
    }
}
