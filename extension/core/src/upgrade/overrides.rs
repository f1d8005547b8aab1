//! Overrides: packages that one gate of one upgrade does not wait for, because a user has asked for that.
//!
//! An override only removes packages from the needs of a gate. It counts for one step of one upgrade: it names the UID of the Cluster, the
//! version and the release, did not exist when the upgrade began, and expires.

pub mod status;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use sluice_crds::{
    lifecycle::{EVERY_PACKAGE, MAX_DAYS, MAX_PACKAGES, OverriddenGate, UpgradeOverride},
    run::{Gate, GateOverride, Hook, Swap, UpgradeRecord},
};

use super::{
    course::holds,
    hop::{Progress, WorkerFacts},
    swap::SwapRequest,
};
use crate::{
    reasons::Hold,
    version::{reached, same},
};

/// Maximum number of overrides of a Cluster. With more of them, none counts: their UIDs are part of the record.
pub const MAX_OVERRIDES: usize = 64;

/// Maximum number of overrides that may open the gates of one step. Each of them is read before.
pub const MAX_OF_STEP: usize = 4;

/// Longest reason of an override, in characters.
pub(crate) const LONGEST_REASON: usize = 1024;

/// Name of the ValidatingAdmissionPolicy, and of its binding, without which no override counts: it ensures that `requestedBy` is the user who
/// created the override.
pub const POLICY: &str = "sluice-overrides";

/// Time after which each API server applies a policy that was stored.
pub(crate) const POLICY_DELAY: SignedDuration = SignedDuration::from_secs(30);

/// Returns the time since which `requestedBy` of each new override is the user who created it; `None` if the policy is being deleted, or its
/// binding does not deny.
#[must_use]
pub fn enforced_since(
    policy: &ValidatingAdmissionPolicy,
    binding: &ValidatingAdmissionPolicyBinding,
) -> Option<Timestamp> {
    let spec = binding.spec.as_ref()?;
    let denies = spec
        .validation_actions
        .iter()
        .flatten()
        .any(|action| action == "Deny");
    if !denies || spec.policy_name.as_deref() != Some(POLICY) {
        return None;
    }
    let created = |metadata: &ObjectMeta| {
        let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
        created.filter(|_| metadata.deletion_timestamp.is_none())
    };
    let stored = created(&policy.metadata)?.max(created(&binding.metadata)?);
    stored.checked_add(POLICY_DELAY).ok()
}

/// Whether an override was created under the policy.
#[must_use]
pub fn is_enforced(object: &UpgradeOverride, since: Option<Timestamp>) -> bool {
    let created = object.metadata.creation_timestamp.as_ref();
    since
        .zip(created)
        .is_some_and(|(since, created)| created.0 >= since)
}

/// Override that is complete and has not expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Name, UID, user, reason and expiry.
    pub by: GateOverride,
    /// The gate.
    pub gate: OverriddenGate,
    /// The Kubernetes version of the step.
    pub version: String,
    /// The release of the step.
    pub release: String,
    /// Short names of the packages; empty for every package.
    packages: Vec<String>,
}

/// Reason why an override has no effect, whatever the state of its Cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// `requestedBy` or `clusterUID` is missing.
    Incomplete,
    /// `clusterUID` is that of another Cluster of the name.
    OtherCluster,
    /// The override is being deleted.
    Deleted,
    /// `expiresAt` has passed.
    Expired,
    /// `expiresAt` is more than seven days after the creation.
    ExpiresTooLate,
    /// A field is empty, too long or has control characters.
    Malformed,
}

