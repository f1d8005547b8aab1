//! Decides one hook call by the UpgradeGates that select its Cluster, and by the record in its ClusterUpgrade.

use std::{collections::BTreeMap, time::Duration};

use sluice_crds::{
    foreign::Cluster,
    lifecycle::{ClusterUpgrade, GATE_SCHEMA, GateMode, GateRecord, UpgradeGate},
    run::Hook,
};

use super::{Clause, Decision, held, record::RecordFields, said};
use crate::{
    cache::stores::{Found, FoundGate},
    gate::{hook_call::HookCall, retry::RetryPolicy},
    gates::{MAX_GATES, selection::selects},
    reasons::{CallReason, Hold, HoldReason},
};

/// Whether gates hold calls of a hook.
#[must_use]
pub const fn is_gated(hook: Hook) -> bool {
    matches!(
        hook,
        Hook::BeforeClusterUpgrade
            | Hook::BeforeControlPlaneUpgrade
            | Hook::AfterControlPlaneUpgrade
            | Hook::BeforeWorkersUpgrade
    )
}

/// Knowledge of a replica about the gates of the Cluster of a call.
#[derive(Debug, Clone)]
pub enum GateKnowledge<'a> {
    /// Gates may exist that the replica lacks. The message names the missing list or the missing rule.
    Unlisted(String),
    /// No Enforce gate selects the Cluster, and its ClusterUpgrade lists none.
    Ungated,
    /// Gates may hold the Cluster.
    Gated(CachedGates<'a>),
}

/// Facts about the gates of a Cluster from the cache. All of them may be outdated.
#[derive(Debug, Clone, Default)]
pub struct CachedGates<'a> {
    /// Hold for an object or a label without which the selecting gates are unknown.
    pub unknown: Option<Hold<HoldReason>>,
    /// Record in the status of its ClusterUpgrade.
    pub record: Option<&'a GateRecord>,
    /// Enforce gates that select the Cluster by the labels of the call or of the cache, by name.
    pub selecting: Vec<&'a UpgradeGate>,
    /// Whether no replica leads, so that nothing updates the record.
    pub leaderless: bool,
    /// Time that the Cluster was held without progress, if that is long; see [`stuck`](crate::gate::stuck).
    pub still: Duration,
}

/// Objects of the cache that show the gates of a Cluster.
#[derive(Debug, Clone, Copy)]
pub struct GateObjects<'a> {
    /// All gates of its namespace, by name.
    pub gates: &'a [FoundGate],
    /// Its ClusterUpgrade.
    pub upgrade: &'a Found<ClusterUpgrade>,
    /// The Cluster itself; needed only if its namespace has gates.
    pub cluster: &'a Found<Cluster>,
}

impl<'a> GateKnowledge<'a> {
    /// Returns the knowledge of a synced cache about the Cluster of a call. The labels of the call are parsed only if its namespace has
    /// Enforce gates.
    ///
    /// A status without a readable record does not say that it lists no gate, and neither does a record of another schema.
    #[must_use]
    pub fn of(call: &HookCall<'_>, objects: GateObjects<'a>) -> Self {
        let (unknown, selecting) = selecting(call, objects);
        let upgrade = objects.upgrade.as_ref().ok().and_then(Option::as_deref);
        let status = upgrade.and_then(|upgrade| upgrade.status.as_ref());
        let record = status.and_then(|status| status.upgrade.as_ref());
        let may_list_gates = match record {
            Some(record) => record.schema != GATE_SCHEMA || lists_enforced(record),
            None => status.is_some(),
        };
        if unknown.is_none() && selecting.is_empty() && !may_list_gates {
            return Self::Ungated;
        }
        Self::Gated(CachedGates {
            unknown,
            record,
            selecting,
            ..CachedGates::default()
        })
    }
}

/// Message of the hold of a call whose labels cannot be parsed.
const UNREADABLE_LABELS: &str = "cannot read cluster.metadata.labels of the call: it needs to be an object of texts with unique keys, of \
                                 at most 64 KiB";

/// Whether a record lists an Enforce gate.
pub(in crate::gate) fn lists_enforced(record: &GateRecord) -> bool {
    let mut modes = record.selected.iter().map(|gate| gate.mode);
    modes.any(|mode| mode == GateMode::Enforce)
}

/// Returns the Enforce gates that select the Cluster of a call, and the hold if others may select it as well.
fn selecting<'a>(
    call: &HookCall<'_>,
    objects: GateObjects<'a>,
) -> (Option<Hold<HoldReason>>, Vec<&'a UpgradeGate>) {
    let GateObjects {
        gates,
        upgrade,
        cluster,
    } = objects;
    let mut gates_of_namespace = gates.iter();
    let gate = gates_of_namespace.find_map(|gate| gate.as_ref().err());
    let undecodable = gate.or(upgrade.as_ref().err());
    let mut unknown = undecodable.map(|object| object.hold().of_call());
    let decoded = gates.iter().filter_map(|gate| gate.as_deref().ok());
    let mut enforced = decoded
        .filter(|gate| gate.spec.mode == GateMode::Enforce)
        .peekable();
    if enforced.peek().is_none() {
        return (unknown, Vec::new());
    }
    if let Err(cluster) = cluster {
        unknown = unknown.or_else(|| Some(cluster.hold().of_call()));
    }
    let none = BTreeMap::new();
    let cached = cluster.as_ref().ok().and_then(Option::as_deref);
    let cached = cached.map(|cluster| cluster.metadata.labels.as_ref().unwrap_or(&none));
    let of_call = call.parsed_labels();
    if of_call.is_none() {
        unknown = unknown.or_else(|| Some(held(CallReason::GatesNotObserved, UNREADABLE_LABELS)));
    }
    let is_selecting = |gate: &&UpgradeGate| {
        let mut labels = of_call.iter().chain(cached);
        labels.any(|labels| selects(gate, labels))
    };
    (unknown, enforced.filter(is_selecting).collect())
}

