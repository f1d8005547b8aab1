//! Status of an UpgradeGate: whether it is valid, how many Clusters it selects and holds, and whether their upgrades depend on it.
//!
//! It is computed from the ClusterUpgrades, and no decision depends on it.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;
use serde_json::json;
use sluice_crds::{
    foreign::Cluster,
    lifecycle::{
        CheckState, ClusterUpgrade, ClusterUpgradeStatus, GateMode, SelectedGate, UpgradeGate,
        UpgradeGateStatus,
    },
};

use super::{
    MAX_GATES,
    compiled::compile,
    selection::selects,
    status::{HELD, condition},
};
use crate::{
    protocol::{Key, Server, Write},
    reasons::GateReason,
};

/// Type of the condition that tells whether the gate is valid.
const ACCEPTED: &str = "Accepted";

/// Type of the condition that tells whether upgrades of all selected Clusters depend on this generation of the gate.
const IN_FORCE: &str = "InForce";

/// Maximum number of Clusters that a message names.
const NAMED: usize = 12;

/// Cluster of the namespace of a gate.
#[derive(Debug, Clone)]
pub struct GatedCluster {
    /// The Cluster.
    pub cluster: Arc<Cluster>,
    /// Its ClusterUpgrade, if it exists and can be decoded.
    pub upgrade: Option<Arc<ClusterUpgrade>>,
}

/// Returns the write of the status of `gate`, if it differs. `clusters` are all Clusters of its namespace. `unasked` is the reason for which
/// Cluster API calls no hook for this namespace, if so.
#[must_use]
pub fn write(
    gate: &UpgradeGate,
    clusters: &[GatedCluster],
    unasked: Option<&str>,
    now: Timestamp,
) -> Option<Write> {
    let nothing = UpgradeGateStatus::default();
    let current = gate.status.as_ref().unwrap_or(&nothing);
    let next = status(gate, current, clusters, unasked, now);
    write_if_it_differs(gate, current, &next)
}

/// Returns the number of Clusters whose upgrade is held.
#[must_use]
pub fn held(clusters: &[GatedCluster]) -> usize {
    let is_counted = |found: &&GatedCluster| {
        let status = found.upgrade.as_ref().and_then(|upgrade| upgrade.status.as_ref());
        found.cluster.metadata.deletion_timestamp.is_none() && status.is_some_and(is_held)
    };
    clusters.iter().filter(is_counted).count()
}

/// Returns the write of the status of a gate beyond the first [`MAX_GATES`] of its namespace, if it differs. Its number of selected Clusters
/// stays as it is. `held` is the number of [held] Clusters of the namespace: an Enforce gate counts as holding all of them, because a tenant
/// chooses the number of gates that would have to be compared with each.
#[must_use]
pub fn write_uncounted(gate: &UpgradeGate, held: usize, now: Timestamp) -> Option<Write> {
    let nothing = UpgradeGateStatus::default();
    let current = gate.status.as_ref().unwrap_or(&nothing);
    let message = format!(
        "namespace {} has more than {MAX_GATES} UpgradeGates, so all of them hold; delete some, or merge gates with the same clusterSelector",
        gate.namespace().unwrap_or_default()
    );
    let accepted = ("False", GateReason::ChecksTooMany.as_str(), message);
    let holding = match gate.spec.mode {
        GateMode::Audit => 0,
        GateMode::Enforce => held,
    };
    let next = UpgradeGateStatus {
        observed_generation: gate.metadata.generation,
        holding: i64::try_from(holding).ok(),
        conditions: conditions(gate, current, accepted, not_accepted(), now),
        ..current.clone()
    };
    write_if_it_differs(gate, current, &next)
}

fn write_if_it_differs(
    gate: &UpgradeGate,
    current: &UpgradeGateStatus,
    next: &UpgradeGateStatus,
) -> Option<Write> {
    if next == current {
        return None;
    }
    let namespace = gate.namespace();
    let key = Key::of::<UpgradeGate>(Server::Management, namespace.as_deref(), &gate.name_any());
    let metadata = &gate.metadata;
    let patch = json!({
        "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version}, "status": next,
    });
    Some(Write::patch_status(
        key,
        patch,
        "status of the UpgradeGate differs",
    ))
}