impl Unusable {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::Incomplete,
        Self::OtherCluster,
        Self::Deleted,
        Self::Expired,
        Self::ExpiresTooLate,
        Self::Malformed,
    ];

    /// Returns the spelling in conditions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Incomplete => "Incomplete",
            Self::OtherCluster => "OtherCluster",
            Self::Deleted => "Deleted",
            Self::Expired => "Expired",
            Self::ExpiresTooLate => "ExpiresTooLate",
            Self::Malformed => "Malformed",
        }
    }

    /// Returns an explanation with the way out.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Incomplete => {
                "spec.requestedBy or spec.clusterUID is missing: the webhook of Sluice did not complete the override; create it again"
            }
            Self::OtherCluster => {
                "spec.clusterUID is that of another Cluster of this name; create the override again"
            }
            Self::Deleted => "the override is being deleted",
            Self::Expired => "spec.expiresAt has passed; create another override if it is still needed",
            Self::ExpiresTooLate => {
                "spec.expiresAt is more than seven days after the creation; create an override that expires earlier"
            }
            Self::Malformed => {
                "a field of the spec is empty, too long or has control characters; create the override again"
            }
        }
    }
}

impl Override {
    /// Returns the override of an object for the Cluster with this UID.
    ///
    /// # Errors
    /// The override has no effect.
    pub fn of(object: &UpgradeOverride, cluster_uid: &str, now: Timestamp) -> Result<Self, Unusable> {
        let spec = &object.spec;
        let (Some(user), Some(of_uid), Some(uid)) = (
            spec.requested_by.as_deref().filter(|user| !user.is_empty()),
            &spec.cluster_uid,
            object.metadata.uid.as_ref(),
        ) else {
            return Err(Unusable::Incomplete);
        };
        if of_uid != cluster_uid {
            return Err(Unusable::OtherCluster);
        }
        if object.metadata.deletion_timestamp.is_some() {
            return Err(Unusable::Deleted);
        }
        if is_malformed(&spec.reason, LONGEST_REASON)
            || is_malformed(user, LONGEST_REASON)
            || spec.packages.is_empty()
            || spec.packages.len() > MAX_PACKAGES
        {
            return Err(Unusable::Malformed);
        }
        let expires = spec.expires_at.0;
        let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let longest = SignedDuration::from_hours(24 * MAX_DAYS);
        if created.is_none_or(|created| expires.duration_since(created) > longest) {
            return Err(Unusable::ExpiresTooLate);
        }
        if now >= expires {
            return Err(Unusable::Expired);
        }
        let every = spec.packages.iter().any(|package| package == EVERY_PACKAGE);
        Ok(Self {
            by: GateOverride {
                name: object.name_any(),
                uid: uid.clone(),
                user: user.to_owned(),
                reason: spec.reason.clone(),
                expires_at: spec.expires_at.clone(),
            },
            gate: spec.gate,
            version: spec.target.kubernetes_version.clone(),
            release: spec.target.release.clone(),
            packages: if every { Vec::new() } else { spec.packages.clone() },
        })
    }

    /// Whether the gate does not wait for a package.
    #[must_use]
    pub fn passes(&self, package: &str) -> bool {
        self.is_of_every() || self.packages.iter().any(|name| name == package)
    }

    /// Whether the override names every package.
    #[must_use]
    pub const fn is_of_every(&self) -> bool {
        self.packages.is_empty()
    }
}

/// Whether a text of a user is empty, too long, or has control characters.
pub(crate) fn is_malformed(text: &str, longest: usize) -> bool {
    text.trim().is_empty() || text.chars().count() > longest || text.chars().any(char::is_control)
}

/// Overrides of a Cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overrides<'a> {
    /// UIDs of all existing ones; `None` before their first list, and if there are too many of them.
    pub existing: Option<&'a [String]>,
    /// Those that are complete and have not expired, by name; only confirmed ones, once they were read.
    pub usable: &'a [Override],
    /// The same in the cache.
    pub cached: &'a [Override],
}

/// Returns the UIDs of all overrides of a Cluster, and those that may be used.
#[must_use]
pub fn usable(
    objects: &[Arc<UpgradeOverride>],
    cluster_uid: &str,
    now: Timestamp,
) -> (Option<Vec<String>>, Vec<Override>) {
    if objects.len() > MAX_OVERRIDES {
        return (None, Vec::new());
    }
    let existing = objects.iter().filter_map(|object| object.metadata.uid.clone());
    let mut usable: Vec<Override> = objects
        .iter()
        .filter_map(|object| Override::of(object, cluster_uid, now).ok())
        .collect();
    usable.sort_by(|one, other| one.by.name.cmp(&other.by.name));
    (Some(existing.collect()), usable)
}

