//! Status of an UpgradeOverride: whether it can be used, and whether it has opened a gate.
//!
//! It follows from the caches, and no decision depends on it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;
use serde_json::json;
use sluice_crds::{
    lifecycle::{OverriddenGate, UpgradeOverride, UpgradeOverrideStatus},
    run::{ClusterBootstrapStatus, UpgradeRecord},
};

use super::{MAX_OVERRIDES, Override, POLICY, is_enforced, is_spent};
use crate::{
    protocol::{Key, Server, Write},
    text::one_line,
    upgrade::record::of_cluster,
};

/// Type of the condition that tells whether the override can be used.
const ACCEPTED: &str = "Accepted";

/// Type of the condition that tells whether a gate was opened by the override.
const USED: &str = "Used";

/// Longest list of packages in a message, in characters.
const LONGEST_LIST: usize = 256;

/// Managed Cluster that an override names.
#[derive(Clone, Copy, Debug)]
pub struct NamedCluster<'a> {
    /// Its UID.
    pub uid: &'a str,
    /// Number of overrides that name it.
    pub overrides: usize,
    /// Status of its ClusterBootstrap, if there is one.
    pub status: Option<&'a ClusterBootstrapStatus>,
}

/// Whether ValidatingAdmissionPolicy [`POLICY`] and its binding are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Both exist, since this time.
    Since(Timestamp),
    /// One of them does not exist, or the binding does not deny.
    Missing,
    /// One of them cannot be read.
    Unreadable,
}

/// State of an override, apart from the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideState {
    /// Whether it can be used: a message, or why not.
    accepted: Result<String, Refusal>,
    /// Whether it has opened a gate.
    is_used: bool,
}

/// Reason and message of an override that cannot be used.
type Refusal = (&'static str, String);

impl OverrideState {
    /// Returns the state of `object`; `cluster` is `None` if the Cluster does not exist or Sluice does not manage it.
    #[must_use]
    pub fn of(object: &UpgradeOverride, cluster: Option<NamedCluster<'_>>, now: Timestamp) -> Self {
        let uid = object.metadata.uid.as_deref();
        let was_used =
            conditions(object).any(|condition| condition.type_ == USED && condition.status == "True");
        let is_used = was_used
            || uid
                .zip(cluster)
                .is_some_and(|(uid, cluster)| cluster.names_as_used(uid));
        Self {
            accepted: accepted(object, cluster, is_used, now),
            is_used,
        }
    }

    /// Whether condition `Accepted` depends on the policy. It does not once a gate was opened.
    #[must_use]
    pub const fn needs_policy(&self) -> bool {
        self.accepted.is_ok() && !self.is_used
    }

    /// Returns the time until the override expires, unless it cannot be used anyway.
    #[must_use]
    pub fn until_expiry(&self, object: &UpgradeOverride, now: Timestamp) -> Option<Duration> {
        let left = object.spec.expires_at.0.duration_since(now);
        self.accepted.is_ok().then(|| left.try_into().unwrap_or_default())
    }
}

impl NamedCluster<'_> {
    /// Returns the record of this very Cluster.
    fn record(&self) -> Option<&UpgradeRecord> {
        of_cluster(self.status?.upgrade.as_ref(), self.uid)
    }

    /// Whether the record or the history names the override with this UID. The record forgets it once the step is made.
    fn names_as_used(&self, uid: &str) -> bool {
        let history = self.status.into_iter().flat_map(|status| &status.history);
        let mut past = history.flat_map(|upgrade| &upgrade.overrides);
        self.record().is_some_and(|record| super::is_used(record, uid)) || past.any(|by| by.uid == uid)
    }
}

/// Returns a message if the override can be used apart from the policy, otherwise why not.
fn accepted(
    object: &UpgradeOverride,
    cluster: Option<NamedCluster<'_>>,
    is_used: bool,
    now: Timestamp,
) -> Result<String, Refusal> {
    let name = one_line(&object.spec.cluster_name, LONGEST_LIST);
    let Some(cluster) = cluster else {
        let message =
            format!("Cluster {name} does not exist in this namespace, or Sluice does not manage it");
        return Err(("ClusterNotFound", message));
    };
    let of = Override::of(object, cluster.uid, now)
        .map_err(|unusable| (unusable.as_str(), unusable.text().to_owned()))?;
    if cluster.overrides > MAX_OVERRIDES {
        let message = format!(
            "Cluster {name} has more than {MAX_OVERRIDES} UpgradeOverrides, so none has an effect; delete some"
        );
        return Err(("TooMany", message));
    }
    let Some(record) = cluster.record() else {
        return Ok(String::new());
    };
    if is_spent(record, &of.by.uid) && !super::is_used(record, &of.by.uid) {
        let message = "the override was used, or existed before the current target of the Cluster was set; create it again if it is still needed";
        return Err(("Spent", message.to_owned()));
    }
    if is_used {
        return Ok(String::new());
    }
    let unknown = unknown_packages(&of, record);
    if unknown.is_empty() {
        return Ok(String::new());
    }
    let message = format!(
        "release {} has no package {}",
        one_line(&of.release, LONGEST_LIST),
        one_line(&unknown.join(", "), LONGEST_LIST)
    );
    // The others are still passed.
    if unknown.len() < of.packages.len() {
        return Ok(message);
    }
    Err(("PackageUnknown", message))
}

