//! Judgement of each opening gate and of each released hook, by what is deployed and what runs. It shares no code with the product.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sluice_core::gate::hook_call::HookCall;
use sluice_crds::{
    lifecycle::{GateMode, GateRecord},
    run::{Gate, Hook},
};

use crate::{
    addons::Addons,
    leader::Leader,
    objects::{VERSIONS, backend, cluster, control_plane, definition, record, versions_at, worker},
    servers::{Servers, of},
};

/// UID and generation of a gate.
type Id = (String, i64);

/// Past states of the world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    /// Last time at which each version of the add-on was deployed.
    deployed_at: BTreeMap<String, u64>,
    /// Last time at which the workload API server served each version of the definition.
    served_at: BTreeMap<String, u64>,
    /// Last time at which the Backend reported each version, for its current spec.
    reported_at: BTreeMap<String, u64>,
    /// Last time at which each version of the image ran on every Node.
    running_at: BTreeMap<String, u64>,
    /// Last time at which the DaemonSet controller counted Pods.
    pub(crate) counted_at: u64,
    /// Labels of the Cluster, and the time of their last change.
    labels: (Value, u64),
    /// Specs of all gates that were ever stored.
    gates: BTreeMap<Id, Value>,
    /// Gates whose checks were true when the record opened a hook for a version.
    proofs: BTreeMap<(Hook, String), BTreeSet<Id>>,
}

fn id_of(gate: &Value) -> Id {
    let metadata = &gate["metadata"];
    let uid = metadata["uid"].as_str().unwrap_or_default();
    (
        uid.to_owned(),
        metadata["generation"].as_i64().unwrap_or_default(),
    )
}

/// Whether an Enforce gate selects these labels.
fn enforces(gate: &Value, labels: &Value) -> bool {
    let wanted = gate["spec"]["clusterSelector"]["matchLabels"].as_object();
    let mut wanted = wanted.into_iter().flatten();
    gate["spec"]["mode"] == "Enforce" && wanted.all(|(key, value)| labels[key.as_str()] == *value)
}

/// Returns the Enforce gates of a record.
fn enforced(record: &GateRecord) -> impl Iterator<Item = Id> {
    let selected = record.selected.iter();
    let enforced = selected.filter(|gate| gate.mode == GateMode::Enforce);
    enforced.map(|gate| (gate.uid.clone(), gate.generation))
}

fn is_open(record: &GateRecord, hook: Hook, version: &str) -> bool {
    let mut gates = record.gates.iter();
    gates.any(|gate| gate.open && gate.hook == hook && gate.version == version)
}

/// Whether the hook comes before the step of the workers, or before that of the control plane. `None` for a hook that gates never hold.
fn is_of_workers(hook: Hook) -> Option<bool> {
    match hook {
        Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade => Some(false),
        Hook::AfterControlPlaneUpgrade | Hook::BeforeWorkersUpgrade => Some(true),
        _ => None,
    }
}

/// Whether an open gate closes again while its checks are not proven. Others stay open once the control plane has the version.
fn closes_again(record: &GateRecord, hook: Hook, version: &str) -> bool {
    let is_of_hop = record.hop.as_deref() == Some(version);
    is_of_hop && hook != Hook::AfterControlPlaneUpgrade
}

/// Times since which an object was true, and since which an image ran.
#[derive(Clone, Copy)]
struct Since {
    object: u64,
    agent: u64,
}

/// Returns the versions that an established definition serves.
fn served(servers: &Servers) -> Vec<String> {
    let Some(found) = servers.get(&definition()) else {
        return Vec::new();
    };
    let mut conditions = found["status"]["conditions"].as_array().into_iter().flatten();
    if !conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True") {
        return Vec::new();
    }
    let versions = found["spec"]["versions"].as_array().into_iter().flatten();
    let served = versions.filter(|version| version["served"] == true);
    served
        .filter_map(|version| version["name"].as_str())
        .map(str::to_owned)
        .collect()
}

/// Returns the version that the Backend reports for its current spec.
fn reported(servers: &Servers) -> Option<&str> {
    let found = servers.get(&backend())?;
    let status = &found["status"];
    let is_current = status["observedGeneration"] == found["metadata"]["generation"];
    status["version"].as_str().filter(|_| is_current)
}

