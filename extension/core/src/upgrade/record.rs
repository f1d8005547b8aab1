//! Evidence record: basis of all hook decisions, computed from observed objects only.
//!
//! Hook calls are no input, because another replica may have received them.

mod gates;
mod holds;
mod swap;
mod ungated;
mod unseen;
mod urgent;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::run::{
    Gate, Hook, KappControllerMode, Outcome, PackageRecord, SCHEMA, SupervisorAnswer, UpgradeRecord,
};

use crate::proof::Judgement;
use crate::reasons::{GateReason, Hold};
use crate::upgrade::hop::{ControlPlaneFacts, Plan, Progress, UpgradeDirection, WorkerFacts, progress};
use crate::upgrade::swap::{SwapFacts, is_cancelled_swap};
use crate::version::{reached, same};

pub use self::holds::{class_of, failed};
pub use self::swap::{ends_swap, is_pending, opens_swap};
pub use self::ungated::{Part, Ungated, ungated};
pub use self::unseen::held_for;
pub use self::urgent::is_urgent;

/// Facts about the Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
pub struct ClusterFacts<'a> {
    /// Namespace.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// UID.
    pub uid: &'a str,
    /// Its generation.
    pub generation: i64,
    /// Label `run.tanzu.vmware.com/tkr`; empty without one.
    pub label: &'a str,
    /// `spec.topology.version`.
    pub topology_version: &'a str,
    /// Whether `spec.paused` or the annotation `cluster.x-k8s.io/paused` is set, and not by the addons-manager.
    pub paused: bool,
    /// Whether an annotation `before-upgrade.hook.cluster.cluster.x-k8s.io…` keeps an upgrade from starting.
    pub start_held: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether Cluster API has noted a pending hook call for it.
    pub awaits_hooks: bool,
}

/// Facts about the ClusterBootstrap, which carries the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootstrapFacts<'a> {
    /// Its generation.
    pub generation: i64,
    /// `spec.paused`.
    pub paused: bool,
    /// Release whose packages are known to be in its spec; see
    /// [`ResolvedRelease::resolved`](crate::packages::bootstrap::ResolvedRelease::resolved).
    pub resolved_tkr: Option<&'a str>,
}

/// Reachability of the workload cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload<'a> {
    /// Not reached yet, with the hold.
    NotYet(Hold),
    /// Reached before, but does not respond now.
    Unreachable {
        /// Start of the silence.
        since: Timestamp,
        /// Error response, or the absence of one.
        hold: Hold,
    },
    /// Responds.
    Reached {
        /// UID of its namespace `kube-system`.
        uid: &'a str,
    },
}

/// Judged packages of a hop, in the order kapp-controller, CNI, CPI, CSI, additional.
///
/// It names hop, release and stage of the judgement, so that a set of another one is not mistaken for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackageSet<'a> {
    /// Release of the packages.
    pub tkr: &'a str,
    /// Hop of the packages.
    pub hop: &'a str,
    /// Stage in their digests; see [`Progress::stage`].
    pub stage: Option<&'a str>,
    /// Every package of the set, written or not.
    pub judged: &'a [Judgement],
}

/// All inputs of a record.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// Cluster.
    pub cluster: ClusterFacts<'a>,
    /// Control plane object, if there is one.
    pub control_plane: Option<&'a ControlPlaneFacts>,
    /// MachineDeployments and MachinePools of the topology.
    pub workers: &'a [WorkerFacts],
    /// Steps of the upgrade.
    pub plan: &'a Plan,
    /// ClusterBootstrap.
    pub bootstrap: BootstrapFacts<'a>,
    /// Release of the hop, from [`for_hop`](crate::upgrade::tkr::for_hop).
    pub tkr: Result<&'a str, &'a Hold>,
    /// Reachability of the workload cluster.
    pub workload: Workload<'a>,
    /// Machines of another release of the Kubernetes version.
    pub swap: &'a SwapFacts,
    /// Packages of the hop, as soon as they are known.
    pub packages: Option<PackageSet<'a>>,
    /// Hold from an error of the controller, if any.
    pub problem: Option<&'a Hold>,
    /// Whether Sluice installs kapp-controller in the workload cluster, once that is decided.
    pub kapp_controller: Option<KappControllerMode>,
    /// Answer of the management API server about the Supervisor of the Cluster, if it was asked.
    pub supervisor: Option<&'a SupervisorAnswer>,
    /// Whether the packages were uninstalled from a Cluster that is being deleted.
    pub uninstalled: bool,
    /// Whether the API server has these generations of the Cluster and the ClusterBootstrap, though the record has higher ones: it was
    /// restored from a backup.
    pub restored: bool,
    /// Current time.
    pub now: Timestamp,
}

