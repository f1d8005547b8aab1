//! Decides one hook call: a pure function of the call and the cached objects of this replica.
//!
//! [`decide`] decides by the packages of the Cluster, and [`decide_by_gates`] by its gates. A release needs both.

mod by_gates;
mod record;

use std::time::Duration;

use sluice_crds::run::{Hook, UpgradeRecord};

pub(super) use self::by_gates::lists_enforced;
pub use self::by_gates::{CachedGates, GateKnowledge, GateObjects, decide_by_gates, is_gated};
use self::record::RecordFields;
pub(in crate::gate) use self::record::override_of;
use crate::cache::stored_kind::StoredKind;
use crate::cluster::is_managed;
use crate::gate::hook_call::HookCall;
use crate::gate::retry::{RetryAfter, RetryPolicy};
use crate::reasons::{CallReason, GateReason, Hold, HoldReason};
use crate::server_time::is_overdue;
use crate::upgrade::tkr::tkr_legacy;

/// Response to one hook call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Cluster API continues.
    Release,
    /// Cluster API waits and calls again.
    Hold {
        /// Delay before the next call.
        retry_after: RetryAfter,
        /// Reason of the hold.
        reason: HoldReason,
        /// Message of the response: the reason and its details.
        message: String,
    },
}

impl Decision {
    fn held(hold: &Hold<HoldReason>, retry_after: RetryAfter) -> Self {
        Self::Hold {
            retry_after,
            reason: hold.reason,
            message: hold.to_string(),
        }
    }
}

/// Knowledge of a replica about the Cluster of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Knowledge<'a> {
    /// The replica has never listed this kind.
    Unsynced(StoredKind),
    /// Sluice does not manage the Cluster.
    Unmanaged,
    /// Sluice would manage the Cluster after its resolution, or may manage it; with the time without progress, if that is long.
    Unresolved(Hold<HoldReason>, Duration),
    /// Sluice manages the Cluster.
    Managed(CachedCluster<'a>),
}

/// Facts about a managed Cluster from the cache. All of them may be outdated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is read by one clause")]
pub struct CachedCluster<'a> {
    /// Record in the status of its ClusterBootstrap.
    pub record: Option<&'a UpgradeRecord>,
    /// `metadata.generation` of its ClusterBootstrap; none without a ClusterBootstrap.
    pub bootstrap_generation: Option<i64>,
    /// Whether the ClusterBootstrap is absent because it cannot be decoded.
    pub bootstrap_undecodable: bool,
    /// Object that the Cluster depends on and that cannot be decoded.
    pub undecodable: Option<Hold>,
    /// Kind that managed Clusters need and that was never listed.
    pub unlisted: Option<StoredKind>,
    /// Whether the release of the call's label is marked legacy.
    pub legacy: bool,
    /// Whether the Cluster waits for a ClusterBootstrap that a user creates.
    pub custom: bool,
    /// Whether the override of the gate does not exist any more.
    pub revoked: bool,
    /// Hold for a release or template without which no record can exist.
    pub missing: Option<Hold>,
    /// Whether no replica leads, so that nothing updates the record.
    pub leaderless: bool,
    /// Time that the Cluster was held without progress, if that is long; see [`stuck`](crate::gate::stuck).
    pub still: Duration,
}

impl<'a> CachedCluster<'a> {
    fn fields(&self) -> Option<RecordFields<'a>> {
        self.record.map(RecordFields::from)
    }
}

impl<'a> Knowledge<'a> {
    /// Returns the knowledge of a synced cache about the Cluster of a call; see [`is_managed`].
    #[must_use]
    pub fn synced(label: Option<&str>, cached: CachedCluster<'a>) -> Self {
        let has_bootstrap = cached.bootstrap_generation.is_some() || cached.bootstrap_undecodable;
        if is_managed(label, cached.legacy, has_bootstrap) {
            Self::Managed(cached)
        } else {
            Self::Unmanaged
        }
    }
}

