//! Decisions and holds by the gates of Clusters.

use std::{sync::Arc, time::Duration};

use sluice_crds::{
    lifecycle::{ClusterUpgrade, GateRecord},
    run::HeldGate,
};

use super::{HoldSnapshot, Index, Pace};
use crate::{
    cache::{
        stored_kind::StoredKind,
        stores::{Found, GateKinds, Stores},
    },
    gate::{
        decision::{Decision, GateKnowledge, GateObjects, decide_by_gates, is_gated, lists_enforced},
        hook_call::HookCall,
        stuck::{Held, ProgressHash},
    },
    gates::record::of_cluster,
    reasons::{Class, Hold},
    summary::DEADLINE_EXCEEDED,
    upgrade::record::class_of,
};

impl<S: Stores, N: Fn(&str) -> Option<Hold>> Index<'_, S, N> {
    /// Decides a call by the gates of its Cluster. In a namespace without gates that is a lookup of its gates, and one of the ClusterUpgrade,
    /// which a release reads in any case.
    pub(super) fn decide_by_gates(&self, call: &HookCall<'_>, pace: &Pace, leaderless: bool) -> Decision {
        if !is_gated(call.hook) {
            return Decision::Release;
        }
        // Checked first: objects listed after this check may be missing below.
        let are_clusters_listed = self.stores.is_listed(StoredKind::Cluster);
        let unlisted = |message| decide_by_gates(call, &GateKnowledge::Unlisted(message), &pace.policy);
        match self.stores.gate_kinds() {
            GateKinds::Off => return Decision::Release,
            GateKinds::Unlisted(message) => return unlisted(message),
            GateKinds::Listed => {}
        }
        let (namespace, name) = (call.namespace, call.name);
        let gates = self.stores.gates_of(namespace);
        let cluster = if gates.is_empty() {
            Ok(None)
        } else if are_clusters_listed {
            self.cluster(namespace, name)
        } else {
            return unlisted(StoredKind::Cluster.waits());
        };
        let upgrade = self.upgrade(namespace, name);
        let objects = GateObjects {
            gates: &gates,
            upgrade: &upgrade,
            cluster: &cluster,
        };
        let mut knowledge = GateKnowledge::of(call, objects);
        if let GateKnowledge::Gated(cached) = &mut knowledge {
            cached.leaderless = leaderless;
            cached.still = self.still(call, pace);
        }
        decide_by_gates(call, &knowledge, &pace.policy)
    }

    /// Returns the time without progress of a Cluster that was stuck at the last count.
    fn still(&self, call: &HookCall<'_>, pace: &Pace) -> Duration {
        let still = pace.stuck.and_then(|stuck| {
            let held = self.held(call.namespace, call.name)?;
            (held.uid == call.uid).then(|| stuck.still(held.standing, pace.now))
        });
        still.unwrap_or_default()
    }

    /// Whether a release of a call depends on the ClusterUpgrade, also if the cache shows neither the gate nor the object.
    pub(in crate::gate) fn needs_upgrade(&self, call: &HookCall<'_>) -> bool {
        is_gated(call.hook) && self.stores.gate_kinds() != GateKinds::Off
    }

    /// Returns the progress of the Cluster of a call toward its gates, if they hold it.
    pub(super) fn gate_progress(&self, call: &HookCall<'_>) -> Option<ProgressHash> {
        let upgrade = self.listed_upgrade(call.namespace, call.name)?;
        holding(&upgrade, call.uid).map(ProgressHash::of_gates)
    }

    /// Returns the state in which the gates of a Cluster hold it.
    pub(super) fn held_by_gates(&self, namespace: &str, name: &str) -> Option<Held> {
        let upgrade = self.listed_upgrade(namespace, name)?;
        let uid = self.uid(namespace, name)?;
        let standing = holding(&upgrade, &uid).map(ProgressHash::of_gates)?;
        Some(Held {
            standing,
            recorded: true,
            uid,
        })
    }

    /// Adds the gate that holds a Cluster by its ClusterUpgrade to a snapshot.
    pub(super) fn add_gates(&self, namespace: &str, name: &str, snapshot: &mut HoldSnapshot) {
        let Some(upgrade) = self.listed_upgrade(namespace, name) else {
            return;
        };
        let uid = self.uid(namespace, name).unwrap_or_default();
        let Some((record, status)) = holding(&upgrade, &uid).zip(upgrade.status.as_ref()) else {
            return;
        };
        // Cluster API does not call for a gate that it opens itself.
        let is_called = |class: Class| !class.is_uncalled();
        let closed = record.gates.iter().find(|gate| !gate.open);
        let closed = closed.filter(|gate| class_of(gate).is_none_or(is_called));
        let held = closed.zip(status.since.clone()).map(|(gate, since)| HeldGate {
            hook: gate.hook,
            version: gate.version.clone(),
            since,
            cause: None,
        });
        snapshot.gates.extend(held);
        let mut conditions = status.conditions.iter();
        snapshot.past_deadline |=
            conditions.any(|condition| condition.type_ == DEADLINE_EXCEEDED && condition.status == "True");
    }

    fn upgrade(&self, namespace: &str, name: &str) -> Found<ClusterUpgrade> {
        self.stores.found(Some(namespace), name)
    }

    /// Returns the ClusterUpgrade of a Cluster, if gates are known.
    fn listed_upgrade(&self, namespace: &str, name: &str) -> Option<Arc<ClusterUpgrade>> {
        if self.stores.gate_kinds() == GateKinds::Listed {
            self.upgrade(namespace, name).ok().flatten()
        } else {
            None
        }
    }

    /// Returns the UID of a cached Cluster.
    fn uid(&self, namespace: &str, name: &str) -> Option<String> {
        match self.cluster(namespace, name) {
            Ok(cluster) => cluster?.metadata.uid.clone(),
            Err(undecodable) => undecodable.metadata.uid.clone(),
        }
    }
}

/// Returns the open record of the Cluster with this UID, if Enforce gates hold the Cluster by it.
fn holding<'a>(upgrade: &'a ClusterUpgrade, uid: &str) -> Option<&'a GateRecord> {
    let status = upgrade.status.as_ref()?;
    let record = of_cluster(status.upgrade.as_ref(), uid)?;
    let is_closed = record.gates.iter().any(|gate| !gate.open);
    (record.outcome.is_none() && is_closed && lists_enforced(record)).then_some(record)
}
