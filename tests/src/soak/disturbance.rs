//! Disturbances of an upgrade.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// A disturbance. Each takes itself back after a time that the plan gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// All replicas of the extension are killed and started again.
    ExtensionRestart,
    /// All replicas of the extension terminate, and stay down.
    ExtensionDown,
    /// The leader is killed, and comes back some time later.
    LeaderKilled,
    /// The leader is stopped where it stands for some time, which may be longer than its lease lasts.
    LeaderFrozen,
    /// Cluster API is killed and started again.
    ClusterApiRestart,
    /// The workload's API server is killed and stays away.
    WorkloadApiDown,
    /// kapp-controller of the workload cluster is killed and restarted, and its deployment stays incomplete.
    KappControllerRestart,
    /// `spec.paused` of a PackageInstall.
    PackageInstallPaused,
    /// `spec.paused` of an App.
    AppPaused,
    /// `spec.canceled` of a PackageInstall.
    PackageInstallCanceled,
    /// `spec.canceled` of an App.
    AppCanceled,
    /// Inline values in the ClusterBootstrap.
    InlineValuesEdited,
    /// A Secret with values.
    ValuesSecretEdited,
    /// `spec.paused` of the ClusterBootstrap.
    ClusterBootstrapPaused,
    /// The ClusterBootstrap is deleted, its finalizers forced off.
    ClusterBootstrapDeleted,
    /// `spec.paused` of the Cluster.
    ClusterPaused,
    /// The release label is taken away.
    LabelRemoved,
    /// An annotation of another owner that holds the start of upgrades.
    StartHeld,
    /// The Cluster's manifest is applied again.
    ManifestReapplied,
    /// Another change of version while one is under way.
    SecondBump,
    /// The version changes some time before the label does.
    VersionBeforeLabel,
    /// The label changes some time before the version does.
    LabelBeforeVersion,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 22] = [
        Self::ExtensionRestart,
        Self::ExtensionDown,
        Self::LeaderKilled,
        Self::LeaderFrozen,
        Self::ClusterApiRestart,
        Self::WorkloadApiDown,
        Self::KappControllerRestart,
        Self::PackageInstallPaused,
        Self::AppPaused,
        Self::PackageInstallCanceled,
        Self::AppCanceled,
        Self::InlineValuesEdited,
        Self::ValuesSecretEdited,
        Self::ClusterBootstrapPaused,
        Self::ClusterBootstrapDeleted,
        Self::ClusterPaused,
        Self::LabelRemoved,
        Self::StartHeld,
        Self::ManifestReapplied,
        Self::SecondBump,
        Self::VersionBeforeLabel,
        Self::LabelBeforeVersion,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ExtensionRestart => "extension-restart",
            Self::ExtensionDown => "extension-down",
            Self::LeaderKilled => "leader-killed",
            Self::LeaderFrozen => "leader-frozen",
            Self::ClusterApiRestart => "cluster-api-restart",
            Self::WorkloadApiDown => "workload-api-down",
            Self::KappControllerRestart => "kapp-controller-restart",
            Self::PackageInstallPaused => "package-install-paused",
            Self::AppPaused => "app-paused",
            Self::PackageInstallCanceled => "package-install-canceled",
            Self::AppCanceled => "app-canceled",
            Self::InlineValuesEdited => "inline-values-edited",
            Self::ValuesSecretEdited => "values-secret-edited",
            Self::ClusterBootstrapPaused => "cluster-bootstrap-paused",
            Self::ClusterBootstrapDeleted => "cluster-bootstrap-deleted",
            Self::ClusterPaused => "cluster-paused",
            Self::LabelRemoved => "label-removed",
            Self::StartHeld => "start-held",
            Self::ManifestReapplied => "manifest-reapplied",
            Self::SecondBump => "second-bump",
            Self::VersionBeforeLabel => "version-before-label",
            Self::LabelBeforeVersion => "label-before-version",
        }
    }

    /// Whether it is a way to start the upgrade rather than a fault during the upgrade.
    #[must_use]
    pub fn is_bump(self) -> bool {
        matches!(self, Self::VersionBeforeLabel | Self::LabelBeforeVersion)
    }

    /// Whether it affects every Cluster of the stack, not only that of its run.
    #[must_use]
    pub fn is_shared(self) -> bool {
        matches!(
            self,
            Self::ExtensionRestart
                | Self::ExtensionDown
                | Self::LeaderKilled
                | Self::LeaderFrozen
                | Self::ClusterApiRestart
        )
    }

    /// Whether the extension may have no leader meanwhile, and until a lease expires.
    #[must_use]
    pub fn takes_leader(self) -> bool {
        self.is_shared() && self != Self::ClusterApiRestart
    }

    /// Whether a server is unreachable meanwhile.
    #[must_use]
    pub fn is_outage(self) -> bool {
        self.is_shared() || self == Self::WorkloadApiDown
    }

    /// Whether it affects one package of the release.
    #[must_use]
    pub fn has_package(self) -> bool {
        matches!(
            self,
            Self::PackageInstallPaused | Self::AppPaused | Self::PackageInstallCanceled | Self::AppCanceled
        )
    }

    /// The package whose proof it can take away, where it is one: `chosen` by the plan, or the one that has such values.
    #[must_use]
    pub fn concerns(self, chosen: &'static str) -> Option<&'static str> {
        match self {
            Self::InlineValuesEdited => Some("antrea"),
            Self::ValuesSecretEdited => Some("metrics-server"),
            _ => self.has_package().then_some(chosen),
        }
    }

    /// Whether both may happen to one upgrade. A Cluster without label and without ClusterBootstrap is not managed: by design it is
    /// not held at all.
    #[must_use]
    pub fn goes_with(self, other: Self) -> bool {
        let pair = |a, b| (self == a && other == b) || (self == b && other == a);
        self != other
            && !(self.is_bump() && other.is_bump())
            && !pair(Self::LabelRemoved, Self::ClusterBootstrapDeleted)
    }

    /// The longest time that it lasts.
    pub(super) fn longest(self) -> Duration {
        match self {
            Self::ExtensionDown | Self::LeaderKilled => Duration::from_secs(10),
            Self::LeaderFrozen => Duration::from_secs(15),
            _ => Duration::from_secs(5),
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), Kind::ALL.len());
        assert!(names.iter().all(|name| {
            name.chars()
                .all(|letter| letter.is_ascii_lowercase() || letter == '-')
        }));
    }
}
