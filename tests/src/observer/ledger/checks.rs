//! Gates of Clusters: the judgement on a write, and the checks that it proves.

use super::{Ledger, Name};
use crate::observer::cluster::ClusterView;
use crate::observer::feed::Change;
use crate::observer::gates::{Proven, Stage, Subject};
use crate::observer::key::{Key, Kind, Place};
use crate::observer::milestone::Event;
use crate::observer::violation::{Rule, Violation};

impl Ledger {
    /// Records a violation if a gate that selects the Cluster lacks a proof for `version` at this revision.
    pub(super) fn judge_gates(
        &mut self,
        change: &Change,
        name: &Name,
        version: &str,
        stage: Stage,
        write: &str,
    ) {
        if !self.gates.are_in(&name.0) {
            return;
        }
        if stage == Stage::Workers && !self.gates.are_first_workers(name, version) {
            return;
        }
        let Some(subject) = self.clusters.get(name).and_then(|view| subject(name, view)) else {
            return;
        };
        let missing = self.gates.missing(&subject, version, stage);
        if stage == Stage::ControlPlane {
            for gate in self.gates.would_hold(&subject, version) {
                let version = version.to_owned();
                self.note(change, name, Event::AuditWouldHold { gate, version });
            }
        }
        if missing.is_empty() {
            return;
        }
        self.violations.push(Violation {
            rule: Rule::ReleasedBeforeGate,
            revision: change.revision,
            namespace: name.0.clone(),
            cluster: name.1.clone(),
            write: write.to_owned(),
            missing,
        });
    }

    /// Notes the checks that a write has proven, or taken the proof of.
    pub(super) fn look_at_checks(&mut self, change: &Change, key: &Key) {
        let affected: Vec<Name> = self
            .clusters
            .iter()
            .filter(|(name, cluster)| is_affected(key, name, cluster))
            .map(|(name, _)| name.clone())
            .collect();
        for name in affected {
            let Some(cluster) = self.clusters.get(&name) else {
                continue;
            };
            let Some(subject) = subject(&name, cluster) else {
                continue;
            };
            let target = cluster.object.as_ref().map_or("", |object| &object.target);
            let mut versions = vec![cluster.version.as_str(), target];
            versions.retain(|version| !version.is_empty());
            let (gained, lost) = self.gates.turned(&subject, &versions);
            for Proven { gate, check, minor } in gained {
                self.note(change, &name, Event::CheckProven { gate, check, minor });
            }
            for Proven { gate, check, minor } in lost {
                self.note(change, &name, Event::CheckLost { gate, check, minor });
            }
        }
    }
}

/// None for a Cluster that does not exist.
fn subject<'a>(name: &'a Name, cluster: &'a ClusterView) -> Option<Subject<'a>> {
    let object = cluster.object.as_ref()?;
    let workload = if cluster.is_management {
        Place::Management
    } else {
        Place::Workload(cluster.control_plane_uid.clone())
    };
    Some(Subject {
        namespace: &name.0,
        name: &name.1,
        labels: &object.labels,
        workload,
        running: &cluster.running,
    })
}

fn is_affected(key: &Key, name: &Name, cluster: &ClusterView) -> bool {
    match (&key.place, key.kind) {
        (Place::Workload(uid), Kind::Checked(_)) => *uid == cluster.control_plane_uid,
        // A definition has no namespace.
        (Place::Management, Kind::Checked(_)) => {
            key.namespace == name.0 || key.namespace.is_empty() || cluster.is_management
        }
        (Place::Management, Kind::UpgradeGate | Kind::ControlPlane) => key.namespace == name.0,
        (Place::Management, Kind::Cluster) => (&key.namespace, &key.name) == (&name.0, &name.1),
        _ => false,
    }
}