/// Returns the next status of a gate. Other conditions stay.
fn status(
    gate: &UpgradeGate,
    current: &UpgradeGateStatus,
    clusters: &[GatedCluster],
    unasked: Option<&str>,
    now: Timestamp,
) -> UpgradeGateStatus {
    let alive = |found: &&GatedCluster| found.cluster.metadata.deletion_timestamp.is_none();
    let alive: Vec<&GatedCluster> = clusters.iter().filter(alive).collect();
    let is_selected = |found: &&GatedCluster| selects(gate, found.cluster.labels());
    let selected: Vec<&GatedCluster> = alive.iter().copied().filter(is_selected).collect();
    let holding = alive.iter().filter(|found| holds(gate, found)).count();
    let (accepted, in_force) = match compile(gate) {
        Err(invalid) => {
            let said = ("False", invalid.reason.as_str(), invalid.message.clone());
            (said, not_accepted())
        }
        Ok(_) => (
            ("True", "Valid", String::new()),
            in_force(gate, &selected, unasked),
        ),
    };
    UpgradeGateStatus {
        observed_generation: gate.metadata.generation,
        selected: i64::try_from(selected.len()).ok(),
        holding: i64::try_from(holding).ok(),
        conditions: conditions(gate, current, accepted, in_force, now),
    }
}

/// Status, reason and message of a condition.
type Said = (&'static str, &'static str, String);

/// Returns condition `InForce` of a gate that is not accepted.
fn not_accepted() -> Said {
    ("False", "NotAccepted", "the gate is not valid".to_owned())
}

/// Returns the conditions of a gate: ours and those of others.
fn conditions(
    gate: &UpgradeGate,
    current: &UpgradeGateStatus,
    accepted: Said,
    in_force: Said,
    now: Timestamp,
) -> Vec<Condition> {
    let generation = gate.metadata.generation;
    let ours = [
        since_changed(current, ACCEPTED, accepted, generation, now),
        since_changed(current, IN_FORCE, in_force, generation, now),
    ];
    let is_other = |condition: &&Condition| ![ACCEPTED, IN_FORCE].contains(&condition.type_.as_str());
    let others = current.conditions.iter().filter(is_other).cloned();
    ours.into_iter().chain(others).collect()
}

/// Returns a condition, with the time of its last change of status.
fn since_changed(
    current: &UpgradeGateStatus,
    type_: &str,
    (status, reason, message): Said,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    let mut conditions = current.conditions.iter();
    let before = conditions.find(|condition| condition.type_ == type_ && condition.status == status);
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        observed_generation: generation,
        last_transition_time: before.map_or(Time(now), |before| before.last_transition_time.clone()),
        reason: reason.to_owned(),
        message,
    }
}

/// Returns status, reason and message of condition `InForce` of a valid gate.
fn in_force(gate: &UpgradeGate, selected: &[&GatedCluster], unasked: Option<&str>) -> Said {
    if let Some(unasked) = unasked {
        return ("False", "NamespaceNotSelected", unasked.to_owned());
    }
    let without_topology = |found: &&&GatedCluster| found.cluster.spec.topology.is_none();
    let unheld = names(selected.iter().filter(without_topology));
    if !unheld.is_empty() {
        let message =
            format!("Cluster API calls no hook for Clusters without spec.topology, so none holds: {unheld}");
        return ("False", "NoTopology", message);
    }
    let unobserved = names(selected.iter().filter(|found| !lists(gate, found)));
    if !unobserved.is_empty() {
        let message = format!("waiting for the ClusterUpgrades of {unobserved} to list this generation");
        return ("False", "NotObserved", message);
    }
    ("True", "Listed", String::new())
}

