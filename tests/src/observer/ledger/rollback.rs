//! Rollbacks: the judgement on a ClusterBootstrap whose packages go back, and an answer that was given before the cancellation.

use std::cmp::Ordering;

use jiff::{SignedDuration, Timestamp};

use super::overrides::Early;
use super::{Ledger, Name, Step};
use crate::observer::bootstrap::Bootstrap;
use crate::observer::cluster::{ClusterObject, Reproof};
use crate::observer::feed::Change;
use crate::observer::milestone::Event;
use crate::observer::version;
use crate::observer::violation::{Rule, Violation};

/// Time within which Cluster API may note the answer of a hook that was given before the packages went back.
const NOTICE: SignedDuration = SignedDuration::from_secs(1);

/// A package of a ClusterBootstrap that has a lower version than before.
struct Lowered {
    ref_name: String,
    /// Name of the Package.
    name: String,
}

impl Ledger {
    /// Records a violation if a write of a ClusterBootstrap takes packages back that must stay.
    ///
    /// Users lower packages, too: only with another release it is a rollback. Proof that the packages had before is worth nothing
    /// afterwards.
    pub(super) fn judge_rollback(&mut self, change: &Change, name: &Name, before: &Bootstrap) {
        let Some(now) = self.bootstraps.get(name) else {
            return;
        };
        let has_other =
            !before.release.is_empty() && !now.release.is_empty() && before.release != now.release;
        let lowered = if has_other {
            self.lowered(before, now)
        } else {
            Vec::new()
        };
        if lowered.is_empty() {
            return;
        }
        let release = now.release.clone();
        let missing = self.lacks_of_rollback(name, now, &lowered);
        if let Some(cluster) = self.clusters.get_mut(name) {
            cluster.withdrawn = None;
            cluster.lowered = Some(change.seen);
            // A hook that was passed is not asked twice.
            let judged = cluster.reproof.is_none_or(|reproof| reproof.judged);
            cluster.reproof = Some(Reproof { seen: false, judged });
        }
        if !missing.is_empty() {
            let packages: Vec<&str> = lowered.iter().map(|lowered| lowered.name.as_str()).collect();
            self.violations.push(Violation {
                rule: Rule::RolledBackEarly,
                revision: change.revision,
                namespace: name.0.clone(),
                cluster: name.1.clone(),
                write: format!("the ClusterBootstrap went back to {}", packages.join(", ")),
                missing,
            });
        }
        self.note(change, name, Event::RolledBack { release });
    }

    /// Keeps the packages that a ClusterBootstrap has of its release.
    pub(super) fn keep_set(&mut self, name: &Name) {
        let Some(now) = self.bootstraps.get(name) else {
            return;
        };
        if !now.release.is_empty() {
            let names = now.packages.iter().map(|package| package.name.clone());
            self.sets
                .insert((name.clone(), now.release.clone()), names.collect());
        }
    }

    fn lowered(&self, before: &Bootstrap, now: &Bootstrap) -> Vec<Lowered> {
        let is_lower = |ref_name: &str, version: &str| {
            let mut known = before
                .packages
                .iter()
                .filter_map(|package| self.packages.get(&package.name));
            known.any(|(of, was)| of == ref_name && version::order(version, was) == Some(Ordering::Less))
        };
        now.packages
            .iter()
            .filter_map(|package| {
                let (ref_name, version) = self.packages.get(&package.name)?;
                is_lower(ref_name, version).then(|| Lowered {
                    ref_name: ref_name.clone(),
                    name: package.name.clone(),
                })
            })
            .collect()
    }

    /// What packages that go back lack: the Cluster aims at the version of its control plane and at their release, Cluster API has
    /// reconciled that, the policy asks for it, and the ClusterBootstrap had them before the upgrade.
    fn lacks_of_rollback(&self, name: &Name, now: &Bootstrap, lowered: &[Lowered]) -> Vec<String> {
        let cluster = self.clusters.get(name);
        let Some((cluster, object)) = cluster.and_then(|cluster| Some((cluster, cluster.object.as_ref()?)))
        else {
            return vec![format!("a Cluster {}/{}", name.0, name.1)];
        };
        let mut lacks = Vec::new();
        if object.tkr != now.release {
            lacks.push(format!("the label of {}, it is {:?}", now.release, object.tkr));
        }
        let target = &object.target;
        if cluster.version != *target || cluster.running != *target {
            lacks.push(format!(
                "a control plane of {target}, it is written to {:?} and runs {:?}",
                cluster.version, cluster.running
            ));
        }
        if object.reconciled.is_none() || object.reconciled < cluster.aimed {
            lacks.push(format!(
                "TopologyReconciled of generation {:?}, it is about {:?}",
                cluster.aimed, object.reconciled
            ));
        }
        let set = self.sets.get(&(name.clone(), now.release.clone()));
        for package in lowered {
            if !now.exceptions.goes_back(&package.ref_name) {
                lacks.push(format!("a policy that takes {} back", package.ref_name));
            }
            if !set.is_some_and(|set| set.contains(&package.name)) {
                lacks.push(format!("a ClusterBootstrap that had {} before", package.name));
            }
        }
        lacks
    }

    /// Version that Cluster API may still write although the user has moved the target back to that of the control plane: its gate was
    /// open and all was proven, and Cluster API has not reconciled the earlier target yet. `now` is the Cluster as it is written.
    pub(super) fn withdrawn(&self, name: &Name, now: &ClusterObject, seen: Timestamp) -> Option<String> {
        let cluster = self.clusters.get(name)?;
        let before = cluster.object.as_ref()?;
        if now.target != cluster.version {
            return None;
        }
        if before.target == now.target {
            let withdrawn = cluster.withdrawn.clone();
            return withdrawn.filter(|_| now.reconciled < cluster.aimed);
        }
        let gate = cluster.gate.as_ref().filter(|gate| gate.may_be_answered(seen))?;
        let version = &gate.version;
        let step = Step::ControlPlane;
        let missing = self.missing(name, version, step);
        let early = Early {
            name,
            version,
            step,
            missing: &missing,
            seen,
        };
        let is_released = missing.is_empty() || self.overridden(&early).is_ok();
        is_released.then(|| version.clone())
    }

    /// Whether the user has withdrawn a version that Cluster API may still write.
    pub(super) fn is_withdrawn(&self, name: &Name, version: &str) -> bool {
        let cluster = self.clusters.get(name);
        cluster.is_some_and(|cluster| cluster.withdrawn.as_deref() == Some(version))
    }

    /// Whether packages went back so shortly before that the answer of a hook may be older.
    pub(super) fn has_just_rolled_back(&self, name: &Name, now: Timestamp) -> bool {
        let lowered = self.clusters.get(name).and_then(|cluster| cluster.lowered);
        lowered.is_some_and(|lowered| now.duration_since(lowered) < NOTICE)
    }
}
