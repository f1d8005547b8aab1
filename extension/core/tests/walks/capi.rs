//! Model of Cluster API's topology controller v1.14: its hook calls and version writes. The control plane steps through every minor
//! version; workers take only the last.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize as _;
use serde_json::{Value, json};
use sluice_core::gate::hook_call::HookCall;
use sluice_crds::{
    labels::label,
    run::{Hook, UpgradeRecord},
};

use crate::{
    connection::time_at,
    objects::{TEAM, VERSIONS, bootstrap, cluster, control_plane, worker},
    replica::{Answer, Reading, Replica},
    servers::{Place, Servers},
};

/// Cluster API and the replica whose hooks it calls.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct ClusterApi {
    /// Pending hooks.
    pending: BTreeSet<&'static str>,
    pub(crate) replica: Replica,
    /// Behaviour of the reads of the current reconcile.
    reading: Reading,
    /// Last time at which the server's record had each gate open.
    open: BTreeMap<(&'static str, String), u64>,
    /// Whether the deletion is released.
    pub(crate) deleted: bool,
}

/// Returns the current record, even of an earlier Cluster of the same name.
fn shown(servers: &Servers) -> Option<UpgradeRecord> {
    let bootstrap = servers.get(&bootstrap())?;
    UpgradeRecord::deserialize(&bootstrap["status"]["upgrade"]).ok()
}

/// Returns the current record of the Cluster.
pub(crate) fn record(servers: &Servers) -> Option<UpgradeRecord> {
    let uid = &servers.get(&cluster())?["metadata"]["uid"];
    shown(servers).filter(|record| *uid == record.cluster_uid)
}

/// Returns a short text of a record.
pub(crate) fn brief(record: Option<&UpgradeRecord>) -> String {
    let Some(record) = record else {
        return "no record".to_owned();
    };
    let gates = record.gates.iter().map(|gate| {
        let open = if gate.open { "open" } else { &gate.message };
        format!("\n  {:?} {}: {open}", gate.hook, gate.version)
    });
    let packages = record.packages.iter().map(|package| {
        let (state, reason) = (package.state, &package.reason);
        format!("\n  {} {}: {state:?} {reason}", package.name, package.version)
    });
    let parts: String = gates.chain(packages).collect();
    format!(
        "record to {} by {:?} of {:?}, {:?}:{parts}",
        record.to, record.hop, record.tkr, record.outcome
    )
}

/// Returns the desired or current version of a control plane or of workers.
pub(crate) fn version_at(servers: &Servers, place: &Place, part: &str) -> usize {
    let object = servers.get(place).unwrap_or(&Value::Null);
    let version = match (place.1.as_str(), part) {
        ("machinedeployments", "spec") => &object["spec"]["template"]["spec"]["version"],
        ("machinedeployments", _) => &object["status"]["versions"][0]["version"],
        _ => &object[part]["version"],
    };
    index_of(version).expect("a version of the walk")
}

fn index_of(version: &Value) -> Option<usize> {
    VERSIONS.iter().position(|known| version == known)
}

fn take(servers: &mut Servers, place: &Place, part: &str, version: usize) {
    let version = json!(VERSIONS[version]);
    servers.edit(place, |object| match (place.1.as_str(), part) {
        ("machinedeployments", "spec") => object["spec"]["template"]["spec"]["version"] = version,
        ("machinedeployments", _) => object["status"]["versions"][0]["version"] = version,
        _ => object[part]["version"] = version,
    });
}

/// Rolls a control plane or workers to their desired version. Returns whether they changed.
pub(crate) fn roll(servers: &mut Servers, place: &Place) -> bool {
    let (spec, status) = (
        version_at(servers, place, "spec"),
        version_at(servers, place, "status"),
    );
    if spec != status {
        take(servers, place, "status", spec);
    }
    spec != status
}

impl ClusterApi {
    /// Clears the cache of the replica.
    pub(crate) fn forget(&mut self) {
        self.replica.forget();
        self.open.clear();
    }

    /// Goes back to an earlier state, as an API server does. The replica is another process, and keeps its cache.
    pub(crate) fn go_back(&mut self, earlier: &Self) {
        self.pending.clone_from(&earlier.pending);
        self.deleted = earlier.deleted;
        self.open.clear();
    }

    /// Records the open gates.
    pub(crate) fn note(&mut self, record: Option<&UpgradeRecord>, now: u64) {
        for gate in record.into_iter().flat_map(|record| &record.gates) {
            if gate.open {
                self.open.insert((gate.hook.as_str(), gate.version.clone()), now);
            }
        }
    }