/// Packages that a gate does not wait for, by an override.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed<'a>(pub(crate) Option<&'a Override>);

impl Passed<'_> {
    /// No package.
    pub(crate) const NONE: Self = Self(None);

    /// Whether the gate does not wait for any package.
    pub(crate) fn every(self) -> bool {
        self.0.is_some_and(Override::is_of_every)
    }

    /// Whether the gate does not wait for this package.
    pub(crate) fn passes(self, package: &str) -> bool {
        self.0.is_some_and(|of| of.passes(package))
    }

    /// Returns a hold about values or the workload cluster, unless an override of every package passes it.
    pub(crate) fn left(self, hold: Option<Hold>) -> Option<Hold> {
        hold.filter(|hold| !(self.every() && hold.reason.overridable().is_passed_by_every()))
    }
}

/// Overrides that may open a gate of this upgrade.
pub(crate) fn of_upgrade<'a>(
    spent: Option<&'a [String]>,
    overrides: Overrides<'a>,
) -> impl Iterator<Item = &'a Override> {
    let counts = move |of: &&Override| spent.is_some_and(|spent| !spent.contains(&of.by.uid));
    overrides.usable.iter().filter(counts)
}

/// Returns the gate of a hook that an override can pass.
#[must_use]
pub const fn gate_of(hook: Hook) -> Option<OverriddenGate> {
    match hook {
        Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade => Some(OverriddenGate::ControlPlane),
        Hook::AfterControlPlaneUpgrade | Hook::BeforeWorkersUpgrade => Some(OverriddenGate::Workers),
        Hook::BeforeClusterCreate
        | Hook::AfterControlPlaneInitialized
        | Hook::AfterWorkersUpgrade
        | Hook::AfterClusterUpgrade
        | Hook::BeforeClusterDelete => None,
    }
}

/// Returns the overrides that do not count for the next record: all that existed when its target was set, and those by which a step was made.
pub(crate) fn spent(
    previous: Option<&UpgradeRecord>,
    overrides: Overrides<'_>,
    (to, begins): (&str, bool),
    steps: Steps<'_>,
) -> Option<Vec<String>> {
    let continued = previous.filter(|previous| !begins && previous.to == to);
    let before = continued.and_then(|record| record.spent_overrides.clone());
    let spent = before.or_else(|| overrides.existing.map(<[String]>::to_vec));
    match continued {
        Some(record) => with_made(spent, (&record.gates, record.swap.as_ref()), steps),
        None => spent,
    }
}

/// Returns the spent overrides with those of machines that existed when the record's swap got another release.
pub(crate) fn with_earlier_of_swap(
    spent: Option<Vec<String>>,
    before: Option<&Swap>,
    request: Option<&SwapRequest>,
    cached: &[Override],
) -> Option<Vec<String>> {
    let mut spent = spent?;
    let is_another = request.is_some_and(|request| {
        request.replaces()
            && before.is_none_or(|before| (&before.version, &before.to) != (&request.version, &request.to))
    });
    let earlier = cached
        .iter()
        .filter(|of| is_another && of.gate == OverriddenGate::Machines && !spent.contains(&of.by.uid));
    let earlier: Vec<String> = earlier.map(|of| of.by.uid.clone()).collect();
    spent.extend(earlier);
    Some(spent)
}

/// Returns the spent overrides with those by which a step was made, by these gates and this swap.
pub(crate) fn with_made(
    spent: Option<Vec<String>>,
    (gates, swap): (&[Gate], Option<&Swap>),
    steps: Steps<'_>,
) -> Option<Vec<String>> {
    let mut spent = spent?;
    let of_gates = gates.iter().filter(|gate| steps.has_made(gate));
    let of_swap = swap.filter(|swap| swap.written_at.is_some());
    let made = of_gates
        .filter_map(|gate| gate.overridden_by.as_ref())
        .chain(of_swap.and_then(|swap| swap.overridden_by.as_ref()));
    for by in made {
        if !spent.contains(&by.uid) {
            spent.push(by.uid.clone());
        }
    }
    Some(spent)
}