/// Judges a held hook of a Cluster with these labels. Audit gates hold nothing, and no gate holds a hook that is not of an upgrade.
pub(crate) fn judge_hold(servers: &Servers, cached: &Servers, call: &HookCall<'_>, labels: &Value) {
    let said = format!("{:?} {}", call.hook, call.version);
    assert!(is_of_workers(call.hook).is_some(), "held: {said} by a gate");
    let clusters = [servers, cached]
        .into_iter()
        .filter_map(|known| known.get(&cluster()));
    let labels: Vec<&Value> = clusters
        .map(|cluster| &cluster["metadata"]["labels"])
        .chain([labels])
        .collect();
    let selects =
        of(cached, "upgradegates").any(|(_, gate)| labels.iter().any(|labels| enforces(gate, labels)));
    let lists = [servers, cached]
        .into_iter()
        .filter_map(record)
        .any(|record| enforced(&record).next().is_some());
    assert!(selects || lists, "audit: {said} is held without an Enforce gate");
}

impl Oracle {
    /// Notes the state of the world at this time.
    pub(crate) fn observe(&mut self, servers: &Servers, addons: &Addons, now: u64) {
        if let Some(version) = addons.deployed(servers) {
            self.deployed_at.insert(version.to_owned(), now);
        }
        self.served_at
            .extend(served(servers).into_iter().map(|version| (version, now)));
        if let Some(version) = reported(servers) {
            self.reported_at.insert(version.to_owned(), now);
        }
        if let Some(version) = addons.running(servers) {
            self.running_at.insert(version.to_owned(), now);
        }
        for (_, gate) in of(servers, "upgradegates") {
            let seen = self.gates.entry(id_of(gate));
            seen.or_insert_with(|| gate["spec"].clone());
        }
        let labels = servers
            .get(&cluster())
            .map_or(&Value::Null, |cluster| &cluster["metadata"]["labels"]);
        if self.labels.0 != *labels {
            self.labels = (labels.clone(), now);
        }
    }

    /// The Cluster was created again. Answers about the earlier one are no evidence, and neither is its workload cluster.
    pub(crate) fn forget(&mut self) {
        self.deployed_at.clear();
        self.served_at.clear();
        self.reported_at.clear();
        self.running_at.clear();
        self.proofs.clear();
    }

    /// Judges the record that a leader has written. `before` is the record that it replaced.
    pub(crate) fn judge_write(
        &mut self,
        servers: &Servers,
        leader: &Leader,
        before: Option<&GateRecord>,
        now: u64,
    ) {
        let Some(cluster) = servers.get(&cluster()) else {
            return;
        };
        let current = record(servers).filter(|record| cluster["metadata"]["uid"] == *record.cluster_uid);
        let Some(record) = current else { return };
        let before = before.filter(|before| before.cluster_uid == record.cluster_uid);
        let [taken, _] = versions_at(servers, &control_plane());
        let [taken_by_workers, _] = versions_at(servers, &worker());
        for gate in record.gates.iter().filter(|gate| gate.open) {
            let Some(is_of_workers) = is_of_workers(gate.hook) else {
                continue;
            };
            let version = VERSIONS.iter().position(|known| *known == gate.version);
            let taken = if is_of_workers { taken_by_workers } else { taken };
            // The step was made.
            if version.is_none_or(|version| taken >= version) {
                continue;
            }
            let key = (gate.hook, gate.version.clone());
            let opens = !before.is_some_and(|before| is_open(before, gate.hook, &gate.version));
            let start = if opens {
                self.proofs.insert(key.clone(), BTreeSet::new());
                self.judge_selected(servers, leader, &record, gate);
                leader.confirmed_at.unwrap_or(now)
            } else if closes_again(&record, gate.hook, &gate.version) {
                leader.began
            } else {
                continue;
            };
            let since = Since {
                object: start,
                agent: start.min(self.counted_at),
            };
            for id in enforced(&record) {
                if self.proofs.get(&key).is_some_and(|proofs| proofs.contains(&id)) {
                    continue;
                }
                assert!(
                    self.is_true(&id, &record, gate, since),
                    "early: {:?} {} opens at {now}, with reads since {start}, but {id:?} was not true; deployed {:?}, running {:?}",
                    gate.hook,
                    gate.version,
                    self.deployed_at,
                    self.running_at
                );
                self.proofs.entry(key.clone()).or_default().insert(id);
            }
        }
    }

