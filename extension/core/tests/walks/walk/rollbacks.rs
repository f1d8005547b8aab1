//! Invariants of rollbacks: packages of a cancelled upgrade go back to those from before it.

use serde_json::Value;
use sluice_core::{
    reconcile::cluster::{Verb, Write},
    upgrade::swap::is_cancelled_swap,
};
use sluice_crds::{
    labels::annotation,
    run::{Gate, Hook, Outcome, UpgradeRecord},
};

use super::Walk;
use crate::{
    capi::{brief, record, version_at},
    machines::made_of,
    objects::{PACKAGES, VERSIONS, bootstrap, control_plane, package_place, ref_name},
    servers::{Servers, place_of},
    truth::{any_goes_back, concerned, goes_back, named, named_in, opened, snapshot},
};

/// Facts about the packages of the ClusterBootstrap.
#[derive(Clone, Default)]
pub(super) struct Rollbacks {
    named: [Option<String>; PACKAGES.len()],
    /// Whether each package was deployed at some time since the ClusterBootstrap names these packages.
    deployed: [bool; PACKAGES.len()],
    /// Whether a condition of the Cluster may lie: the API server was restored, or a frozen process of Cluster API may still write.
    pub(super) is_uncertain: bool,
}

impl Rollbacks {
    /// Returns what is known after the API server was restored.
    pub(super) fn restored() -> Self {
        Self {
            is_uncertain: true,
            ..Self::default()
        }
    }

    pub(super) fn observe(&mut self, servers: &Servers, deployed: [bool; PACKAGES.len()]) {
        let named = PACKAGES.map(|package| named(servers, &bootstrap(), package));
        if named != self.named {
            self.named = named;
            self.deployed = Default::default();
        }
        for (was, is) in self.deployed.iter_mut().zip(deployed) {
            *was |= is;
        }
    }
}

impl Walk {
    /// Returns the version that the control plane takes by a write of Cluster API that has not arrived.
    pub(crate) fn taking(&self) -> Option<usize> {
        self.capi.taking()
    }

    /// Asserts that the last step of a leader moved the packages of a cancelled upgrade only to those of the snapshot, and only when Cluster
    /// API could not take the version any more.
    pub(super) fn judge_lowered(&self, which: usize, before: &Servers) {
        let leader = &self.leaders[which];
        let is_bootstrap =
            |write: &&Write| write.verb == Verb::Replace && place_of(&write.key) == bootstrap();
        let Some(write) = leader.made.iter().find(is_bootstrap) else {
            return;
        };
        let Some((old, record)) = before.get(&bootstrap()).zip(record(before)) else {
            return;
        };
        let Some(snapshot) = snapshot(old) else { return };
        let release = &snapshot["release"];
        if !is_cancelled(before, &record) || mark(&write.body) != release || mark(old) == release {
            return;
        }
        let at = ["spec", "status"].map(|part| version_at(before, &control_plane(), part));
        let is_there = at.iter().all(|at| snapshot["version"] == VERSIONS[*at]);
        let taking = self.capi.taking();
        assert!(
            self.rollbacks.is_uncertain || is_there && taking.is_none(),
            "premature: packages go back to {release}, and the control plane is at {at:?} and takes {taking:?}; {}",
            brief(Some(&record)),
        );
        for package in PACKAGES {
            let (from, to) = (named_in(old, package), named_in(&write.body, package));
            let back = from
                .as_deref()
                .and_then(|from| back((&leader.saw, old), &record, &snapshot, (package, from)));
            let wanted = back.or_else(|| from.clone());
            assert!(
                to == wanted,
                "unrestored: {from:?} becomes {to:?} and not {wanted:?}: {snapshot} at {at:?}; {}",
                brief(Some(&record)),
            );
        }
    }

    /// Asserts that a rollback ends only with the packages of its release, and that its record opens gates only once they are deployed.
    pub(super) fn judge_rollback(&self, before: Option<&UpgradeRecord>, record: &UpgradeRecord) {
        let Some(rollback) = &record.rollback else {
            return;
        };
        let before = before.filter(|before| before.rollback.as_ref() == Some(rollback));
        let is_over = |record: &UpgradeRecord| record.outcome == Some(Outcome::RolledBack);
        let ends = is_over(record) && !before.is_some_and(is_over);
        let opened = opened(&self.servers, before, record);
        let of_gate = |gate: &&Gate| (gate.hook, gate.overridden_by.clone());
        let mut hooks: Vec<_> = opened.iter().map(of_gate).collect();
        if ends {
            hooks.push((Hook::AfterControlPlaneUpgrade, None));
        }
        let marked = self.servers.get(&bootstrap()).map(mark);
        let is_restored = marked.is_some_and(|marked| *marked == *rollback.release);
        assert!(
            !ends || is_restored,
            "unrestored: {rollback:?} ends with the packages of {marked:?}"
        );
        for (hook, by) in hooks {
            let mut concerned = concerned(&self.servers, hook);
            let unproven = concerned.find(|package| {
                !self.rollbacks.deployed[*package] && !self.capi.overrides.passes(by.as_ref(), *package)
            });
            assert!(
                is_restored && unproven.is_none(),
                "unproven: {hook:?} is opened by {rollback:?} with the packages of {marked:?}, and package {unproven:?} was not deployed; {}",
                brief(Some(record)),
            );
        }
    }
}

/// Returns the release that a ClusterBootstrap is annotated with.
fn mark(bootstrap: &Value) -> &Value {
    &bootstrap["metadata"]["annotations"][annotation::RESOLVED_TKR]
}

/// Whether a record is about a cancelled upgrade, if the target is the version of the control plane. Without an entry of machines, packages
/// follow the label in both directions.
fn is_cancelled(servers: &Servers, record: &UpgradeRecord) -> bool {
    let at = version_at(servers, &control_plane(), "spec");
    let is_above = record.hop.as_deref().is_some_and(|hop| hop > VERSIONS[at]);
    match record.outcome {
        None => is_above || record.rollback.is_some(),
        Some(Outcome::Cancelled) => is_above || is_cancelled_swap(record) && made_of(servers).is_some(),
        Some(_) => false,
    }
}

/// Returns the Package that a rollback goes back to; `None` if the current one stays.
fn back(
    (saw, bootstrap): (&Servers, &Value),
    record: &UpgradeRecord,
    snapshot: &Value,
    (package, from): (usize, &str),
) -> Option<String> {
    let current = saw.get(&package_place(from));
    let stays =
        current.is_some_and(|current| current["metadata"]["annotations"][annotation::ROLLBACK] == "false");
    let before = snapshot["packages"][ref_name(package)]["name"].as_str();
    // No edit of the policy ends a rollback that has begun.
    let all_go_back = record.rollback.is_some() && !any_goes_back(bootstrap);
    let before = before.filter(|_| !stays && (all_go_back || goes_back(bootstrap, package)));
    before.map(str::to_owned)
}