    /// Reconciles the Cluster once, with this behaviour of the reads that confirm releases.
    pub(crate) fn reconcile(&mut self, servers: &mut Servers, reading: Reading, now: u64) {
        self.reading = reading;
        let Some(object) = servers.get(&cluster()).cloned() else {
            return;
        };
        let to = index_of(&object["spec"]["topology"]["version"]).expect("a version of the walk");
        if !object["metadata"]["deletionTimestamp"].is_null() {
            self.deleted |= self.released(servers, &object, (Hook::BeforeClusterDelete, to, None), now);
            return;
        }
        let stable = self.control_plane(servers, &object, to, now);
        let workers = version_at(servers, &worker(), "spec");
        let rolling = workers != version_at(servers, &worker(), "status");
        let held =
            self.is_pending(Hook::AfterControlPlaneUpgrade) || self.is_pending(Hook::BeforeWorkersUpgrade);
        if workers < to && !rolling && !held && stable {
            take(servers, &worker(), "spec", to);
        } else if stable && workers == to && !rolling && !self.is_pending(Hook::AfterWorkersUpgrade) {
            self.call(servers, &object, Hook::AfterClusterUpgrade, to, now);
        }
    }

    /// Whether the control plane is at the target, and workers may follow.
    fn control_plane(&mut self, servers: &mut Servers, object: &Value, to: usize, now: u64) -> bool {
        let at = version_at(servers, &control_plane(), "spec");
        if at != version_at(servers, &control_plane(), "status") {
            self.mark(servers, Hook::AfterControlPlaneUpgrade, at, to);
            return false;
        }
        for hook in [Hook::AfterControlPlaneUpgrade, Hook::BeforeWorkersUpgrade] {
            if !self.call(servers, object, hook, at, now) {
                return at == to;
            }
        }
        let workers = version_at(servers, &worker(), "spec");
        if at == to && workers < to {
            return true;
        }
        if workers != version_at(servers, &worker(), "status")
            || !self.call(servers, object, Hook::AfterWorkersUpgrade, at, now)
            || at >= to
        {
            return at == to;
        }
        let next = at + 1;
        if !self.is_pending(Hook::AfterClusterUpgrade) {
            if !self.released(servers, object, (Hook::BeforeClusterUpgrade, to, Some(next)), now) {
                return false;
            }
            self.pending.insert(Hook::AfterClusterUpgrade.as_str());
        }
        if self.released(
            servers,
            object,
            (Hook::BeforeControlPlaneUpgrade, next, Some(next)),
            now,
        ) {
            self.mark(servers, Hook::AfterControlPlaneUpgrade, next, to);
            take(servers, &control_plane(), "spec", next);
        }
        false
    }

    fn mark(&mut self, servers: &Servers, hook: Hook, version: usize, to: usize) {
        if self.pending.insert(hook.as_str()) && version == to && version_at(servers, &worker(), "spec") < to
        {
            self.pending.insert(Hook::BeforeWorkersUpgrade.as_str());
            self.pending.insert(Hook::AfterWorkersUpgrade.as_str());
        }
    }

    /// Whether a hook was not released yet.
    pub(crate) fn awaits_hooks(&self) -> bool {
        !self.pending.is_empty()
    }

    fn is_pending(&self, hook: Hook) -> bool {
        self.pending.contains(hook.as_str())
    }

    /// Calls a hook if it is pending. Returns whether it is released.
    fn call(&mut self, servers: &Servers, object: &Value, hook: Hook, version: usize, now: u64) -> bool {
        if !self.is_pending(hook) {
            return true;
        }
        let released = self.released(servers, object, (hook, version, None), now);
        if released {
            self.pending.remove(hook.as_str());
        }
        released
    }

    /// Asserts that a released gate was open in the record of the API server at some moment between call and answer.
    fn judge(&self, hook: Hook, version: usize, asked: u64) {
        // A deletion may exceed its limit.
        if hook != Hook::BeforeClusterDelete {
            let open = self.open.get(&(hook.as_str(), VERSIONS[version].to_owned()));
            assert!(
                open.is_some_and(|at| *at >= asked),
                "stale: a call of {asked} to {hook:?} {} is released, and its gate was open last at {open:?}",
                VERSIONS[version]
            );
        }
    }

    /// Returns whether the replica releases a call: hook, version, and next version of the control plane.
    fn released(
        &mut self,
        servers: &Servers,
        object: &Value,
        (hook, asked, step): (Hook, usize, Option<usize>),
        now: u64,
    ) -> bool {
        let metadata = &object["metadata"];
        let deleting = !metadata["deletionTimestamp"].is_null();
        let call = HookCall {
            hook,
            namespace: TEAM,
            name: "one",
            uid: metadata["uid"].as_str().unwrap_or_default(),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            label: metadata["labels"][label::TKR].as_str(),
            version: VERSIONS[asked],
            first_step: step.map(|step| VERSIONS[step]),
            deleted_at: deleting.then(|| time_at(now)),
            now: Some(time_at(now)),
        };
        let Answer { released, asked: at } = self.replica.answer(servers, &call, self.reading, now);
        if released {
            self.judge(hook, step.unwrap_or(asked), at);
        }
        released
    }
}