/// Returns the record if this build can read it and it belongs to the Cluster with this UID.
#[must_use]
pub fn of_cluster<'a>(record: Option<&'a UpgradeRecord>, uid: &str) -> Option<&'a UpgradeRecord> {
    record.filter(|record| record.schema == SCHEMA && record.cluster_uid == uid)
}

/// Returns the recorded entry of a package for [`judge`](crate::proof::judge); none if the workload cluster is another one.
///
/// It comes from a record that was read from the API server, also for the confirming read: a judgement must not confirm itself.
#[must_use]
pub fn latch<'a>(
    previous: Option<&'a UpgradeRecord>,
    workload_uid: &str,
    package: &str,
) -> Option<&'a PackageRecord> {
    previous
        .filter(|record| record.workload_uid.as_deref() == Some(workload_uid))?
        .packages
        .iter()
        .find(|judged| judged.name == package)
}

/// Returns the pause that forbids writes for an upgrade and holds its gates.
#[must_use]
pub fn pause(
    previous: Option<&UpgradeRecord>,
    progress: &Progress,
    cluster: &ClusterFacts<'_>,
    bootstrap_paused: bool,
) -> Option<Hold> {
    holds::pause(
        of_cluster(previous, cluster.uid),
        progress,
        cluster,
        bootstrap_paused,
    )
}

/// Computes the upgrade progress from one observation, ignoring the record of another Cluster.
#[must_use]
pub fn observed_progress(previous: Option<&UpgradeRecord>, seen: &Observed<'_>) -> Progress {
    let previous = of_cluster(previous, seen.cluster.uid);
    progress(
        seen.control_plane,
        seen.workers,
        seen.cluster.topology_version,
        seen.plan,
        previous,
    )
}

/// Computes the next record from the observed state: a pure, total and idempotent function.
///
/// A state from before the latest recorded edit of the Cluster or of its ClusterBootstrap changes nothing, unless it was restored.
#[must_use]
pub fn advance(previous: Option<&UpgradeRecord>, seen: &Observed<'_>) -> UpgradeRecord {
    let previous = of_cluster(previous, seen.cluster.uid);
    let generations = (seen.cluster.generation, seen.bootstrap.generation);
    if let Some(previous) = previous.filter(|previous| !seen.restored && is_older(generations, previous)) {
        return previous.clone();
    }
    // A hop that was just proven is left in the same step: consequences of a record are part of it.
    step(Some(&step(previous, seen)), seen)
}

fn step(previous: Option<&UpgradeRecord>, seen: &Observed<'_>) -> UpgradeRecord {
    let progress = observed_progress(previous, seen);
    let begins = begins(previous, seen, &progress);
    let mut record = frame(previous, seen, &progress, begins);
    let view = gates::View::new(previous, seen, &progress, begins);
    record.gates = match record.outcome {
        Some(_) => view.with_deletion(record.gates),
        None => view.gates(&record),
    };
    record.swap = match record.outcome {
        Some(_) => record.swap,
        None => swap::next(previous, seen, &progress, &record, begins),
    };
    record.settling_since = settling_since(&record, seen.now);
    if record.begun_at.is_none() && has_begun(&record) {
        record.begun_at = Some(Time(seen.now));
    }
    let proven = fitting(previous, seen, &progress).is_some_and(|judged| judged.iter().all(Judgement::ready));
    let ends = record.outcome.is_none() && proven && is_complete(&record, seen, &progress);
    close(&mut record, previous, seen, &progress, ends);
    record
}