/// Decides one hook call by the packages of its Cluster, from the knowledge of this replica.
///
/// A cache that lags holds the call if a generation or the label shows the lag: a release needs a record about exactly this call, with an
/// open gate. Whatever the cache shows, a release is confirmed by reads; see [`confirmation`](crate::gate::confirmation).
#[must_use]
pub fn decide(call: &HookCall<'_>, knowledge: &Knowledge<'_>, policy: &RetryPolicy) -> Decision {
    decide_by(&CLAUSES, call, knowledge, policy)
}

fn decide_by(
    clauses: &[Clause<PackageObjection>],
    call: &HookCall<'_>,
    knowledge: &Knowledge<'_>,
    policy: &RetryPolicy,
) -> Decision {
    let hold = match knowledge {
        _ if needs_no_knowledge(call, policy) => None,
        Knowledge::Unsynced(kind) => Some(held(CallReason::Starting, kind.waits())),
        Knowledge::Unmanaged => None,
        Knowledge::Unresolved(hold, _) => Some(hold.clone()),
        Knowledge::Managed(cached) if nothing_to_wait_for(call, cached) => None,
        Knowledge::Managed(cached) => clauses.iter().find_map(|clause| (clause.objection)(call, cached)),
    };
    let Some(hold) = hold else {
        return Decision::Release;
    };
    let retry_after = match knowledge {
        // Only the watch lags, so the number of other held Clusters does not matter.
        Knowledge::Unresolved(..) if hold.reason.is_passing() => RetryAfter::SHORTEST,
        _ => policy.retry_after(call.uid, still(knowledge, hold.reason)),
    };
    Decision::held(&hold, retry_after)
}

/// Returns the time without progress toward an open gate.
fn still(knowledge: &Knowledge<'_>, reason: HoldReason) -> Duration {
    match knowledge {
        Knowledge::Managed(cached) if !reason.is_passing() => cached.still,
        Knowledge::Unresolved(_, still) => *still,
        _ => Duration::ZERO,
    }
}

fn held(reason: impl Into<HoldReason>, message: impl Into<String>) -> Hold<HoldReason> {
    Hold::new(reason.into(), message)
}

/// Returns a hold whose message is the text of its reason.
fn said(reason: CallReason) -> Hold<HoldReason> {
    held(reason, reason.text())
}

/// Whether a call is released whatever the objects are.
pub(super) fn needs_no_knowledge(call: &HookCall<'_>, policy: &RetryPolicy) -> bool {
    call.hook == Hook::AfterControlPlaneInitialized || deletion_overdue(call, policy)
}

/// Whether the deletion has exceeded its limit. This needs no record, so every replica can decide it.
fn deletion_overdue(call: &HookCall<'_>, policy: &RetryPolicy) -> bool {
    let limit = Duration::from_secs(u64::from(policy.deletion_limit));
    call.hook == Hook::BeforeClusterDelete
        && call
            .deleted_at
            .is_some_and(|deleted_at| is_overdue(deleted_at, call.now, limit))
}

fn nothing_to_wait_for(call: &HookCall<'_>, cached: &CachedCluster<'_>) -> bool {
    match call.hook {
        Hook::BeforeClusterDelete => cached.bootstrap_generation.is_none() && !cached.bootstrap_undecodable,
        Hook::BeforeClusterCreate => cached.custom,
        _ => false,
    }
}

/// Objection to a release by the packages of a Cluster.
type PackageObjection = fn(&HookCall<'_>, &CachedCluster<'_>) -> Option<Hold<HoldReason>>;

/// One condition of a release.
struct Clause<Objection> {
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "names the clause that a test leaves out")
    )]
    name: &'static str,
    /// Returns the hold if this condition is not met.
    objection: Objection,
}

