//! The decision of one hook call: a pure function of the call and of what this replica knows.

use std::time::Duration;

use sluice_crds::run::{Hook, SCHEMA, UpgradeRecord};

use crate::cluster::is_managed;
use crate::gate::hook_call::HookCall;
use crate::gate::retry::{RetryAfter, RetryPolicy};
use crate::reasons::{CallReason, GateReason, Hold, HoldReason};
use crate::server_time::is_overdue;
use crate::upgrade::tkr::tkr_legacy;
use crate::{cache::stored_kind::StoredKind, gate::unsynced::Unsynced};

/// What a hook answers for one cluster, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Go on.
    Release,
    /// Wait, and ask again.
    Hold {
        /// When to ask again.
        retry_after: RetryAfter,
        /// Why.
        reason: HoldReason,
        /// The reason and what is waited for, as the answer carries it.
        message: String,
    },
}

/// What a replica knows about the Cluster of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Knowledge<'a> {
    /// What the replica remembers is no knowledge about the Cluster.
    Unsynced(Unsynced),
    /// The Cluster is not ours.
    Unmanaged,
    /// The Cluster would be ours if it had been resolved, or may be; for how long it was held so, if that is long.
    Unresolved(Hold<HoldReason>, Duration),
    /// The Cluster is ours.
    Managed(CachedCluster<'a>),
}

/// What the index says about a managed Cluster. All of it may be old.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is what one clause looks at")]
pub struct CachedCluster<'a> {
    /// The record of its ClusterBootstrap.
    pub record: Option<&'a UpgradeRecord>,
    /// `metadata.generation` of its ClusterBootstrap; none when there is no ClusterBootstrap.
    pub bootstrap_generation: Option<i64>,
    /// Whether that is so because its ClusterBootstrap cannot be decoded.
    pub bootstrap_undecodable: bool,
    /// What the Cluster rests on and cannot be decoded, if there is such an object.
    pub undecodable: Option<Hold>,
    /// A kind that managed Clusters need and that was never listed, if there is one.
    pub unlisted: Option<StoredKind>,
    /// Whether the release of the call's label is marked legacy.
    pub legacy: bool,
    /// Whether the Cluster waits for a ClusterBootstrap that a user makes.
    pub custom: bool,
    /// What the index misses for a record to be possible: the release or its template.
    pub missing: Option<Hold>,
    /// Whether no replica leads: nothing looks any more at what the record says.
    pub leaderless: bool,
    /// For how long the Cluster was held without progress, if that is long; see [`stuck`](crate::gate::stuck).
    pub still: Duration,
}

impl<'a> Knowledge<'a> {
    /// What is known about the Cluster of a call, where it is known whether it is managed; see [`is_managed`].
    #[must_use]
    pub fn synced(label: Option<&str>, known: CachedCluster<'a>) -> Self {
        let has_bootstrap = known.bootstrap_generation.is_some() || known.bootstrap_undecodable;
        if is_managed(label, known.legacy, has_bootstrap) {
            Self::Managed(known)
        } else {
            Self::Unmanaged
        }
    }
}

/// Decides one hook call from what this replica knows of the cluster.
///
/// Memory of any age is no knowledge (see [`Unsynced`]). Knowledge that lags holds where a generation or the label shows it: a
/// release needs a record about exactly this call, and an open gate in it. A gate that was closed since is seen within
/// [`CURRENT_FOR`](crate::cache::stored_kind::CURRENT_FOR).
#[must_use]
pub fn decide(call: &HookCall<'_>, knowledge: &Knowledge<'_>, policy: &RetryPolicy) -> Decision {
    decide_by(&CLAUSES, call, knowledge, policy)
}