/// Steps of an upgrade that were made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps<'a> {
    pub(crate) progress: &'a Progress,
    pub(crate) workers: &'a [WorkerFacts],
}

impl Steps<'_> {
    /// Whether the control plane has taken a version.
    pub(crate) fn has_taken(self, version: &str) -> bool {
        let progress = self.progress;
        let is_running = progress.stage().is_some_and(|stage| reached(stage, version));
        is_running || progress.taken && same(version, &progress.hop)
    }

    /// Whether the step that a gate releases was made. Gate AfterWorkersUpgrade does not show that of the workers: in a chain it is open for
    /// versions that they skip, and they may take such a version after another edit of the target.
    fn has_made(self, gate: &Gate) -> bool {
        match gate_of(gate.hook) {
            Some(OverriddenGate::ControlPlane) => self.has_taken(&gate.version),
            Some(OverriddenGate::Workers) => are_workers_at(self.workers, &gate.version),
            Some(OverriddenGate::Machines) | None => false,
        }
    }
}

/// Whether no worker is left to take a version.
pub(crate) fn are_workers_at(workers: &[WorkerFacts], version: &str) -> bool {
    holds::workers(workers, version).is_none()
}

/// Whether a worker has taken a version. Cluster API does not ask again for the others, unless it has found the first one there.
pub(crate) fn has_worker_at(workers: &[WorkerFacts], version: &str) -> bool {
    workers.iter().any(|worker| worker.has_reached(version))
}

/// Returns the first override without which a gate would be closed, preferably that of the previous record: another one of an earlier name
/// does not replace it.
pub(crate) fn first_that<'a>(
    overrides: impl Iterator<Item = &'a Override>,
    before: Option<&GateOverride>,
    opens: impl Fn(&Override) -> bool,
) -> Option<GateOverride> {
    let mut overrides: Vec<&Override> = overrides.collect();
    overrides.sort_by_key(|of| before.is_none_or(|before| before.uid != of.by.uid));
    let found = overrides.into_iter().find(|of| opens(of))?;
    Some(found.by.clone())
}

/// Returns the overrides by which gates and the swap of a record are open, with gate and version.
fn uses(record: &UpgradeRecord) -> impl Iterator<Item = (OverriddenGate, &str, &GateOverride)> {
    let of_gates = record.gates.iter().filter_map(|gate| {
        Some((
            gate_of(gate.hook)?,
            gate.version.as_str(),
            gate.overridden_by.as_ref()?,
        ))
    });
    let of_swap = record.swap.iter().filter_map(|swap| {
        Some((
            OverriddenGate::Machines,
            swap.version.as_str(),
            swap.overridden_by.as_ref()?,
        ))
    });
    of_gates.chain(of_swap)
}

/// Whether a gate or the swap of a record is open by the override with this UID.
pub(crate) fn is_used(record: &UpgradeRecord, uid: &str) -> bool {
    uses(record).any(|(_, _, by)| by.uid == uid)
}

/// Whether a record lists the override with this UID as spent.
pub(crate) fn is_spent(record: &UpgradeRecord, uid: &str) -> bool {
    let mut spent = record.spent_overrides.iter().flatten();
    spent.any(|spent| spent == uid)
}

/// Returns the overrides by which `next` opens a gate that `previous` has closed, or open by another override.
pub(crate) fn newly_used<'a>(
    previous: Option<&'a UpgradeRecord>,
    next: &'a UpgradeRecord,
) -> impl Iterator<Item = (OverriddenGate, &'a str, &'a GateOverride)> {
    uses(next).filter(move |(gate, version, by)| {
        let mut before = previous.into_iter().flat_map(uses);
        !before
            .any(|(of_gate, of_version, of)| of_gate == *gate && of_version == *version && of.uid == by.uid)
    })
}

#[cfg(test)]
pub(crate) mod tests;
