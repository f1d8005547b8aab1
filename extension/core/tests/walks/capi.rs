//! Cluster API's topology controller v1.14, as far as it calls hooks and writes versions, and a replica that answers it from what its
//! watches have shown. The control plane takes every minor version, workers the last.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize as _;
use serde_json::{Value, json};
use sluice_core::{
    cache::stored_kind::StoredKind,
    gate::{
        decision::{CachedCluster, Decision, Knowledge, decide},
        hook_call::HookCall,
        retry::RetryPolicy,
        unsynced::Unsynced,
    },
    reconcile::cluster::Server,
};
use sluice_crds::{
    labels::label,
    run::{Hook, UpgradeRecord},
};

use crate::{
    connection::time_at,
    objects::{TEAM, VERSIONS, bootstrap, cluster, control_plane, worker},
    odd::undecodable,
    servers::{Place, Servers, place},
};

/// Highest age of the cache of a replica, in seconds.
const CURRENT_FOR: u64 = 45;

/// Cluster API and the replica whose hooks it calls.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct ClusterApi {
    /// Hooks that have to be called before it goes on.
    pending: BTreeSet<&'static str>,
    seen: Servers,
    /// Time at which the replica's cache was last complete.
    confirmed: u64,
    /// When the record of the server said last that a gate is open.
    open: BTreeMap<(&'static str, String), u64>,
    /// Whether the deletion may go on.
    pub(crate) deleted: bool,
}

/// The record as it is, of whichever Cluster of the name.
fn shown(servers: &Servers) -> Option<UpgradeRecord> {
    let bootstrap = servers.get(&bootstrap())?;
    UpgradeRecord::deserialize(&bootstrap["status"]["upgrade"]).ok()
}

/// The record of the Cluster as it is.
pub(crate) fn record(servers: &Servers) -> Option<UpgradeRecord> {
    let uid = &servers.get(&cluster())?["metadata"]["uid"];
    shown(servers).filter(|record| *uid == record.cluster_uid)
}

/// A record in a few lines.
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

/// The version that a control plane or workers have to take, or run.
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

/// A control plane or workers take the version that they were asked to take. Says whether there was one.
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
    /// The watches of the replica show everything.
    pub(crate) fn watch(&mut self, servers: &Servers, now: u64) {
        self.seen = servers.clone();
        self.confirmed = now;
    }

    /// The replica's cache takes over the current objects.
    pub(crate) fn forget(&mut self) {
        self.seen = Servers::default();
        self.open.clear();
    }

    /// Notes which gates are open.
    pub(crate) fn note(&mut self, record: Option<&UpgradeRecord>, now: u64) {
        for gate in record.into_iter().flat_map(|record| &record.gates) {
            if gate.open {
                self.open.insert((gate.hook.as_str(), gate.version.clone()), now);
            }
        }
    }

    /// One reconcile of the Cluster by Cluster API.
    pub(crate) fn reconcile(&mut self, servers: &mut Servers, now: u64) {
        let Some(object) = servers.get(&cluster()).cloned() else {
            return;
        };
        let to = index_of(&object["spec"]["topology"]["version"]).expect("a version of the walk");
        if !object["metadata"]["deletionTimestamp"].is_null() {
            self.deleted |= self.released(&object, Hook::BeforeClusterDelete, to, None, now);
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
            self.call(&object, Hook::AfterClusterUpgrade, to, now);
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
            if !self.call(object, hook, at, now) {
                return at == to;
            }
        }
        let workers = version_at(servers, &worker(), "spec");
        if at == to && workers < to {
            return true;
        }
        if workers != version_at(servers, &worker(), "status")
            || !self.call(object, Hook::AfterWorkersUpgrade, at, now)
            || at >= to
        {
            return at == to;
        }
        let next = at + 1;
        if !self.is_pending(Hook::AfterClusterUpgrade) {
            if !self.released(object, Hook::BeforeClusterUpgrade, to, Some(next), now) {
                return false;
            }
            self.pending.insert(Hook::AfterClusterUpgrade.as_str());
        }
        if self.released(object, Hook::BeforeControlPlaneUpgrade, next, Some(next), now) {
            self.judge(Hook::BeforeControlPlaneUpgrade, next, now);
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

    fn is_pending(&self, hook: Hook) -> bool {
        self.pending.contains(hook.as_str())
    }

    /// Calls a hook if it is pending; whether the way is free after that.
    fn call(&mut self, object: &Value, hook: Hook, version: usize, now: u64) -> bool {
        if !self.is_pending(hook) {
            return true;
        }
        let released = self.released(object, hook, version, None, now);
        if released {
            self.judge(hook, version, now);
            self.pending.remove(hook.as_str());
        }
        released
    }

    /// What is released was open in a record that is not older than the limit.
    fn judge(&self, hook: Hook, version: usize, now: u64) {
        let open = self.open.get(&(hook.as_str(), VERSIONS[version].to_owned()));
        assert!(
            open.is_some_and(|at| at + CURRENT_FOR >= now),
            "{hook:?} {} is released at {now}, and was open last at {open:?}",
            VERSIONS[version]
        );
    }

    /// Response of the replica.
    fn released(&self, object: &Value, hook: Hook, asked: usize, step: Option<usize>, now: u64) -> bool {
        let metadata = &object["metadata"];
        let label = metadata["labels"][label::TKR].as_str();
        let deleting = !metadata["deletionTimestamp"].is_null();
        let call = HookCall {
            hook,
            namespace: TEAM,
            name: "one",
            uid: metadata["uid"].as_str().unwrap_or_default(),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            label,
            version: VERSIONS[asked],
            first_step: step.map(|step| VERSIONS[step]),
            deleted_at: deleting.then(|| time_at(now)),
            now: Some(time_at(now)),
        };
        let record = shown(&self.seen);
        let shown = self.seen.get(&bootstrap());
        let odd = |place: &Place| undecodable(self.seen.get(place)?);
        let named =
            label.and_then(|label| odd(&place(Server::Management, "tanzukubernetesreleases", "", label)));
        let odd_bootstrap = odd(&bootstrap());
        let known = CachedCluster {
            bootstrap_undecodable: odd_bootstrap.is_some(),
            undecodable: odd(&cluster())
                .or(odd_bootstrap.clone())
                .or(named)
                .map(|object| object.hold()),
            record: record.as_ref().filter(|_| odd_bootstrap.is_none()),
            bootstrap_generation: shown
                .filter(|_| odd_bootstrap.is_none())
                .and_then(|shown| shown["metadata"]["generation"].as_i64()),
            ..CachedCluster::default()
        };
        let knowledge = if now - self.confirmed > CURRENT_FOR {
            Knowledge::Unsynced(Unsynced::Stale)
        } else if self.seen.of(Server::Management, "clusters").next().is_none() {
            Knowledge::Unsynced(Unsynced::Unlisted(StoredKind::Cluster))
        } else {
            Knowledge::synced(label, known)
        };
        decide(&call, &knowledge, &RetryPolicy::default()) == Decision::Release
    }
}
