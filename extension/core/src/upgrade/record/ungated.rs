//! Detects versions of control plane or workers that were written without an open gate.

use std::fmt;

use sluice_crds::run::{Hook, Outcome, UpgradeRecord};

use super::{Observed, of_cluster};
use crate::version::{reached, same};

/// Part of a Cluster that has a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Control plane.
    ControlPlane,
    /// MachineDeployments and MachinePools.
    Workers,
}

impl Part {
    /// Returns the spelling in metrics and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ControlPlane => "control plane",
            Self::Workers => "workers",
        }
    }

    /// Returns the hook that Cluster API calls before it writes a version.
    const fn hook(self) -> Hook {
        match self {
            Self::ControlPlane => Hook::BeforeControlPlaneUpgrade,
            Self::Workers => Hook::BeforeWorkersUpgrade,
        }
    }
}

/// Version that was written without an open gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ungated {
    /// Part with the version.
    pub part: Part,
    /// The version.
    pub version: String,
}

impl fmt::Display for Ungated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, version } = self;
        write!(
            f,
            "{version} was written to the {} while gate {} was not open for it",
            part.as_str(),
            part.hook()
        )
    }
}

/// Returns the versions in the specs of control plane and workers that neither `previous` nor `opened` has released.
///
/// `previous` is the record before the observation, and `opened` are gates that were opened since. Versions up to the one with which the
/// upgrade began need no gate, nor does a Cluster that is being created. A hook response cannot be revoked: a gate that was closed
/// between response and write counts as closed.
#[must_use]
pub fn ungated(
    previous: Option<&UpgradeRecord>,
    opened: &[(Hook, String)],
    seen: &Observed<'_>,
) -> Vec<Ungated> {
    let Some(record) = of_cluster(previous, seen.cluster.uid) else {
        return Vec::new();
    };
    let is_complete = matches!(record.outcome, Some(Outcome::Completed | Outcome::RolledBack));
    let completed = is_complete.then_some(&record.to);
    let Some(began_with) = completed.or(record.from.as_ref()) else {
        return Vec::new();
    };
    let was_let_go = |part: Part, version: &str| {
        let gates = record.gates.iter().filter(|gate| gate.open);
        let recorded = gates.map(|gate| (gate.hook, gate.version.as_str()));
        let opened = opened.iter().map(|(hook, version)| (*hook, version.as_str()));
        let mut open = recorded.chain(opened);
        reached(began_with, version) || open.any(|(hook, open)| hook == part.hook() && same(open, version))
    };
    let control_plane = seen.control_plane.and_then(|plane| plane.spec_version.as_deref());
    let workers = seen
        .workers
        .iter()
        .filter_map(|worker| worker.spec_version.as_deref());
    let versions = control_plane
        .map(|version| (Part::ControlPlane, version))
        .into_iter()
        .chain(workers.map(|version| (Part::Workers, version)));
    let mut found = Vec::new();
    for (part, version) in versions.filter(|(part, version)| !was_let_go(*part, version)) {
        let ungated = Ungated {
            part,
            version: version.to_owned(),
        };
        if !found.contains(&ungated) {
            found.push(ungated);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sluice_crds::run::PackageState;

    use super::super::tests::{Scene, V34, V35, V36};
    use super::*;

    fn found(previous: &UpgradeRecord, opened: &[(Hook, String)], scene: &Scene) -> Vec<(Part, String)> {
        let found = ungated(Some(previous), opened, &scene.observed());
        found
            .into_iter()
            .map(|ungated| (ungated.part, ungated.version))
            .collect()
    }

    /// The record of an upgrade to v1.36.3 that waits for a package.
    fn held() -> UpgradeRecord {
        Scene::ready()
            .with_package(1, PackageState::Reconciling)
            .advance(None)
    }

    #[test]
    fn a_version_without_an_open_gate_is_found() {
        let taken = Scene::ready().with_control_plane(V36, V35);
        assert_eq!(
            found(&held(), &[], &taken),
            [(Part::ControlPlane, V36.to_owned())]
        );
        let rolled = Scene::ready().with_workers(V36);
        assert_eq!(found(&held(), &[], &rolled), [(Part::Workers, V36.to_owned())]);
    }

    #[test]
    fn a_released_version_is_not_found() {
        let open = Scene::ready().advance(None);
        let taken = Scene::ready().with_control_plane(V36, V35);
        assert_eq!(found(&open, &[], &taken), []);
        // The watch has not delivered the write yet.
        let opened = [(Hook::BeforeControlPlaneUpgrade, V36.to_owned())];
        assert_eq!(found(&held(), &opened, &taken), []);
        // Workers have another gate.
        let rolled = taken.with_workers(V36);
        assert_eq!(found(&open, &[], &rolled), [(Part::Workers, V36.to_owned())]);
    }

    #[rstest]
    #[case::where_it_began(V35)]
    #[case::an_older_worker(V34)]
    fn ungated_parts_are_not_found(#[case] worker: &str) {
        assert_eq!(found(&held(), &[], &Scene::ready().with_workers(worker)), []);
        let created = UpgradeRecord { from: None, ..held() };
        assert_eq!(
            found(&created, &[], &Scene::ready().with_control_plane(V36, V35)),
            []
        );
        let completed = UpgradeRecord {
            outcome: Some(Outcome::Completed),
            gates: Vec::new(),
            ..held()
        };
        assert_eq!(found(&completed, &[], &Scene::ready().with_workers(V36)), []);
    }

    #[test]
    fn a_record_of_another_cluster_counts_as_none() {
        let other = UpgradeRecord {
            cluster_uid: "another".to_owned(),
            ..held()
        };
        assert_eq!(
            found(&other, &[], &Scene::ready().with_control_plane(V36, V35)),
            []
        );
    }
}
