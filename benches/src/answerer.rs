//! Answers hook calls as the product does, without the network: decode, decide, encode.

use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use sluice_core::{
    cache::stores::{Found, FoundGate},
    gate::{
        decision::{CachedCluster, Decision, GateKnowledge, GateObjects, Knowledge, decide, decide_by_gates},
        hook_call::HookCall,
        retry::RetryPolicy,
    },
};
use sluice_crds::{
    lifecycle::{
        Before, ClusterUpgrade, ClusterUpgradeSpec, ClusterUpgradeStatus, GATE_SCHEMA, GateMode, GateRecord,
        SelectedGate, UpgradeGate, UpgradeGateSpec,
    },
    run::{Gate, SCHEMA, UpgradeRecord},
};
use sluice_hooks::{Hook, Reply, Request};

use crate::body;

/// UID of the Cluster of the requests.
const UID: &str = "115fb021-cf2d-4565-ba94-3899fae34981";

/// Most gates of a namespace.
const GATES: u16 = 50;

/// A replica with one cluster in its cache.
#[derive(Debug)]
pub struct Answerer {
    name: &'static str,
    record: UpgradeRecord,
    gates: Vec<FoundGate>,
    upgrade: Found<ClusterUpgrade>,
}

impl Answerer {
    /// Its gate is open.
    #[must_use]
    pub fn releasing() -> Self {
        Self::with_gate("release", true)
    }

    /// Its gate waits for a package.
    #[must_use]
    pub fn holding() -> Self {
        Self::with_gate("hold", false)
    }

    /// Its gate is open, and as many UpgradeGates as a namespace may have select it.
    #[must_use]
    pub fn gated() -> Self {
        let gates: Vec<UpgradeGate> = (0..GATES).map(upgrade_gate).collect();
        let selected = gates.iter().map(|gate| SelectedGate {
            name: gate.metadata.name.clone().unwrap_or_default(),
            uid: gate.metadata.uid.clone().unwrap_or_default(),
            generation: 1,
            mode: GateMode::Enforce,
        });
        let mut upgrade = ClusterUpgrade::new("one", ClusterUpgradeSpec::default());
        let ungated = Self::releasing();
        let record = GateRecord {
            schema: GATE_SCHEMA,
            cluster_uid: UID.to_owned(),
            observed_cluster_generation: 4,
            to: "v1.36.3".to_owned(),
            gates: ungated.record.gates.clone(),
            selected: selected.collect(),
            ..GateRecord::default()
        };
        upgrade.status = Some(ClusterUpgradeStatus {
            upgrade: Some(record),
            ..ClusterUpgradeStatus::default()
        });
        Self {
            name: "release-50-gates",
            gates: gates.into_iter().map(|gate| Ok(Arc::new(gate))).collect(),
            upgrade: Ok(Some(Arc::new(upgrade))),
            ..ungated
        }
    }

    fn with_gate(name: &'static str, open: bool) -> Self {
        let gate = Gate {
            hook: Hook::BeforeClusterUpgrade,
            version: "v1.36.3".to_owned(),
            open,
            reason: if open { "" } else { "PackagesNotReady" }.to_owned(),
            message: if open { "" } else { "waiting for antrea 1.9.0" }.to_owned(),
            overridden_by: None,
        };
        let record = UpgradeRecord {
            schema: SCHEMA,
            cluster_uid: UID.to_owned(),
            observed_cluster_generation: 4,
            observed_bootstrap_generation: 1,
            label: body::LABEL.to_owned(),
            to: "v1.36.3".to_owned(),
            gates: vec![gate],
            ..UpgradeRecord::default()
        };
        Self {
            name,
            record,
            gates: Vec::new(),
            upgrade: Ok(None),
        }
    }

    /// The name in reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The body of the answer; absent when the request cannot be understood.
    #[must_use]
    pub fn answer(&self, request: &[u8]) -> Option<Bytes> {
        let known = CachedCluster {
            record: Some(&self.record),
            bootstrap_generation: Some(1),
            ..CachedCluster::default()
        };
        let request = Request::parse(Hook::BeforeClusterUpgrade, request).ok()?;
        let call = request.call();
        let policy = RetryPolicy::default();
        let decision = match decide(&call, &Knowledge::Managed(known), &policy) {
            Decision::Release => self.decide_by_gates(&call, &policy),
            hold @ Decision::Hold { .. } => hold,
        };
        Some(Reply::decided(call.hook, &decision).to_bytes())
    }

    fn decide_by_gates(&self, call: &HookCall<'_>, policy: &RetryPolicy) -> Decision {
        // Stores return shared objects.
        let gates = self.gates.clone();
        let objects = GateObjects {
            gates: &gates,
            upgrade: &self.upgrade,
            cluster: &Ok(None),
        };
        decide_by_gates(call, &GateKnowledge::of(call, objects), policy)
    }
}

/// A gate that selects the Cluster of the requests.
fn upgrade_gate(number: u16) -> UpgradeGate {
    let label = ("run.tanzu.vmware.com/tkr".to_owned(), body::LABEL.to_owned());
    let spec = UpgradeGateSpec {
        mode: GateMode::Enforce,
        cluster_selector: LabelSelector {
            match_labels: Some([label].into()),
            ..LabelSelector::default()
        },
        before: Before::ControlPlane,
        deadline: None,
        versions: Vec::new(),
        checks: Vec::new(),
    };
    let mut gate = UpgradeGate::new(&format!("gate-{number:02}"), spec);
    gate.metadata.uid = Some(format!("{number:08}-cf2d-4565-ba94-3899fae34981"));
    gate.metadata.generation = Some(1);
    gate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_a_release_and_a_hold() {
        let body = body::of(Hook::BeforeClusterUpgrade, 14_000);
        let answer = |answerer: Answerer| answerer.answer(body.as_bytes()).unwrap();
        assert_eq!(
            answer(Answerer::releasing()),
            r#"{"status":"Success","message":"","retryAfterSeconds":0}"#
        );
        assert_eq!(answer(Answerer::gated()), answer(Answerer::releasing()));
        assert_eq!(
            answer(Answerer::holding()),
            r#"{"status":"Success","message":"PackagesNotReady: waiting for antrea 1.9.0","retryAfterSeconds":1}"#
        );
    }
}