/// Whether nothing prevents writes of packages for the hop. Gates of other versions belong to an earlier upgrade.
fn has_begun(record: &UpgradeRecord) -> bool {
    record.outcome.is_none()
        && record.gates.iter().any(|gate| {
            gate.hook == Hook::BeforeClusterUpgrade
                && record.hop.as_deref().is_some_and(|hop| same(hop, &gate.version))
                && !holds::is_pause(gate)
        })
}

/// Returns the time at which the packages of an open record began to settle. A run that fails meanwhile does not restart it.
fn settling_since(record: &UpgradeRecord, now: Timestamp) -> Option<Time> {
    let is_settling = |reason: &str| reason == GateReason::PackagesNotSettled.as_str();
    let settles = |gate: &Gate| gate.hook == Hook::AfterClusterUpgrade && is_settling(&gate.reason);
    let settles = record.gates.iter().any(settles)
        || record.swap.as_ref().is_some_and(|swap| is_settling(&swap.reason));
    record
        .settling_since
        .clone()
        .or_else(|| settles.then_some(Time(now)))
        .filter(|_| record.outcome.is_none())
}

/// Whether these generations of the Cluster and the ClusterBootstrap are from before the latest recorded edit.
#[must_use]
pub const fn is_older((cluster, bootstrap): (i64, i64), previous: &UpgradeRecord) -> bool {
    cluster < previous.observed_cluster_generation || bootstrap < previous.observed_bootstrap_generation
}

/// Whether a new upgrade begins: there is no record, or the record is closed and an input has changed.
fn begins(previous: Option<&UpgradeRecord>, seen: &Observed<'_>, progress: &Progress) -> bool {
    let Some(previous) = previous else { return true };
    let moved = previous.to != seen.cluster.topology_version;
    match previous.outcome {
        Some(_) if moved || seen.swap.is_requested() => true,
        None => false,
        Some(Outcome::Cancelled) if !is_cancelled_swap(previous) => false,
        // A release with another package set for the same Kubernetes version is an upgrade without any hook.
        Some(_) => {
            progress.settled_at_hop() && seen.tkr.is_ok_and(|tkr| previous.tkr.as_deref() != Some(tkr))
        }
    }
}

/// Whether a closed record stays unchanged. The hooks of the version that the control plane runs may still need a cancelled record,
/// unless that version is currently unknown.
fn stays_closed(record: &UpgradeRecord, progress: &Progress) -> bool {
    match record.outcome {
        None => false,
        Some(Outcome::Completed) => true,
        Some(Outcome::Cancelled) => progress.settled_at().is_none() || is_cancelled_swap(record),
    }
}

/// Whether PackageInstalls may stay as the addons-manager created them: control plane and workers specify the target, no hook call is
/// pending, no recorded upgrade has led there, and no machines of another release are requested. A growing pool does not require another
/// deployment of packages. While machines roll, the record does not include kept packages.
#[must_use]
pub fn may_keep(
    previous: Option<&UpgradeRecord>,
    progress: &Progress,
    cluster: &ClusterFacts<'_>,
    workers: &[WorkerFacts],
    swap: &SwapFacts,
) -> bool {
    let to = cluster.topology_version;
    let at_target = |worker: &WorkerFacts| {
        let version = worker.spec_version.as_deref();
        version.is_some_and(|version| reached(version, to))
    };
    let led_there = |record: &UpgradeRecord| {
        let from = record.from.as_deref();
        record.outcome == Some(Outcome::Cancelled)
            || record.outcome.is_none() && from.is_none_or(|from| !same(from, to))
    };
    progress.settled_at_hop()
        && progress.direction == UpgradeDirection::Forward
        && same(&progress.hop, to)
        && workers.iter().all(at_target)
        && !cluster.awaits_hooks
        && !cluster.deleting
        && !swap.is_requested()
        && !of_cluster(previous, cluster.uid).is_some_and(led_there)
}

