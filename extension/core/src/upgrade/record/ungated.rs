//! Versions that control plane or workers have taken although no gate was open for them.

use std::fmt;

use sluice_crds::run::{Hook, Outcome, UpgradeRecord};

use super::{Observed, of_cluster};
use crate::version::{reached, same};

/// A part of a Cluster that takes versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The control plane.
    ControlPlane,
    /// MachineDeployments and MachinePools.
    Workers,
}

impl Part {
    /// As metrics and messages spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ControlPlane => "control plane",
            Self::Workers => "workers",
        }
    }

    /// The hook that Cluster API calls before it writes a version.
    const fn hook(self) -> Hook {
        match self {
            Self::ControlPlane => Hook::BeforeControlPlaneUpgrade,
            Self::Workers => Hook::BeforeWorkersUpgrade,
        }
    }
}

/// A version that was written without an open gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ungated {
    /// What it was written to.
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

/// Versions in the specs of control plane and workers that neither `previous` nor `opened` has let go.
///
/// `previous` is the record from before they were seen, and `opened` are gates that were opened since. Versions up to the one that the
/// upgrade began with need no gate, nor does a Cluster that is being created. An answer cannot be taken back: a gate that was closed
/// between answer and write counts as closed.
#[must_use]
pub fn ungated(
    previous: Option<&UpgradeRecord>,
    opened: &[(Hook, String)],
    seen: &Observed<'_>,
) -> Vec<Ungated> {
    let Some(record) = of_cluster(previous, seen.cluster.uid) else {
        return Vec::new();
    };
    let completed = (record.outcome == Some(Outcome::Completed)).then_some(&record.to);
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
    fn a_version_that_was_let_go_is_not() {
        let open = Scene::ready().advance(None);
        let taken = Scene::ready().with_control_plane(V36, V35);
        assert_eq!(found(&open, &[], &taken), []);
        // The watch has not shown yet what was written.
        let opened = [(Hook::BeforeControlPlaneUpgrade, V36.to_owned())];
        assert_eq!(found(&held(), &opened, &taken), []);
        // The gate of workers is another one.
        let rolled = taken.with_workers(V36);
        assert_eq!(found(&open, &[], &rolled), [(Part::Workers, V36.to_owned())]);
    }

    #[rstest]
    #[case::where_it_began(V35)]
    #[case::an_older_worker(V34)]
    fn what_needs_no_gate_is_not(#[case] worker: &str) {
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
    fn a_record_of_another_cluster_says_nothing() {
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