/// Returns the names of these Clusters; of many the first ones.
fn names<'a>(clusters: impl Iterator<Item = &'a &'a GatedCluster>) -> String {
    let mut names: Vec<String> = clusters.map(|found| found.cluster.name_any()).collect();
    names.sort_unstable();
    if names.len() > NAMED {
        names.truncate(NAMED);
        return format!("{} and more", names.join(", "));
    }
    names.join(", ")
}

/// Whether the record of a Cluster lists this generation of the gate.
fn lists(gate: &UpgradeGate, found: &GatedCluster) -> bool {
    let is_it = |listed: &SelectedGate| {
        Some(&listed.uid) == gate.metadata.uid.as_ref() && Some(listed.generation) == gate.metadata.generation
    };
    let status = found.upgrade.as_ref().and_then(|upgrade| upgrade.status.as_ref());
    let record = status.and_then(|status| status.upgrade.as_ref());
    record.is_some_and(|record| {
        Some(&record.cluster_uid) == found.cluster.metadata.uid.as_ref() && record.selected.iter().any(is_it)
    })
}

/// Whether the gate holds the upgrade of a Cluster. While the Cluster is held, so does a gate of its record without a judged check: an
/// invalid one, and each of too many.
fn holds(gate: &UpgradeGate, found: &GatedCluster) -> bool {
    let name = gate.name_any();
    let Some(status) = found.upgrade.as_ref().and_then(|upgrade| upgrade.status.as_ref()) else {
        return false;
    };
    if gate.spec.mode != GateMode::Enforce || !is_held(status) {
        return false;
    }
    let by = status.held_by.as_deref().unwrap_or_default();
    let is_named = by.split('/').next() == Some(name.as_str());
    let is_it = |listed: &SelectedGate| Some(&listed.uid) == gate.metadata.uid.as_ref();
    let mut listed = status.upgrade.iter().flat_map(|record| &record.selected);
    let checks = status.upgrade.iter().flat_map(|record| &record.checks);
    let mut own = checks.filter(|check| check.gate == name).peekable();
    let is_unjudged = own.peek().is_none() && listed.any(is_it);
    is_named || is_unjudged || own.any(|check| check.state != CheckState::Proven)
}