fn decide_by(
    clauses: &[Clause],
    call: &HookCall<'_>,
    knowledge: &Knowledge<'_>,
    policy: &RetryPolicy,
) -> Decision {
    let needs_no_knowledge =
        call.hook == Hook::AfterControlPlaneInitialized || deletion_overdue(call, policy);
    let hold = match knowledge {
        _ if needs_no_knowledge => None,
        Knowledge::Unsynced(Unsynced::Unlisted(kind)) => Some(held(CallReason::Starting, kind.waits())),
        Knowledge::Unsynced(Unsynced::Stale) => Some(stale()),
        Knowledge::Unmanaged => None,
        Knowledge::Unresolved(hold, _) => Some(hold.clone()),
        Knowledge::Managed(known) if nothing_to_wait_for(call, known) => None,
        Knowledge::Managed(known) => clauses.iter().find_map(|clause| (clause.objection)(call, known)),
    };
    match hold {
        None => Decision::Release,
        Some(hold) => Decision::Hold {
            retry_after: match knowledge {
                // Only a watch is behind, whatever number of other Clusters is held.
                Knowledge::Unresolved(..) if hold.reason.is_passing() => RetryAfter::SHORTEST,
                _ => policy.retry_after(call.uid, still(knowledge, hold.reason)),
            },
            reason: hold.reason,
            message: hold.to_string(),
        },
    }
}

/// For how long nothing has moved that could open the gate.
fn still(knowledge: &Knowledge<'_>, reason: HoldReason) -> Duration {
    match knowledge {
        Knowledge::Managed(known) if !reason.is_passing() => known.still,
        Knowledge::Unresolved(_, still) => *still,
        _ => Duration::ZERO,
    }
}

fn held(reason: impl Into<HoldReason>, message: impl Into<String>) -> Hold<HoldReason> {
    Hold::new(reason.into(), message)
}

fn stale() -> Hold<HoldReason> {
    held(
        CallReason::ReplicaStale,
        "the API server has not confirmed for too long what the replica that answers remembers",
    )
}

/// Whether the deletion has waited long enough. No record says so, so every replica can tell.
fn deletion_overdue(call: &HookCall<'_>, policy: &RetryPolicy) -> bool {
    let limit = Duration::from_secs(u64::from(policy.deletion_limit));
    call.hook == Hook::BeforeClusterDelete
        && call
            .deleted_at
            .is_some_and(|deleted_at| is_overdue(deleted_at, call.now, limit))
}

fn nothing_to_wait_for(call: &HookCall<'_>, known: &CachedCluster<'_>) -> bool {
    match call.hook {
        Hook::BeforeClusterDelete => known.bootstrap_generation.is_none() && !known.bootstrap_undecodable,
        Hook::BeforeClusterCreate => known.custom,
        _ => false,
    }
}

/// One condition of a release.
struct Clause {
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "names the clause whose absence a test looks for")
    )]
    name: &'static str,
    /// Why the call cannot be released, if this condition is not met. Without a record all but the first five pass.
    objection: fn(&HookCall<'_>, &CachedCluster<'_>) -> Option<Hold<HoldReason>>,
}

/// What a release needs, all of it.
const CLAUSES: [Clause; 14] = [
    Clause {
        name: "all that the Cluster rests on can be decoded",
        objection: undecodable,
    },
    Clause {
        name: "the Cluster has its label",
        objection: unlabelled,
    },
    Clause {
        name: "the release is not legacy",
        objection: of_a_legacy_release,
    },
    Clause {
        name: "all kinds that managed Clusters need were listed",
        objection: unlisted,
    },
    Clause {
        name: "there is a record",
        objection: unrecorded,
    },
    Clause {
        name: "the schema is known",
        objection: of_another_schema,
    },
    Clause {
        name: "the record is of this Cluster",
        objection: of_another_cluster,
    },
    Clause {
        name: "the record has seen the Cluster's generation",
        objection: behind_the_cluster,
    },
    Clause {
        name: "the record has seen the ClusterBootstrap's generation",
        objection: behind_the_bootstrap,
    },
    Clause {
        name: "the record has seen the label",
        objection: behind_the_label,
    },
    Clause {
        name: "the record is for the target",
        objection: of_another_target,
    },
    Clause {
        name: "the version is planned",
        objection: unplanned,
    },
    Clause {
        name: "the gate is open",
        objection: closed,
    },
    Clause {
        name: "a replica leads",
        objection: leaderless,
    },
];

fn undecodable(_: &HookCall<'_>, known: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    known.undecodable.clone().map(Hold::of_call)
}