/// All conditions of a release by the packages of a Cluster. Without a record, all but the first five are met.
const CLAUSES: [Clause<PackageObjection>; 17] = [
    Clause {
        name: "all objects that the Cluster depends on can be decoded",
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
        name: "the schema is cached",
        objection: |_, cached| cached.fields()?.of_another_schema(),
    },
    Clause {
        name: "the record is of this Cluster",
        objection: |call, cached| cached.fields()?.of_another_cluster(call),
    },
    Clause {
        name: "the record has observed the Cluster's generation",
        objection: |call, cached| cached.fields()?.behind_the_cluster(call),
    },
    Clause {
        name: "the call is about the generation of the record",
        objection: |call, cached| cached.fields()?.ahead_of_the_call(call),
    },
    Clause {
        name: "the record has observed the ClusterBootstrap's generation",
        objection: behind_the_bootstrap,
    },
    Clause {
        name: "the record has observed the label",
        objection: behind_the_label,
    },
    Clause {
        name: "the record is for the target",
        objection: |call, cached| cached.fields()?.of_another_target(call),
    },
    Clause {
        name: "the version is planned",
        objection: |call, cached| cached.fields()?.unplanned(call),
    },
    Clause {
        name: "the gate is open",
        objection: |call, cached| cached.fields()?.closed(call),
    },
    Clause {
        name: "the override of the gate exists",
        objection: revoked,
    },
    Clause {
        name: "the override of the gate has not expired",
        objection: expired,
    },
    Clause {
        name: "a replica leads",
        objection: leaderless,
    },
];

fn undecodable(_: &HookCall<'_>, cached: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    cached.undecodable.clone().map(Hold::of_call)
}

// A deletion waits until its packages are uninstalled, whatever the label says.
fn unlabelled(call: &HookCall<'_>, _: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    let labelled = call.label.is_some_and(|label| !label.is_empty());
    (!labelled && call.hook != Hook::BeforeClusterDelete).then(|| {
        held(
            GateReason::TKRLabelRemoved,
            "the Cluster has a ClusterBootstrap, but no label run.tanzu.vmware.com/tkr",
        )
    })
}

fn of_a_legacy_release(call: &HookCall<'_>, cached: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    (cached.legacy && call.hook != Hook::BeforeClusterDelete)
        .then(|| tkr_legacy(call.label.unwrap_or_default()).of_call())
}

// The record of a deletion states that packages were uninstalled; that needs none of these kinds.
fn unlisted(call: &HookCall<'_>, cached: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    let kind = cached
        .unlisted
        .filter(|_| call.hook != Hook::BeforeClusterDelete)?;
    Some(kind.unavailable().of_call())
}

fn unrecorded(_: &HookCall<'_>, cached: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    let nothing = || said(CallReason::RecordNotFound);
    cached
        .record
        .is_none()
        .then(|| cached.missing.clone().map_or_else(nothing, Hold::of_call))
}

fn behind_the_bootstrap(_: &HookCall<'_>, cached: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    (Some(cached.record?.observed_bootstrap_generation) != cached.bootstrap_generation)
        .then(|| said(CallReason::BootstrapNotObserved))
}

fn behind_the_label(call: &HookCall<'_>, cached: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    let label = call.label.unwrap_or_default();
    (cached.record?.label != label).then(|| {
        held(
            CallReason::LabelNotObserved,
            format!("waiting for Sluice to observe label {label}"),
        )
    })
}

fn revoked(call: &HookCall<'_>, cached: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    let by = override_of(cached.record?, call).filter(|_| cached.revoked)?;
    Some(held(
        CallReason::OverrideRevoked,
        format!("UpgradeOverride {} was deleted", by.name),
    ))
}

fn expired(call: &HookCall<'_>, cached: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    let by = override_of(cached.record?, call)?;
    let has_expired = call.clock.is_none_or(|now| now >= by.expires_at.0);
    has_expired.then(|| {
        held(
            CallReason::OverrideExpired,
            format!("UpgradeOverride {} has expired", by.name),
        )
    })
}

// Uninstalled packages stay uninstalled without a leader.
fn leaderless(call: &HookCall<'_>, cached: &CachedCluster<'_>) -> Option<Hold<HoldReason>> {
    (cached.leaderless && call.hook != Hook::BeforeClusterDelete).then(|| said(CallReason::NoLeader))
}

#[cfg(test)]
mod tests;