/// Whether a gate holds the upgrade of the Cluster with this status.
fn is_held(status: &ClusterUpgradeStatus) -> bool {
    condition(status, HELD).is_some_and(|held| held.status == "True")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_000_000).unwrap()
    }

    fn gate() -> UpgradeGate {
        let gate = json!({
            "apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "UpgradeGate",
            "metadata": {"name": "cni", "namespace": "team-a", "uid": "gate", "generation": 3, "resourceVersion": "7"},
            "spec": {
                "mode": "Enforce", "clusterSelector": {"matchLabels": {"cni": "cilium"}}, "before": "ControlPlane",
                "versions": [{"kubernetes": "1.35", "values": {"image": "v1.18.2"}}],
                "checks": [{
                    "name": "agent", "cluster": "Workload", "container": "agent", "versionKey": "image",
                    "object": {"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": "kube-system", "name": "cilium"},
                }],
            },
        });
        serde_json::from_value(gate).unwrap()
    }

    /// Returns a selected Cluster whose record lists a generation of the gate, and has its check in a state.
    fn cluster(name: &str, generation: i64, state: &str) -> GatedCluster {
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": name, "namespace": "team-a", "uid": name, "labels": {"cni": "cilium"}},
            "spec": {"topology": {"classRef": {"name": "class"}, "version": "v1.35.4"}},
        });
        let held = if state == "Proven" { "False" } else { "True" };
        let upgrade = json!({
            "apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "ClusterUpgrade",
            "metadata": {"name": name, "namespace": "team-a"},
            "status": {
                "conditions": [{
                    "type": "Held", "status": held, "reason": "a", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "upgrade": {
                    "schema": 1, "clusterUID": name, "observedClusterGeneration": 1, "to": "v1.35.4",
                    "selected": [{"name": "cni", "uid": "gate", "generation": generation, "mode": "Enforce"}],
                    "checks": [{"gate": "cni", "name": "agent", "state": state}],
                },
            },
        });
        GatedCluster {
            cluster: Arc::new(serde_json::from_value(cluster).unwrap()),
            upgrade: Some(Arc::new(serde_json::from_value(upgrade).unwrap())),
        }
    }

    fn status_of(found: &mut GatedCluster) -> &mut ClusterUpgradeStatus {
        let upgrade = Arc::make_mut(found.upgrade.as_mut().unwrap());
        upgrade.status.as_mut().unwrap()
    }

    fn written(gate: &UpgradeGate, clusters: &[GatedCluster], unasked: Option<&str>) -> Option<Value> {
        write(gate, clusters, unasked, now()).map(|write| write.body)
    }

    /// Returns status and reason of the condition of this type.
    fn condition_of<'a>(body: &'a Value, type_: &str) -> (&'a str, &'a str) {
        let conditions = body["status"]["conditions"].as_array().unwrap();
        let condition = conditions
            .iter()
            .find(|condition| condition["type"] == type_)
            .unwrap();
        (
            condition["status"].as_str().unwrap(),
            condition["reason"].as_str().unwrap(),
        )
    }

    #[test]
    fn a_status_counts_clusters_and_is_written_once() {
        let clusters = [cluster("a", 3, "Proven"), cluster("b", 3, "Waiting")];
        let mut gate = gate();
        let body = written(&gate, &clusters, None).unwrap();
        assert_eq!(body["metadata"], json!({"uid": "gate", "resourceVersion": "7"}));
        let status = &body["status"];
        assert_eq!(
            (
                &status["observedGeneration"],
                &status["selected"],
                &status["holding"]
            ),
            (&json!(3), &json!(2), &json!(1))
        );
        assert_eq!(condition_of(&body, "Accepted"), ("True", "Valid"));
        assert_eq!(condition_of(&body, "InForce"), ("True", "Listed"));
        gate.status = serde_json::from_value(status.clone()).unwrap();
        assert_eq!(written(&gate, &clusters, None), None);
        let body = written(&gate, &clusters[..1], None).unwrap();
        assert_eq!(body["status"]["holding"], 0);
    }

    #[rstest]
    #[case::of_an_earlier_generation(|found: &mut GatedCluster| *found = cluster("a", 2, "Proven"), "NotObserved")]
    #[case::without_a_record(|found: &mut GatedCluster| found.upgrade = None, "NotObserved")]
    #[case::with_the_record_of_an_earlier_cluster(
        |found: &mut GatedCluster| Arc::make_mut(&mut found.cluster).metadata.uid = Some("again".to_owned()), "NotObserved"
    )]
    #[case::without_topology(
        |found: &mut GatedCluster| Arc::make_mut(&mut found.cluster).spec.topology = None, "NoTopology"
    )]
    fn a_gate_is_not_in_force_for_a_cluster(#[case] edit: fn(&mut GatedCluster), #[case] reason: &str) {
        let mut found = cluster("a", 3, "Proven");
        edit(&mut found);
        let body = written(&gate(), &[found, cluster("b", 3, "Proven")], None).unwrap();
        assert_eq!(condition_of(&body, "InForce"), ("False", reason));
        let message = &body["status"]["conditions"][1]["message"];
        assert!(message.as_str().unwrap().contains('a'), "{message}");
    }

    #[test]
    fn a_gate_of_an_unasked_namespace_is_not_in_force() {
        let clusters = [cluster("a", 3, "Proven")];
        let body = written(&gate(), &clusters, Some("Cluster API calls no hook for team-a")).unwrap();
        assert_eq!(condition_of(&body, "InForce"), ("False", "NamespaceNotSelected"));
    }

    #[test]
    fn an_invalid_gate_is_not_accepted() {
        let mut gate = gate();
        gate.spec.versions[0].kubernetes = "1.35.4".to_owned();
        let body = written(&gate, &[], None).unwrap();
        assert_eq!(condition_of(&body, "Accepted"), ("False", "GateInvalid"));
        assert_eq!(condition_of(&body, "InForce").0, "False");
    }

    #[test]
    fn a_gate_of_too_many_is_not_accepted_and_written_once() {
        let mut gate = gate();
        gate.status = serde_json::from_value(json!({"selected": 3, "holding": 2})).ok();
        let clusters = [cluster("a", 3, "Proven"), cluster("b", 3, "Waiting")];
        let held = held(&clusters);
        assert_eq!(held, 1);
        let body = write_uncounted(&gate, held, now())
            .map(|write| write.body)
            .unwrap();
        assert_eq!(condition_of(&body, "Accepted"), ("False", "ChecksTooMany"));
        assert_eq!(condition_of(&body, "InForce"), ("False", "NotAccepted"));
        let status = &body["status"];
        assert_eq!(status["selected"], 3, "a patch without it would not remove it");
        assert_eq!(status["holding"], 1);
        gate.status = serde_json::from_value(status.clone()).unwrap();
        assert!(write_uncounted(&gate, held, now()).is_none());
        let body = write_uncounted(&gate, 0, now()).map(|write| write.body).unwrap();
        assert_eq!(body["status"]["holding"], 0);
        gate.spec.mode = GateMode::Audit;
        let body = write_uncounted(&gate, held, now())
            .map(|write| write.body)
            .unwrap();
        assert_eq!(body["status"]["holding"], 0, "an Audit gate holds nothing");
    }

    /// Beside the gate whose check is shown, others may hold the Cluster: no check of theirs is judged.
    #[rstest]
    #[case::unproven("gate", &["cni/Waiting"], true)]
    #[case::one_of_two_unproven("gate", &["cni/Proven", "cni/Failed"], true)]
    #[case::proven("gate", &["cni/Proven", "csi/Waiting"], false)]
    #[case::of_too_many_checks("gate", &[], true)]
    #[case::invalid_beside_another("gate", &["csi/Waiting"], true)]
    #[case::not_listed("csi", &[], false)]
    #[case::created_again("earlier", &["csi/Waiting"], false)]
    fn a_gate_of_a_held_cluster_holds_unless_its_checks_are_proven(
        #[case] listed: &str,
        #[case] checks: &[&str],
        #[case] expected: bool,
    ) {
        let mut found = cluster("a", 3, "Waiting");
        let record = status_of(&mut found).upgrade.as_mut().unwrap();
        listed.clone_into(&mut record.selected[0].uid);
        let checks: Vec<Value> = checks
            .iter()
            .map(|check| {
                let (gate, state) = check.split_once('/').unwrap();
                json!({"gate": gate, "name": state.to_lowercase(), "state": state})
            })
            .collect();
        record.checks = serde_json::from_value(json!(checks)).unwrap();
        assert_eq!(holds(&gate(), &found), expected);
        status_of(&mut found).conditions[0].status = "False".to_owned();
        assert!(!holds(&gate(), &found), "the Cluster is not held");
    }

    /// A gate that no longer selects a Cluster may hold its upgrade.
    #[test]
    fn other_clusters_count_only_if_they_are_held() {
        let mut other = cluster("a", 3, "Waiting");
        Arc::make_mut(&mut other.cluster).metadata.labels = None;
        let mut deleted = cluster("b", 3, "Waiting");
        Arc::make_mut(&mut deleted.cluster).metadata.deletion_timestamp = Some(Time(now()));
        let body = written(&gate(), &[other, deleted], None).unwrap();
        assert_eq!(body["status"]["selected"], 0);
        assert_eq!(body["status"]["holding"], 1);
        let mut audit = gate();
        audit.spec.mode = GateMode::Audit;
        let body = written(&audit, &[cluster("a", 3, "Waiting")], None).unwrap();
        assert_eq!(body["status"]["holding"], 0, "an Audit gate holds nothing");
    }
}