// A deletion waits for its packages to be uninstalled, whatever the label says.
fn unlabelled(call: &HookCall<'_>, _: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    let labelled = call.label.is_some_and(|label| !label.is_empty());
    (!labelled && call.hook != Hook::BeforeClusterDelete).then(|| {
        held(
            GateReason::TKRLabelRemoved,
            "the Cluster has a ClusterBootstrap, but no label run.tanzu.vmware.com/tkr",
        )
    })
}

fn of_a_legacy_release(call: &HookCall<'_>, known: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    (known.legacy && call.hook != Hook::BeforeClusterDelete)
        .then(|| tkr_legacy(call.label.unwrap_or_default()).of_call())
}

// The record of a deletion says that packages were uninstalled, which needs none of them.
fn unlisted(call: &HookCall<'_>, known: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    let kind = known
        .unlisted
        .filter(|_| call.hook != Hook::BeforeClusterDelete)?;
    Some(kind.unavailable().of_call())
}

fn unrecorded(_: &HookCall<'_>, known: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    let nothing = || held(CallReason::RecordNotFound, "Cluster not reconciled yet");
    known
        .record
        .is_none()
        .then(|| known.missing.clone().map_or_else(nothing, Hold::of_call))
}

fn of_another_schema(_: &HookCall<'_>, known: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    (known.record?.schema != SCHEMA).then(|| {
        held(
            CallReason::RecordSchemaUnknown,
            "waiting for the record to be written again",
        )
    })
}

fn of_another_cluster(call: &HookCall<'_>, known: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    (known.record?.cluster_uid != call.uid).then(|| {
        held(
            CallReason::RecordUIDMismatch,
            "the record is of an earlier Cluster of this name",
        )
    })
}

fn behind_the_cluster(call: &HookCall<'_>, known: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    (known.record?.observed_cluster_generation < call.generation).then(|| {
        held(
            CallReason::ClusterNotObserved,
            "waiting for the latest edit of the Cluster to be seen",
        )
    })
}

fn behind_the_bootstrap(_: &HookCall<'_>, known: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    (Some(known.record?.observed_bootstrap_generation) != known.bootstrap_generation).then(|| {
        held(
            CallReason::BootstrapNotObserved,
            "waiting for the latest edit of the ClusterBootstrap to be seen",
        )
    })
}

fn behind_the_label(call: &HookCall<'_>, known: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    let label = call.label.unwrap_or_default();
    (known.record?.label != label).then(|| {
        held(
            CallReason::LabelNotObserved,
            format!("waiting for label {label} to be seen"),
        )
    })
}

fn of_another_target(call: &HookCall<'_>, known: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    let record = known.record?;
    let compared = matches!(call.hook, Hook::BeforeClusterCreate | Hook::BeforeClusterUpgrade);
    (compared && record.to != call.version).then(|| {
        held(
            CallReason::RecordTargetMismatch,
            format!("waiting for target {} to be seen", call.version),
        )
    })
}

fn unplanned(call: &HookCall<'_>, known: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    let listed = known.record?.gates.iter().any(|gate| answers(gate, call));
    (!listed).then(|| {
        held(
            CallReason::VersionNotPlanned,
            format!("{} is not the version that comes next", call.gate_version()),
        )
    })
}

fn closed(call: &HookCall<'_>, known: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    let gate = known
        .record?
        .gates
        .iter()
        .find(|gate| answers(gate, call) && !gate.open)?;
    let reason =
        GateReason::parse(&gate.reason).map_or(HoldReason::Call(CallReason::GateClosed), HoldReason::Gate);
    Some(held(reason, gate.message.clone()))
}

// What was uninstalled stays so.
fn leaderless(call: &HookCall<'_>, known: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    (known.leaderless && call.hook != Hook::BeforeClusterDelete).then(|| {
        held(
            CallReason::NoLeader,
            "no replica of Sluice holds its lease, and what the record says is not looked at",
        )
    })
}

fn answers(gate: &sluice_crds::run::Gate, call: &HookCall<'_>) -> bool {
    // A deletion is not about a version.
    let of_version = call.hook == Hook::BeforeClusterDelete || gate.version == call.gate_version();
    gate.hook == call.hook && of_version
}

#[cfg(test)]
mod tests;
