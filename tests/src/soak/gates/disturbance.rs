//! Disturbances of an upgrade that a gate holds.

use serde::{Serialize, Serializer};

/// What installs the chart of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Delivery {
    /// A HelmChartProxy.
    Caaph,
    /// A HelmRelease.
    Flux,
}

impl Delivery {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Caaph, Self::Flux];

    /// Its name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Caaph => "caaph",
            Self::Flux => "flux",
        }
    }
}

/// The one disturbance of a run. It is taken back after a time that the plan gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// The HelmRelease is suspended and its version edited in one write, and resumed later.
    ReleaseSuspended,
    /// The HelmChartProxy is edited while its controller is stopped.
    ControllerFrozen,
    /// The HelmChartProxy is edited together with values that are broken for another Cluster.
    OtherClusterBroken,
    /// The upgrade of the HelmRelease fails, and is rolled back with success.
    RolledBack,
    /// The controller that delivers is killed while Helm waits for Pods.
    ControllerKilled,
    /// The gate of before the upgrade is applied again, without the row of the new Kubernetes version.
    OldGateApplied,
    /// The leader of Sluice is killed, and comes back some time later.
    LeaderKilled,
}

impl Kind {
    /// Every kind.
    pub(super) const ALL: [Self; 7] = [
        Self::ReleaseSuspended,
        Self::ControllerFrozen,
        Self::OtherClusterBroken,
        Self::RolledBack,
        Self::ControllerKilled,
        Self::OldGateApplied,
        Self::LeaderKilled,
    ];

    /// Its name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ReleaseSuspended => "release-suspended",
            Self::ControllerFrozen => "controller-frozen",
            Self::OtherClusterBroken => "other-cluster-broken",
            Self::RolledBack => "rolled-back",
            Self::ControllerKilled => "controller-killed",
            Self::OldGateApplied => "old-gate-applied",
            Self::LeaderKilled => "leader-killed",
        }
    }

    /// The delivery that it needs; none if both will do.
    pub(super) fn needs(self) -> Option<Delivery> {
        match self {
            Self::ReleaseSuspended | Self::RolledBack => Some(Delivery::Flux),
            Self::ControllerFrozen | Self::OtherClusterBroken => Some(Delivery::Caaph),
            Self::ControllerKilled | Self::OldGateApplied | Self::LeaderKilled => None,
        }
    }

    /// Whether it stops a process that all runs share.
    pub(super) fn is_shared(self) -> bool {
        matches!(
            self,
            Self::ControllerFrozen | Self::ControllerKilled | Self::LeaderKilled
        )
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
    }
}