/// Returns the named packages that a record does not have; none if it is about another step, or if its packages are not known yet.
fn unknown_packages<'a>(of: &'a Override, record: &UpgradeRecord) -> Vec<&'a str> {
    let is_of_step = match of.gate {
        OverriddenGate::ControlPlane | OverriddenGate::Workers => {
            record.hop.as_ref() == Some(&of.version) && record.tkr.as_ref() == Some(&of.release)
        }
        OverriddenGate::Machines => {
            let mut swap = record.swap.iter();
            swap.any(|swap| swap.version == of.version && swap.to == of.release)
        }
    };
    if !is_of_step || record.packages.is_empty() {
        return Vec::new();
    }
    let is_known = |name: &str| record.packages.iter().any(|package| package.name == name);
    let named = of.packages.iter().map(String::as_str);
    named.filter(|name| !is_known(name)).collect()
}

/// Returns the write of the status of `object`, if it differs. `policy` matters only if the state
/// [needs](OverrideState::needs_policy) it.
#[must_use]
pub fn write(
    object: &UpgradeOverride,
    state: &OverrideState,
    policy: Option<Policy>,
    now: Timestamp,
) -> Option<Write> {
    let ours = [
        since_changed(object, ACCEPTED, said(object, state, policy), now),
        since_changed(object, USED, used_said(object, state), now),
    ];
    let is_other = |condition: &&Condition| ![ACCEPTED, USED].contains(&condition.type_.as_str());
    let others = conditions(object).filter(is_other).cloned();
    let next = UpgradeOverrideStatus {
        conditions: ours.into_iter().chain(others).collect(),
    };
    if object.status.as_ref() == Some(&next) {
        return None;
    }
    let (namespace, metadata) = (object.namespace(), &object.metadata);
    let key = Key::of::<UpgradeOverride>(Server::Management, namespace.as_deref(), &object.name_any());
    let patch = json!({
        "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version}, "status": next,
    });
    Some(Write::patch_status(
        key,
        patch,
        "status of the UpgradeOverride differs",
    ))
}

/// Status, reason and message of a condition.
type Said = (&'static str, &'static str, String);

/// Returns condition `Accepted`.
fn said(object: &UpgradeOverride, state: &OverrideState, policy: Option<Policy>) -> Said {
    let message = match state.accepted.clone() {
        Err((reason, message)) => return ("False", reason, message),
        Ok(message) => message,
    };
    match policy.filter(|_| state.needs_policy()) {
        Some(Policy::Missing) => {
            let message = format!(
                "ValidatingAdmissionPolicy {POLICY} or its binding does not exist, or does not deny, so no override has an effect; install them"
            );
            ("False", "PolicyMissing", message)
        }
        Some(Policy::Since(since)) if !is_enforced(object, Some(since)) => {
            let message = format!(
                "the override was created before ValidatingAdmissionPolicy {POLICY}, which checks spec.requestedBy; create it again"
            );
            ("False", "PolicyMissing", message)
        }
        Some(Policy::Unreadable) => {
            let message = format!(
                "ValidatingAdmissionPolicy {POLICY} or its binding cannot be read; no override has an effect until then"
            );
            ("Unknown", "PolicyUnreadable", message)
        }
        Some(Policy::Since(_)) | None => ("True", "Accepted", message),
    }
}

/// Returns condition `Used`.
fn used_said(object: &UpgradeOverride, state: &OverrideState) -> Said {
    if !state.is_used {
        return ("False", "NotUsed", String::new());
    }
    let spec = &object.spec;
    let message = format!(
        "gate {} of {} of Cluster {} was opened without the proof of every package",
        spec.gate.as_str(),
        one_line(&spec.target.kubernetes_version, LONGEST_LIST),
        one_line(&spec.cluster_name, LONGEST_LIST)
    );
    ("True", "GateOpened", message)
}

fn conditions(object: &UpgradeOverride) -> impl Iterator<Item = &Condition> {
    object.status.iter().flat_map(|status| &status.conditions)
}

/// Returns a condition, with the time of its last change of status.
fn since_changed(
    object: &UpgradeOverride,
    type_: &str,
    (status, reason, message): Said,
    now: Timestamp,
) -> Condition {
    let before = conditions(object).find(|condition| condition.type_ == type_ && condition.status == status);
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        observed_generation: object.metadata.generation,
        last_transition_time: before.map_or(Time(now), |before| before.last_transition_time.clone()),
        reason: reason.to_owned(),
        message,
    }
}

#[cfg(test)]
mod tests;
