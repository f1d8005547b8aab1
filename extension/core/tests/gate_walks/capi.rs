//! Model of Cluster API's topology controller v1.14: its hook calls and version writes (`exp/topology/desiredstate`:
//! `computeControlPlaneVersion`, `computeMachineDeploymentVersion`, the lifecycle hooks). The control plane takes each minor version, and
//! workers the last.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sluice_core::gate::hook_call::HookCall;
use sluice_crds::{labels::annotation::PENDING_HOOKS, run::Hook};

use crate::{
    objects::{TEAM, VERSIONS, cluster, control_plane, index_of, versions_at, worker},
    oracle::judge_hold,
    servers::{Place, Servers},
    walk::Walk,
};

/// Returns the pending hooks, which an annotation of the Cluster lists.
pub(crate) fn pending(servers: &Servers) -> BTreeSet<String> {
    let cluster = servers.get(&cluster());
    let hooks = cluster.and_then(|cluster| cluster["metadata"]["annotations"][PENDING_HOOKS].as_str());
    let hooks = hooks.unwrap_or_default().split(',');
    hooks.filter(|hook| !hook.is_empty()).map(str::to_owned).collect()
}

fn is_pending(servers: &Servers, hook: Hook) -> bool {
    pending(servers).contains(hook.as_str())
}

fn is_any_pending(servers: &Servers, hooks: [Hook; 2]) -> bool {
    hooks.into_iter().any(|hook| is_pending(servers, hook))
}

fn set_pending(servers: &mut Servers, hooks: &[Hook], is_pending: bool) {
    let mut all = pending(servers);
    for hook in hooks {
        if is_pending {
            all.insert(hook.as_str().to_owned());
        } else {
            all.remove(hook.as_str());
        }
    }
    let text = all.into_iter().collect::<Vec<_>>().join(",");
    servers.edit(&cluster(), |cluster| {
        let annotations = &mut cluster["metadata"]["annotations"];
        if !text.is_empty() {
            annotations[PENDING_HOOKS] = json!(text);
        } else if let Some(annotations) = annotations.as_object_mut() {
            annotations.remove(PENDING_HOOKS);
        }
    });
}

/// Writes the desired version of the control plane or of the workers.
fn take(servers: &mut Servers, place: &Place, version: usize) {
    let version = json!(VERSIONS[version]);
    servers.edit(place, |object| {
        if place.1 == "machinedeployments" {
            object["spec"]["template"]["spec"]["version"] = version;
        } else {
            object["spec"]["version"] = version;
        }
    });
}

/// Control plane and workers roll out their desired versions.
pub(crate) fn roll(servers: &mut Servers) {
    servers.edit(&control_plane(), |object| {
        object["status"]["version"] = object["spec"]["version"].clone();
    });
    servers.edit(&worker(), |object| {
        object["status"]["versions"][0]["version"] = object["spec"]["template"]["spec"]["version"].clone();
    });
}

impl Walk {
    /// Cluster API reconciles this state of the Cluster, which its cache shows.
    pub(crate) fn cluster_api(&mut self, object: &Value) {
        let uid = self
            .servers
            .get(&cluster())
            .map(|cluster| &cluster["metadata"]["uid"]);
        if uid != Some(&object["metadata"]["uid"]) || object["spec"]["paused"] == true {
            return;
        }
        let to = index_of(&object["spec"]["topology"]["version"]);
        let is_stable = self.upgrade_control_plane(object, to);
        let [workers, reported] = versions_at(&self.servers, &worker());
        let waits = workers != reported || !is_stable;
        if workers < to {
            let hooks = [Hook::AfterControlPlaneUpgrade, Hook::BeforeWorkersUpgrade];
            let held = is_any_pending(&self.servers, hooks);
            if !waits && !held {
                take(&mut self.servers, &worker(), to);
            }
            return;
        }
        let hooks = [Hook::AfterControlPlaneUpgrade, Hook::AfterWorkersUpgrade];
        let held = is_any_pending(&self.servers, hooks);
        let [at, _] = versions_at(&self.servers, &control_plane());
        if !waits && !held && at == to {
            self.call(object, Hook::AfterClusterUpgrade, to);
        }
    }

    /// Upgrades the control plane by one version, if hooks permit it. Whether it has a version that workers may follow to.
    fn upgrade_control_plane(&mut self, object: &Value, to: usize) -> bool {
        let [at, reported] = versions_at(&self.servers, &control_plane());
        if at != reported {
            if !is_pending(&self.servers, Hook::AfterControlPlaneUpgrade) {
                self.mark(at, to);
            }
            return false;
        }
        for hook in [Hook::AfterControlPlaneUpgrade, Hook::BeforeWorkersUpgrade] {
            if !self.call(object, hook, at) {
                return at == to;
            }
        }
        let [workers, reported] = versions_at(&self.servers, &worker());
        if workers < to && at == to {
            return true;
        }
        if workers != reported || !self.call(object, Hook::AfterWorkersUpgrade, at) || at >= to {
            return at == to;
        }
        let next = at + 1;
        if !is_pending(&self.servers, Hook::AfterClusterUpgrade) {
            if !self.releases(object, Hook::BeforeClusterUpgrade, to, Some(next)) {
                return false;
            }
            set_pending(&mut self.servers, &[Hook::AfterClusterUpgrade], true);
        }
        if self.releases(object, Hook::BeforeControlPlaneUpgrade, next, Some(next)) {
            self.mark(next, to);
            take(&mut self.servers, &control_plane(), next);
        }
        false
    }

    /// Marks the hooks of a version that the control plane takes.
    fn mark(&mut self, version: usize, to: usize) {
        let [workers, _] = versions_at(&self.servers, &worker());
        let mut hooks = vec![Hook::AfterControlPlaneUpgrade];
        if workers < to && version == to {
            hooks.extend([Hook::BeforeWorkersUpgrade, Hook::AfterWorkersUpgrade]);
        }
        set_pending(&mut self.servers, &hooks, true);
    }

    /// Calls a hook if it is pending. Whether it is released.
    fn call(&mut self, object: &Value, hook: Hook, version: usize) -> bool {
        if !is_pending(&self.servers, hook) {
            return true;
        }
        let is_released = self.releases(object, hook, version, None);
        if is_released {
            set_pending(&mut self.servers, &[hook], false);
        }
        is_released
    }

    /// Whether the replica releases a call: hook, version, and next version of the control plane.
    fn releases(&self, object: &Value, hook: Hook, version: usize, step: Option<usize>) -> bool {
        let metadata = &object["metadata"];
        let labels = metadata["labels"].to_string();
        let call = HookCall {
            hook,
            namespace: TEAM,
            name: "one",
            uid: metadata["uid"].as_str().unwrap_or_default(),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            label: None,
            labels: Some(&labels),
            version: VERSIONS[version],
            first_step: step.map(|step| VERSIONS[step]),
            deleted_at: None,
            now: None,
            clock: None,
        };
        let is_released = self.replica.releases(&self.servers, &call);
        let cached = &self.replica.seen;
        if is_released {
            self.oracle
                .judge_release(&self.servers, cached, &call, &metadata["labels"]);
        } else {
            judge_hold(&self.servers, cached, &call, &metadata["labels"]);
        }
        is_released
    }
}