/// Decides one hook call by the gates of its Cluster, from the knowledge of this replica.
///
/// A cache that lags holds the call if the record lacks a gate of the cache. A gate that the cache lacks is in the record, which a read
/// confirms; see [`confirmation`](crate::gate::confirmation).
#[must_use]
pub fn decide_by_gates(call: &HookCall<'_>, knowledge: &GateKnowledge<'_>, policy: &RetryPolicy) -> Decision {
    decide_by(&CLAUSES, call, knowledge, policy)
}

fn decide_by(
    clauses: &[Clause<GateObjection>],
    call: &HookCall<'_>,
    knowledge: &GateKnowledge<'_>,
    policy: &RetryPolicy,
) -> Decision {
    if !is_gated(call.hook) {
        return Decision::Release;
    }
    let (hold, still) = match knowledge {
        GateKnowledge::Ungated => (None, Duration::ZERO),
        GateKnowledge::Unlisted(message) => {
            (Some(held(CallReason::Starting, message.as_str())), Duration::ZERO)
        }
        GateKnowledge::Gated(gates) => {
            let objection = clauses.iter().find_map(|clause| (clause.objection)(call, gates));
            (objection, gates.still)
        }
    };
    let Some(hold) = hold else {
        return Decision::Release;
    };
    let still = Some(still).filter(|_| !hold.reason.is_passing());
    Decision::held(&hold, policy.retry_after(call.uid, still.unwrap_or_default()))
}

/// Objection to a release by the gates of a Cluster.
type GateObjection = fn(&HookCall<'_>, &CachedGates<'_>) -> Option<Hold<HoldReason>>;

/// All conditions of a release by the gates of a Cluster. Without a record, all but the first two are met.
const CLAUSES: [Clause<GateObjection>; 11] = [
    Clause {
        name: "the gates that select the Cluster are known",
        objection: |_, gates| gates.unknown.clone(),
    },
    Clause {
        name: "there is a record",
        objection: unrecorded,
    },
    Clause {
        name: "the schema is known",
        objection: |_, gates| gates.fields()?.of_another_schema(),
    },
    Clause {
        name: "the record is of this Cluster",
        objection: |call, gates| gates.fields()?.of_another_cluster(call),
    },
    Clause {
        name: "the record has observed the Cluster's generation",
        objection: |call, gates| gates.fields()?.behind_the_cluster(call),
    },
    Clause {
        name: "the call is about the generation of the record",
        objection: |call, gates| gates.fields()?.ahead_of_the_call(call),
    },
    Clause {
        name: "the record has observed every Enforce gate that selects the Cluster",
        objection: unobserved,
    },
    Clause {
        name: "the record is for the target",
        objection: |call, gates| gates.fields()?.of_another_target(call),
    },
    Clause {
        name: "the version is planned",
        objection: |call, gates| gates.fields()?.unplanned(call),
    },
    Clause {
        name: "the gate is open",
        objection: |call, gates| gates.fields()?.closed(call),
    },
    Clause {
        name: "a replica leads",
        objection: |_, gates| gates.leaderless.then(|| said(CallReason::NoLeader)),
    },
];

impl<'a> CachedGates<'a> {
    fn fields(&self) -> Option<RecordFields<'a>> {
        self.record.map(RecordFields::from)
    }
}

fn unrecorded(_: &HookCall<'_>, gates: &CachedGates<'_>) -> Option<Hold<HoldReason>> {
    gates.record.is_none().then(|| said(CallReason::RecordNotFound))
}

fn unobserved(call: &HookCall<'_>, gates: &CachedGates<'_>) -> Option<Hold<HoldReason>> {
    let record = gates.record?;
    let mut selecting = gates.selecting.iter();
    let gate = selecting.find(|gate| !has_observed(record, gate))?;
    let closed = || {
        // A record of too many gates lists only some of them, and its hold says so.
        let is_full = record.selected.len() >= MAX_GATES;
        gates.fields().filter(|_| is_full)?.closed(call)
    };
    let unlisted = || {
        let name = gate.metadata.name.as_deref().unwrap_or_default();
        let message = format!("waiting for Sluice to observe the latest edit of UpgradeGate {name}");
        held(CallReason::GatesNotObserved, message)
    };
    Some(closed().unwrap_or_else(unlisted))
}

/// Whether the record lists this generation of an Enforce gate.
fn has_observed(record: &GateRecord, gate: &UpgradeGate) -> bool {
    let meta = &gate.metadata;
    record.selected.iter().any(|listed| {
        meta.uid.as_deref() == Some(listed.uid.as_str())
            && meta.generation == Some(listed.generation)
            && listed.mode == GateMode::Enforce
    })
}

#[cfg(test)]
mod tests;
