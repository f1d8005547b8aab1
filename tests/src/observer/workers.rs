//! MachineDeployments and their Machines, and MachinePools.

use serde_json::Value;

use super::conditions::{CLUSTER_NAME, is_true, label, text};

/// A MachineDeployment or a MachinePool.
#[derive(Debug, Default)]
pub(super) struct Workers {
    pub(super) cluster: String,
    pub(super) version: String,
    replicas: Option<u64>,
    /// Whether its version was changed and its Machines have not followed yet.
    rolling: bool,
}

/// A Machine.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// Name of its Cluster.
    pub(super) cluster: String,
    /// Name of its MachineDeployment.
    pub(super) owner: String,
    pub(super) version: String,
    is_ready: bool,
}

impl Workers {
    /// Applies a write, and returns whether it changed the version.
    pub(super) fn written(&mut self, object: &Value) -> bool {
        self.cluster = label(object, CLUSTER_NAME);
        self.replicas = object["spec"]["replicas"].as_u64();
        let version = text(object, "/spec/template/spec/version");
        let before = std::mem::replace(&mut self.version, version);
        let changed = !before.is_empty() && before != self.version;
        self.rolling |= changed;
        changed
    }

    /// Whether just now the last of its Machines has followed a change of version. The counters of its status say so too early:
    /// right after the change they still count the old Machines.
    pub(super) fn have_followed<'a>(&mut self, machines: impl Iterator<Item = &'a Machine>) -> bool {
        let mut count = 0;
        let all_new = machines
            .inspect(|_| count += 1)
            .all(|machine| machine.is_ready && machine.version == self.version);
        let done = self.rolling && all_new && Some(count) == self.replicas;
        self.rolling &= !done;
        done
    }
}

impl Machine {
    pub(super) fn read(object: &Value) -> Self {
        Self {
            cluster: label(object, CLUSTER_NAME),
            owner: label(object, "cluster.x-k8s.io/deployment-name"),
            version: text(object, "/spec/version"),
            is_ready: is_true(object, "Ready"),
        }
    }
}
