//! Detects held Clusters without progress.
//!
//! Cluster API calls rarely for a stuck Cluster, so that it has time for those whose gate could open. A response to Cluster API
//! cannot be revoked (since 1.12 nothing makes it call sooner), so the delay grows with the time without progress.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use sluice_crds::lifecycle::{CheckState, GateRecord};
use sluice_crds::run::{Gate, PackageState, UpgradeRecord};

use crate::reasons::{Class, Hold};
use crate::upgrade::record::class_of;

/// Time without progress after which a held Cluster counts as stuck.
pub const STUCK_AFTER: Duration = Duration::from_mins(10);

/// Digest of the progress of a held Cluster; it changes with every step forward or back.
///
/// Retries of kapp-controller for a failing package, and of a delivery system for a failing object, are no progress: the digest excludes
/// them and the reasons that follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProgressHash(u64);

impl ProgressHash {
    /// Returns the progress of an open record.
    #[must_use]
    pub fn of_record(record: &UpgradeRecord) -> Self {
        let mut hasher = DefaultHasher::new();
        let UpgradeRecord {
            cluster_uid,
            observed_cluster_generation,
            observed_bootstrap_generation,
            workload_uid,
            label,
            to,
            hop,
            tkr,
            gates,
            packages,
            ..
        } = record;
        (
            cluster_uid,
            observed_cluster_generation,
            observed_bootstrap_generation,
        )
            .hash(&mut hasher);
        (workload_uid, label, to, hop, tkr).hash(&mut hasher);
        hash_gates(gates, &mut hasher);
        for package in packages {
            (&package.name, &package.version, &package.values_digest).hash(&mut hasher);
            (&package.app_uid, package.app_generation, stage(package.state)).hash(&mut hasher);
        }
        Self(hasher.finish())
    }

    /// Returns the progress of an open record of gates.
    #[must_use]
    pub fn of_gates(record: &GateRecord) -> Self {
        let mut hasher = DefaultHasher::new();
        let GateRecord {
            cluster_uid,
            observed_cluster_generation,
            workload_uid,
            to,
            hop,
            set,
            gates,
            checks,
            ..
        } = record;
        (cluster_uid, observed_cluster_generation, workload_uid).hash(&mut hasher);
        (to, hop, set).hash(&mut hasher);
        hash_gates(gates, &mut hasher);
        for check in checks {
            (&check.gate, &check.name, &check.version).hash(&mut hasher);
            (&check.uid, check.generation, check.reproven).hash(&mut hasher);
            (check.state == CheckState::Proven).hash(&mut hasher);
        }
        Self(hasher.finish())
    }

    /// Returns the progress of a Cluster that is held for another cause as well, with the progress toward its end.
    #[must_use]
    pub fn with(self, other: Option<Self>) -> Self {
        let Some(other) = other else {
            return self;
        };
        let mut hasher = DefaultHasher::new();
        (self, other).hash(&mut hasher);
        Self(hasher.finish())
    }

    /// Returns the progress of a Cluster without a record, from the hold that prevents one.
    #[must_use]
    pub fn of_hold<R: Hash>(label: &str, hold: &Hold<R>) -> Self {
        let mut hasher = DefaultHasher::new();
        (label, hold).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Hashes gates without the reasons that change with each retry. A record has its packages or checks as well.
fn hash_gates(gates: &[Gate], hasher: &mut DefaultHasher) {
    for gate in gates {
        (gate.hook, &gate.version, gate.open).hash(hasher);
        if class_of(gate) != Some(Class::Retries) {
            (&gate.reason, &gate.message).hash(hasher);
        }
    }
}

/// Returns the stage of a package: not written, in progress, or proven.
const fn stage(state: PackageState) -> u8 {
    match state {
        PackageState::Pending => 0,
        PackageState::Applied | PackageState::Reconciling | PackageState::Failed => 1,
        PackageState::Ready => 2,
    }
}

/// Held Cluster in one count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// UID of the Cluster.
    pub uid: String,
    /// Progress of the Cluster.
    pub standing: ProgressHash,
    /// Whether the Cluster has a record. Without one it is unknown whether Cluster API calls hooks for it at all.
    pub recorded: bool,
}

/// Numbers of held Clusters in one count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Held Clusters with a record that made progress within the last ten minutes.
    pub moving: u32,
    /// All other held Clusters.
    pub stuck: HashMap<String, Stuck>,
}

/// Progress of a Cluster at the last count, and the time since which it is unchanged. Times are measured from an arbitrary origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    standing: ProgressHash,
    since: Duration,
}

impl Stuck {
    pub(super) const fn new(standing: ProgressHash, since: Duration) -> Self {
        Self { standing, since }
    }

    /// Returns the time without progress at `now`, provided that `standing` is unchanged.
    #[must_use]
    pub fn still(&self, standing: ProgressHash, now: Duration) -> Duration {
        if standing == self.standing {
            now.saturating_sub(self.since)
        } else {
            Duration::ZERO
        }
    }
}

#[cfg(test)]
mod tests;
