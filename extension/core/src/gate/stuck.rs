//! Which held Clusters make progress, and which are stuck.
//!
//! A Cluster that nothing moves any more is asked about rarely, so that Cluster API has its time for those whose gate could
//! open. An answer to Cluster API cannot be taken back (since 1.12 nothing makes it ask sooner), so the time after which it
//! asks a stuck Cluster grows with the time that the Cluster has been stuck.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use sluice_crds::run::{PackageState, UpgradeRecord};

use crate::reasons::{GateReason, Hold};

/// A held Cluster that has made no progress for so long is stuck.
pub const STUCK_AFTER: Duration = Duration::from_mins(10);

/// How far a held Cluster is, as a digest: it is another one after progress, and after a step back.
///
/// What kapp-controller does again and again with a package that fails is no progress: its tries, and the reasons that follow
/// from them, are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProgressHash(u64);

impl ProgressHash {
    /// How far the upgrade of an open record is.
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
        for gate in gates {
            (gate.hook, &gate.version, gate.open).hash(&mut hasher);
            if !follows_tries(&gate.reason) {
                (&gate.reason, &gate.message).hash(&mut hasher);
            }
        }
        for package in packages {
            (&package.name, &package.version, &package.values_digest).hash(&mut hasher);
            (&package.app_uid, package.app_generation, stage(package.state)).hash(&mut hasher);
        }
        Self(hasher.finish())
    }

    /// How far a Cluster without a record is: what keeps it from having one.
    #[must_use]
    pub fn of_hold<R: Hash>(label: &str, hold: &Hold<R>) -> Self {
        let mut hasher = DefaultHasher::new();
        (label, hold).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Whether a closed gate's reason changes with each try of kapp-controller.
fn follows_tries(reason: &str) -> bool {
    matches!(
        GateReason::parse(reason),
        Some(GateReason::PackagesNotReady | GateReason::PackageFailed)
    )
}

/// Not written, being tried, or proven.
const fn stage(state: PackageState) -> u8 {
    match state {
        PackageState::Pending => 0,
        PackageState::Applied | PackageState::Reconciling | PackageState::Failed => 1,
        PackageState::Ready => 2,
    }
}

/// A held Cluster as one look finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its UID.
    pub uid: String,
    /// How far it is.
    pub standing: ProgressHash,
    /// Whether it has a record. Without one it is not known whether Cluster API asks about it at all.
    pub recorded: bool,
}

/// Since when each held Cluster stands where it stands. Times are measured from any one moment.
#[derive(Debug, Default)]
pub struct HeldProgress {
    seen: HashMap<String, LastProgress>,
    looks: u64,
}

#[derive(Debug)]
struct LastProgress {
    standing: ProgressHash,
    since: Duration,
    look: u64,
}

/// What one look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Held Clusters with a record that made progress within the last ten minutes.
    pub moving: u32,
    /// All others that are held.
    pub stuck: HashMap<String, Stuck>,
}

/// How far a Cluster was when it was last looked at, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    standing: ProgressHash,
    since: Duration,
}

impl Stuck {
    /// For how long the Cluster has made no progress by `now`, if it is as far as it was.
    #[must_use]
    pub fn still(&self, standing: ProgressHash, now: Duration) -> Duration {
        if standing == self.standing {
            now.saturating_sub(self.since)
        } else {
            Duration::ZERO
        }
    }
}

impl HeldProgress {
    /// Takes in all Clusters that are held `now`. What is not among them is forgotten.
    pub fn observe(&mut self, now: Duration, held: impl IntoIterator<Item = Held>) -> Counted {
        self.looks += 1;
        let look = self.looks;
        let mut counted = Counted::default();
        for Held {
            uid,
            standing,
            recorded,
        } in held
        {
            let seen = self.seen.entry(uid).or_insert(LastProgress {
                standing,
                since: now,
                look,
            });
            seen.look = look;
            if seen.standing != standing {
                *seen = LastProgress {
                    standing,
                    since: now,
                    look,
                };
            }
            if now.saturating_sub(seen.since) < STUCK_AFTER {
                counted.moving += u32::from(recorded);
            }
        }
        self.seen.retain(|_, seen| seen.look == look);
        let stands_still = |seen: &&LastProgress| now.saturating_sub(seen.since) >= STUCK_AFTER;
        let stuck = self.seen.iter().filter(|(_, seen)| stands_still(seen));
        let stuck = stuck.map(|(uid, LastProgress { standing, since, .. })| {
            let (standing, since) = (*standing, *since);
            (uid.clone(), Stuck { standing, since })
        });
        counted.stuck = stuck.collect();
        counted
    }
}

#[cfg(test)]
mod tests;