/// Returns the packages if they were judged for this hop, release and stage. Packages with a kept PackageInstall count only for a
/// Cluster that [may keep](may_keep) it and whose workers do not roll, so a kept one never releases a machine.
fn fitting<'a>(
    previous: Option<&UpgradeRecord>,
    seen: &Observed<'a>,
    progress: &Progress,
) -> Option<&'a [Judgement]> {
    let cancelled = progress.direction == UpgradeDirection::Cancelled;
    let counts = || {
        !seen.workers.iter().any(|worker| worker.rolling)
            && may_keep(previous, progress, &seen.cluster, seen.workers, seen.swap)
    };
    seen.packages
        .filter(|set| !set.judged.iter().any(|judged| judged.kept) || counts())
        .filter(|set| set.hop == progress.hop && set.stage == progress.stage())
        .filter(|set| cancelled || seen.tkr.is_ok_and(|tkr| tkr == set.tkr))
        .map(|set| set.judged)
}

/// Returns the UID of the workload cluster, and whether Sluice installs kapp-controller there. Only a response changes either.
fn identity(
    previous: Option<&UpgradeRecord>,
    seen: &Observed<'_>,
) -> (Option<String>, Option<KappControllerMode>) {
    let mode_of = |record: &UpgradeRecord| record.kapp_controller;
    if let Workload::Reached { uid } = seen.workload {
        let same = previous.filter(|record| record.workload_uid.as_deref() == Some(uid));
        let mode = seen.kapp_controller.or_else(|| same.and_then(mode_of));
        (Some(uid.to_owned()), mode)
    } else {
        let uid = previous.and_then(|record| record.workload_uid.clone());
        (uid, previous.and_then(mode_of))
    }
}

/// Returns the record without its gates, which a closed record keeps.
fn frame(
    previous: Option<&UpgradeRecord>,
    seen: &Observed<'_>,
    progress: &Progress,
    begins: bool,
) -> UpgradeRecord {
    let continued = previous.filter(|_| !begins);
    let closed = continued.filter(|record| stays_closed(record, progress));
    let hop = closed
        .and_then(|record| record.hop.clone())
        .unwrap_or_else(|| progress.hop.clone());
    let of_hop = previous.filter(|record| record.hop.as_deref() == Some(hop.as_str()));
    let tkr = match seen.tkr {
        Ok(tkr) => Some(tkr.to_owned()),
        Err(_) => of_hop.and_then(|record| record.tkr.clone()),
    };
    let packages = match fitting(previous, seen, progress) {
        Some(judged) => judged.iter().map(|judgement| judgement.record.clone()).collect(),
        None => of_hop
            .filter(|record| record.tkr == tkr)
            .map(|record| record.packages.clone())
            .unwrap_or_default(),
    };
    let (workload_uid, kapp_controller) = identity(previous, seen);
    // A first installation has no previous version until its target changes.
    let moved_on = progress.settled_at().filter(|_| !progress.taken);
    let from = match continued {
        Some(record) => record.from.clone().or_else(|| moved_on.map(str::to_owned)),
        None => progress.stage().map(str::to_owned),
    };
    UpgradeRecord {
        schema: SCHEMA,
        cluster_uid: seen.cluster.uid.to_owned(),
        observed_cluster_generation: seen.cluster.generation,
        observed_bootstrap_generation: seen.bootstrap.generation,
        workload_uid,
        kapp_controller,
        label: seen.cluster.label.to_owned(),
        from,
        to: seen.cluster.topology_version.to_owned(),
        hop: Some(hop),
        tkr,
        gates: closed.map(|record| record.gates.clone()).unwrap_or_default(),
        packages,
        started_at: continued
            .and_then(|record| record.started_at.clone())
            .or(Some(Time(seen.now))),
        begun_at: continued.and_then(|record| record.begun_at.clone()),
        ready_at: None,
        released_at: None,
        settling_since: continued
            .filter(|record| record.to == seen.cluster.topology_version)
            .and_then(|record| record.settling_since.clone()),
        completed_at: continued.and_then(|record| record.completed_at.clone()),
        outcome: closed.and_then(|record| record.outcome),
        swap: closed.and_then(|record| record.swap.clone()),
        supervisor: supervisor(previous, seen),
    }
}

