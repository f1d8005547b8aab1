//! State of one Cluster in the observer.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::answer::{Answered, NextGate};
use super::conditions::{annotation, labels, text};
use super::feed::Revision;
use super::release_data::ReleaseData;

/// Cluster API notes here which hooks it still has to call, or has released an earlier step of.
const PENDING_HOOKS: &str = "runtime.cluster.x-k8s.io/pending-hooks";

/// On a control plane: which API server it has, if it is not one of its own.
const API_SERVER: &str = "harness.test/api-server";

/// A Cluster and its control plane.
#[derive(Debug, Clone, Default)]
pub(super) struct ClusterView {
    /// State of the Cluster object; none without a Cluster.
    pub(super) object: Option<ClusterObject>,
    /// uid of the control plane object, which names the workload's part of etcd.
    pub(super) control_plane_uid: String,
    /// Whether its API server is that of the management cluster.
    pub(super) is_management: bool,
    /// `spec.version` of the control plane.
    pub(super) version: String,
    /// The version that `status.version` and `status.versions` agree on; empty if they do not.
    pub(super) running: String,
    /// Revision of the write that said so first.
    pub(super) running_since: Revision,
    /// Every version that the control plane is at, or is on its way to.
    pub(super) versions: BTreeSet<String>,
    /// The proof that `version` needs once it runs; none before the first upgrade.
    pub(super) reproof: Option<Reproof>,
    /// The gate of the next version.
    pub(super) gate: Option<NextGate>,
    /// The answer that allowed the next version, once Cluster API has noted it.
    pub(super) answered: Option<Answered>,
    /// Generation of the Cluster whose write changed the target last; none before a change.
    pub(super) aimed: Option<i64>,
    /// Revision of that write.
    pub(super) aimed_at: Revision,
    /// Revision of the write that changed the label of the release last.
    pub(super) labelled_at: Revision,
    /// A version whose gate was open when the user moved the target back. Cluster API may still write it.
    pub(super) withdrawn: Option<String>,
    /// When packages went back last.
    pub(super) lowered: Option<Timestamp>,
}

/// Observed fields of the Cluster object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ClusterObject {
    /// `metadata.uid`.
    pub(super) uid: String,
    /// Its labels.
    pub(super) labels: BTreeMap<String, String>,
    /// `spec.topology.version`; empty without a topology.
    pub(super) target: String,
    /// Its generation.
    pub(super) generation: Option<i64>,
    /// The generation that TopologyReconciled is about.
    pub(super) reconciled: Option<i64>,
    /// Name of the wanted release; empty without.
    pub(super) tkr: String,
    /// `spec.paused`.
    pub(super) paused: bool,
    /// Message of TopologyReconciled.
    pub(super) topology_message: String,
    /// `TKR_DATA`.
    pub(super) release_data: ReleaseData,
    /// Hooks that Cluster API has noted.
    pub(super) pending_hooks: BTreeSet<String>,
    /// Whether its infrastructure is a VSphereCluster.
    pub(super) is_on_vsphere: bool,
}

/// Whether all packages were proven again by the API server of a new version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reproof {
    /// All packages were proven again at some revision.
    pub(super) seen: bool,
    /// A write that needs it has been judged.
    pub(super) judged: bool,
}

impl ClusterView {
    /// Takes a write of the control plane object; returns the version before when it was changed by this write.
    pub(super) fn control_plane_written(&mut self, revision: Revision, plane: &Value) -> Option<String> {
        let uid = text(plane, "/metadata/uid");
        if uid != self.control_plane_uid {
            *self = Self {
                object: self.object.take(),
                control_plane_uid: uid,
                ..Self::default()
            };
        }
        self.is_management = annotation(plane, API_SERVER) == "management";
        let version = text(plane, "/spec/version");
        let reported = reported(plane);
        let running = match reported.first() {
            Some(running) if reported.len() == 1 => running.clone(),
            _ => String::new(),
        };
        if running != self.running {
            self.running = running;
            self.running_since = revision;
        }
        self.versions = reported;
        self.versions.insert(version.clone());
        if version == self.version {
            return None;
        }
        let before = std::mem::replace(&mut self.version, version);
        Some(before).filter(|before| !before.is_empty())
    }

    /// The next version, if its gate is open.
    pub(super) fn open_gate(&self) -> Option<String> {
        let gate = self.gate.as_ref().filter(|gate| gate.is_open());
        gate.map(|gate| gate.version.clone())
    }

    /// Name of the wanted release; empty without.
    pub(super) fn tkr(&self) -> &str {
        self.object.as_ref().map_or("", |object| &object.tkr)
    }
}

impl ClusterObject {
    pub(super) fn read(cluster: &Value) -> Self {
        let pending = annotation(cluster, PENDING_HOOKS);
        Self {
            uid: text(cluster, "/metadata/uid"),
            labels: labels(cluster),
            target: text(cluster, "/spec/topology/version"),
            generation: cluster["metadata"]["generation"].as_i64(),
            reconciled: topology_reconciled(cluster)["observedGeneration"].as_i64(),
            tkr: super::conditions::label(cluster, "run.tanzu.vmware.com/tkr"),
            paused: cluster["spec"]["paused"] == true,
            topology_message: text(topology_reconciled(cluster), "/message"),
            release_data: ReleaseData::of(cluster),
            pending_hooks: pending
                .split(',')
                .filter(|hook| !hook.is_empty())
                .map(str::to_owned)
                .collect(),
            is_on_vsphere: cluster["spec"]["infrastructureRef"]["kind"] == "VSphereCluster",
        }
    }
}

/// The versions that a control plane object reports.
fn reported(plane: &Value) -> BTreeSet<String> {
    let all = plane["status"]["versions"].as_array().into_iter().flatten();
    let all = all.map(|version| &version["version"]);
    all.chain([&plane["status"]["version"]])
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// The condition TopologyReconciled; null without.
fn topology_reconciled(cluster: &Value) -> &Value {
    cluster["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "TopologyReconciled")
        .unwrap_or(&Value::Null)
}