    /// Whether all checks of a gate were true for one row.
    fn is_true(&self, id: &Id, record: &GateRecord, gate: &Gate, since: Since) -> bool {
        let Some(spec) = self.gates.get(id) else {
            return false;
        };
        let is_of_workers = is_of_workers(gate.hook) == Some(true);
        if spec["before"] == "Workers" && !is_of_workers {
            return true;
        }
        // A gate behind the step of the control plane may open in the write that moves on to the next hop, or by the row of that hop.
        let hop = record.hop.as_deref().filter(|_| is_of_workers);
        [Some(gate.version.as_str()), hop]
            .into_iter()
            .flatten()
            .any(|version| self.is_true_for(spec, version, since))
    }

    fn is_true_for(&self, spec: &Value, version: &str, since: Since) -> bool {
        let minor = version.trim_start_matches('v').rsplit_once('.');
        let minor = minor.map(|(minor, _)| minor).unwrap_or_default();
        let rows = spec["versions"].as_array().into_iter().flatten();
        let mut rows = rows.filter(|row| row["kubernetes"] == minor);
        rows.any(|row| {
            let mut checks = spec["checks"].as_array().into_iter().flatten();
            checks.all(|check| {
                let key = check["versionKey"].as_str().unwrap_or_default();
                let version = row["values"][key].as_str().unwrap_or_default();
                let (times, since) = match check["object"]["kind"].as_str() {
                    Some("DaemonSet") => (&self.running_at, since.agent),
                    Some("CustomResourceDefinition") => (&self.served_at, since.object),
                    Some("Backend") => (&self.reported_at, since.object),
                    _ => (&self.deployed_at, since.object),
                };
                times.get(version).is_some_and(|at| *at >= since)
            })
        })
    }

    /// Judges which gates an opening gate covers.
    fn judge_selected(&self, servers: &Servers, leader: &Leader, record: &GateRecord, gate: &Gate) {
        let (labels, changed_at) = &self.labels;
        if leader
            .confirmed_at
            .is_none_or(|confirmed_at| *changed_at >= confirmed_at)
        {
            return;
        }
        for (place, cached) in of(&leader.saw, "upgradegates") {
            let id = id_of(cached);
            let is_current = servers.get(place).is_some_and(|current| id_of(current) == id);
            let is_listed = enforced(record).any(|listed| listed == id);
            assert!(
                is_listed || !is_current || !enforces(cached, labels),
                "missing: {:?} {} opens without {id:?}",
                gate.hook,
                gate.version
            );
        }
    }

    /// Judges a released hook of a Cluster with these labels. `cached` has the caches of the replica.
    pub(crate) fn judge_release(
        &self,
        servers: &Servers,
        cached: &Servers,
        call: &HookCall<'_>,
        labels: &Value,
    ) {
        if is_of_workers(call.hook).is_none() {
            return;
        }
        let version = match (call.hook, call.first_step) {
            (Hook::BeforeClusterUpgrade, Some(step)) => step,
            _ => call.version,
        };
        let said = format!("{:?} {version} of generation {}", call.hook, call.generation);
        let record = record(servers);
        for (_, gate) in of(cached, "upgradegates").filter(|(_, gate)| enforces(gate, labels)) {
            let id = id_of(gate);
            let is_listed = record
                .as_ref()
                .is_some_and(|record| enforced(record).any(|listed| listed == id));
            assert!(is_listed, "unlisted: {said} is released without {id:?}");
        }
        let Some(record) = record.filter(|record| enforced(record).next().is_some()) else {
            return;
        };
        let is_current =
            record.cluster_uid == call.uid && record.observed_cluster_generation == call.generation;
        assert!(
            is_current && is_open(&record, call.hook, version),
            "stale: {said} is released by a record of generation {} with {:?}",
            record.observed_cluster_generation,
            record.gates
        );
        let proofs = self.proofs.get(&(call.hook, version.to_owned()));
        let is_proven = proofs.is_some_and(|proofs| {
            !closes_again(&record, call.hook, version) || enforced(&record).all(|id| proofs.contains(&id))
        });
        assert!(
            is_proven,
            "early: {said} is released, but only {proofs:?} were true"
        );
    }
}