/// Returns the answer about the infrastructure of the Cluster. A recorded one stays until there is one about other infrastructure.
fn supervisor(previous: Option<&UpgradeRecord>, seen: &Observed<'_>) -> Option<SupervisorAnswer> {
    let recorded = previous.and_then(|record| record.supervisor.as_ref());
    let stays = |recorded: &&SupervisorAnswer| {
        let found = seen.supervisor.map(|answer| &answer.infrastructure);
        found.is_none_or(|infrastructure| *infrastructure == recorded.infrastructure)
    };
    recorded.filter(stays).or(seen.supervisor).cloned()
}

/// Closes the record if the upgrade has ended, and stamps it.
fn close(
    record: &mut UpgradeRecord,
    previous: Option<&UpgradeRecord>,
    seen: &Observed<'_>,
    progress: &Progress,
    ends: bool,
) {
    let now = || Some(Time(seen.now));
    let of_hop = previous.filter(|previous| previous.hop == record.hop);
    if record.outcome.is_some() {
        record.ready_at = of_hop.and_then(|previous| previous.ready_at.clone());
        record.released_at = of_hop.and_then(|previous| previous.released_at.clone());
        return;
    }
    let cancels_swap = swap::is_cancelled(previous, seen, record);
    if progress.direction == UpgradeDirection::Cancelled || cancels_swap {
        record.outcome = Some(Outcome::Cancelled);
    } else if ends {
        record.outcome = Some(Outcome::Completed);
    }
    if record.outcome == Some(Outcome::Completed) || cancels_swap {
        record.gates.retain(|gate| gate.version == record.to);
        for gate in &mut record.gates {
            if gate.hook != Hook::BeforeClusterDelete {
                *gate = self::gate(gate.hook, &gate.version, None);
            }
        }
    }
    record.settling_since = record.settling_since.take().filter(|_| record.outcome.is_none());
    record.completed_at = record
        .outcome
        .and_then(|_| record.completed_at.take().or_else(now));
    record.released_at = progress
        .taken
        .then(|| {
            of_hop
                .and_then(|previous| previous.released_at.clone())
                .or_else(now)
        })
        .flatten();
    let same_targets = of_hop.filter(|previous| targets(&previous.packages).eq(targets(&record.packages)));
    record.ready_at = (!record.packages.is_empty() && record.packages.iter().all(is_ready))
        .then(|| {
            same_targets
                .and_then(|previous| previous.ready_at.clone())
                .or_else(now)
        })
        .flatten();
}

/// Whether control plane and workers are at the target, so that Cluster API may start the next upgrade once the packages are proven.
fn is_complete(record: &UpgradeRecord, seen: &Observed<'_>, progress: &Progress) -> bool {
    progress.settled_at_hop()
        && record.hop.as_ref() == Some(&record.to)
        && record
            .gates
            .iter()
            .any(|gate| gate.hook == Hook::AfterClusterUpgrade && gate.open)
        && !seen.workers.iter().any(|worker| worker.rolling)
        && record.swap.as_ref().is_none_or(swap::is_over)
}

fn targets(packages: &[PackageRecord]) -> impl Iterator<Item = (&str, &str, &str)> {
    packages.iter().map(|judged| {
        (
            judged.name.as_str(),
            judged.version.as_str(),
            judged.values_digest.as_str(),
        )
    })
}

/// Whether a package has its proof.
#[must_use]
pub fn is_ready(judged: &PackageRecord) -> bool {
    judged.state == sluice_crds::run::PackageState::Ready
}

fn gate(hook: Hook, version: &str, hold: Option<Hold>) -> Gate {
    let open = hold.is_none();
    let (reason, message) = hold.map_or_else(Default::default, |hold| {
        (hold.reason.as_str().to_owned(), hold.message)
    });
    Gate {
        hook,
        version: version.to_owned(),
        open,
        reason,
        message,
    }
}

#[cfg(test)]
mod tests;
