//! What the observer knows of one Cluster.

use serde_json::Value;

use super::conditions::text;
use super::feed::Revision;

/// A Cluster and its control plane.
#[derive(Debug, Clone, Default)]
pub(super) struct ClusterView {
    /// Name of the wanted release; empty without.
    pub(super) tkr: String,
    /// uid of the control plane object, which names the workload's part of etcd.
    pub(super) control_plane_uid: String,
    /// `spec.version` of the control plane.
    pub(super) version: String,
    /// `status.version` of the control plane.
    pub(super) running: String,
    /// Revision of the write that said so first.
    pub(super) running_since: Revision,
    /// What `TKR_DATA` says for the running version.
    pub(super) release_data: Option<Value>,
    /// `spec.paused`.
    pub(super) paused: bool,
    /// Message of TopologyReconciled.
    pub(super) topology_message: String,
}

impl ClusterView {
    /// Takes a write of the control plane object; returns the version before when it was changed by this write.
    pub(super) fn control_plane_written(&mut self, revision: Revision, plane: &Value) -> Option<String> {
        self.control_plane_uid = text(plane, "/metadata/uid");
        let running = text(plane, "/status/version");
        if running != self.running {
            self.running = running;
            self.running_since = revision;
        }
        let version = text(plane, "/spec/version");
        if version == self.version {
            return None;
        }
        let before = std::mem::replace(&mut self.version, version);
        Some(before).filter(|before| !before.is_empty())
    }
}

/// What the variable `TKR_DATA` of a Cluster says for a Kubernetes version.
pub(super) fn release_data(cluster: &Value, version: &str) -> Option<Value> {
    cluster["spec"]["topology"]["variables"]
        .as_array()?
        .iter()
        .find(|variable| variable["name"] == "TKR_DATA")?["value"]
        .get(version)
        .cloned()
}

/// The message of the condition TopologyReconciled.
pub(super) fn topology_message(cluster: &Value) -> String {
    cluster["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "TopologyReconciled")
        .map(|condition| text(condition, "/message"))
        .unwrap_or_default()
}

/// One package of a template or of a ClusterBootstrap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedPackage {
    /// Name of the Package object.
    pub(super) name: String,
    /// Whether it installs kapp-controller, from the management cluster.
    pub(super) is_kapp_controller: bool,
}

/// The packages that a template or a ClusterBootstrap names.
pub(super) fn packages(object: &Value) -> Vec<WantedPackage> {
    let spec = &object["spec"];
    let core = ["kapp", "cni", "cpi", "csi"].map(|field| (&spec[field], field == "kapp"));
    let additional = spec["additionalPackages"].as_array().into_iter().flatten();
    core.into_iter()
        .chain(additional.map(|package| (package, false)))
        .filter_map(|(package, is_kapp_controller)| {
            Some(WantedPackage {
                name: package["refName"].as_str()?.to_owned(),
                is_kapp_controller,
            })
        })
        .collect()
}

/// The exceptions from the rule that a ClusterBootstrap asks for in `spec.upgradePolicy.packages`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Exceptions {
    /// Packages that need not be ready before the control plane goes.
    pub(super) after_control_plane: Vec<String>,
    /// Packages of which it is enough that they are applied.
    pub(super) applied: Vec<String>,
}

impl Exceptions {
    pub(super) fn of(bootstrap: &Value) -> Self {
        let policies = bootstrap["spec"]["upgradePolicy"]["packages"].as_array();
        let named = |field: &str, value: &str| {
            policies
                .into_iter()
                .flatten()
                .filter(|policy| policy[field] == value)
                .map(|policy| text(policy, "/package"))
                .collect()
        };
        Self {
            after_control_plane: named("phase", "AfterControlPlane"),
            applied: named("readiness", "Applied"),
        }
    }
}
