//! Evidence record: basis of all hook decisions, computed from observed objects only.
//!
//! Hook calls are no input, because another replica may have received them.

mod holds;
mod swap;
mod ungated;
mod unseen;
mod urgent;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::run::{
    Gate, Hook, KappControllerMode, Outcome, PackageRecord, Phase, Rollback, SCHEMA, SupervisorAnswer, Swap,
    UpgradeRecord,
};

use crate::proof::Judgement;
use crate::reasons::{GateReason, Hold};
use crate::upgrade::course::{self, Draft, End, Judged, Situation, View, holds::pause as paused};
use crate::upgrade::hop::{ControlPlaneFacts, Plan, Progress, UpgradeDirection, WorkerFacts, progress};
use crate::upgrade::overrides::{self, Override, Overrides, Passed, Steps};
use crate::upgrade::rollback;
use crate::upgrade::swap::{SwapFacts, is_cancelled_swap};
use crate::version::same;

pub use self::holds::failed;
pub use self::swap::{ends_swap, is_pending, opens_swap};
pub use self::ungated::{Part, Ungated, ungated};
pub use self::unseen::held_for;
pub use self::urgent::is_urgent;
pub use crate::upgrade::course::{ClusterFacts, Workload, holds::class_of};

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
    /// Release of [`Self::hop`], from [`for_hop`](crate::upgrade::tkr::for_hop).
    pub tkr: Result<&'a str, &'a Hold>,
    /// Hop at the beginning of the reconcile, if one is known. That of the record is another one once its packages are proven.
    pub hop: Option<&'a str>,
    /// Reachability of the workload cluster.
    pub workload: Workload<'a>,
    /// Machines of another release of the Kubernetes version.
    pub swap: &'a SwapFacts,
    /// Rollback of the packages that is under way.
    pub rollback: Option<&'a Rollback>,
    /// Whether one waits until Cluster API has reconciled the cancellation.
    pub awaits_rollback: bool,
    /// Packages of the hop, as soon as they are known.
    pub packages: Option<PackageSet<'a>>,
    /// Hold from an error of the controller, if any.
    pub problem: Option<&'a Hold>,
    /// Overrides of its gates.
    pub overrides: Overrides<'a>,
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

impl<'a> Observed<'a> {
    fn situation(&'a self) -> Situation<'a> {
        Situation {
            cluster: &self.cluster,
            workers: self.workers,
            plan: self.plan,
            workload: &self.workload,
            now: self.now,
        }
    }
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
    let previous = of_cluster(previous, cluster.uid).map(Into::into);
    paused(previous, progress, cluster, bootstrap_pause(bootstrap_paused))
}

/// Computes the upgrade progress from one observation, ignoring the record of another Cluster.
#[must_use]
pub fn observed_progress(previous: Option<&UpgradeRecord>, seen: &Observed<'_>) -> Progress {
    if seen.rollback.is_some() {
        return rollback::progress(seen.cluster.topology_version);
    }
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

fn bootstrap_pause(paused: bool) -> Option<Hold> {
    paused.then(|| Hold::new(GateReason::BootstrapPaused, "the ClusterBootstrap is paused"))
}

fn step(previous: Option<&UpgradeRecord>, seen: &Observed<'_>) -> UpgradeRecord {
    let progress = observed_progress(previous, seen);
    let begins = begins(previous, seen, &progress);
    let (course, situation) = (previous.map(Into::into), seen.situation());
    let begins_rollback = begins && seen.rollback.is_some();
    let cancelled_swap = previous.is_some_and(is_cancelled_swap);
    let mut draft = Draft::of(course, situation, &progress, begins, cancelled_swap);
    let judged = fitting(previous, seen, &progress);
    let steps = Steps {
        progress: &progress,
        workers: seen.workers,
    };
    let target = (seen.cluster.topology_version, begins);
    let spent = overrides::spent(previous, seen.overrides, target, steps);
    let swap_before = previous.and_then(|record| record.swap.as_ref());
    let spent = overrides::with_earlier_of_swap(
        spent,
        swap_before,
        seen.swap.request.as_ref(),
        seen.overrides.cached,
    );
    let packages = Packages {
        seen,
        judged,
        spent: spent.as_deref(),
    };
    // The gates of the version were opened by the packages that go back.
    let of_gates = course.filter(|_| !begins_rollback);
    let view = View::new(of_gates, situation, &packages, &progress, begins);
    let is_closed = draft.outcome.is_some();
    draft.gates = if is_closed {
        view.with_deletion(draft.gates)
    } else {
        view.gates(&draft)
    };
    if seen.awaits_rollback && !is_closed {
        close_before_rollback(&mut draft.gates, &progress);
    }
    let swap = if is_closed {
        previous.and_then(|record| record.swap.clone())
    } else {
        swap::next(previous, &packages, &progress, &draft, begins)
    };
    draft.settling_since = settling_since(&draft, swap.as_ref(), seen.now);
    draft.begin(seen.now);
    let spent_overrides = if is_closed {
        previous.and_then(|record| record.spent_overrides.clone())
    } else {
        overrides::with_made(spent.clone(), (&draft.gates, swap.as_ref()), steps)
    };
    let (tkr, packages) = set(previous, seen, judged, &draft.hop);
    let of_hop = previous.filter(|previous| previous.hop.as_deref() == Some(draft.hop.as_str()));
    let proven = judged.is_some_and(|judged| judged.iter().all(Judgement::ready));
    let end = End {
        is_complete: !is_closed
            && proven
            && draft.is_at_target(situation, &progress)
            && draft.has_open(Hook::AfterClusterUpgrade, seen.cluster.topology_version)
            && swap.as_ref().is_none_or(swap::is_over),
        // A rollback before it may not be proven. The record then stays open.
        is_withdrawn: swap::is_cancelled(previous, seen, swap.as_ref(), &draft.to)
            && draft.has_open(Hook::AfterControlPlaneUpgrade, &draft.to),
        is_ready: !packages.is_empty() && packages.iter().all(is_ready),
        has_same_targets: of_hop.is_some_and(|previous| targets(&previous.packages).eq(targets(&packages))),
    };
    draft.close(course, &progress, end, seen.now);
    let rollback = rollback_of(previous, seen, &progress, is_closed);
    if rollback.is_some() && draft.outcome == Some(Outcome::Completed) {
        draft.outcome = Some(Outcome::RolledBack);
    }
    if begins_rollback && let Some(cancelled) = previous {
        // Both are one upgrade.
        draft.started_at.clone_from(&cancelled.started_at);
    }
    let (workload_uid, kapp_controller) = identity(previous, seen);
    UpgradeRecord {
        schema: SCHEMA,
        cluster_uid: seen.cluster.uid.to_owned(),
        observed_cluster_generation: seen.cluster.generation,
        observed_bootstrap_generation: seen.bootstrap.generation,
        workload_uid,
        kapp_controller,
        label: seen.cluster.label.to_owned(),
        from: draft.from,
        to: draft.to,
        hop: Some(draft.hop),
        tkr,
        gates: draft.gates,
        packages,
        started_at: draft.started_at,
        begun_at: draft.begun_at,
        ready_at: draft.ready_at,
        released_at: draft.released_at,
        settling_since: draft.settling_since,
        completed_at: draft.completed_at,
        outcome: draft.outcome,
        swap,
        supervisor: supervisor(previous, seen),
        rollback,
        spent_overrides,
    }
}

/// Returns the rollback of a record: the one under way, or that of the closed record. One that has begun stays while the version of the
/// control plane is not known.
fn rollback_of(
    previous: Option<&UpgradeRecord>,
    seen: &Observed<'_>,
    progress: &Progress,
    is_closed: bool,
) -> Option<Rollback> {
    let stays = |record: &&UpgradeRecord| {
        is_closed
            || record.outcome.is_none()
                && record.to == seen.cluster.topology_version
                && record.label == seen.cluster.label
                && record.hop.as_deref() == Some(progress.hop.as_str())
    };
    let begun = || previous.filter(stays)?.rollback.as_ref();
    seen.rollback.filter(|_| !is_closed).or_else(begun).cloned()
}

/// Judged packages of a Cluster, as the gates need them.
struct Packages<'a> {
    seen: &'a Observed<'a>,
    /// Packages, if they were judged for this hop, release and stage.
    judged: Option<&'a [Judgement]>,
    /// UIDs of the overrides that do not count; `None` if none counts.
    spent: Option<&'a [String]>,
}

impl Judged for Packages<'_> {
    const HOLDS_ALL_HOOKS: bool = true;

    fn pause(&self) -> Option<Hold> {
        bootstrap_pause(self.seen.bootstrap.paused)
    }

    fn inputs(&self, progress: &Progress, passed: Passed<'_>) -> Option<Hold> {
        holds::inputs(self.seen, progress, passed)
    }

    fn unproven(&self, phases: &[Phase], passed: Passed<'_>) -> Option<Hold> {
        let hold = holds::packages(self.judged, phases, passed)?;
        Some(match self.seen.rollback {
            Some(_) if hold.reason == GateReason::PackagesNotReady => {
                Hold::new(GateReason::RollbackInProgress, hold.message)
            }
            _ => hold,
        })
    }

    fn overrides(&self) -> impl Iterator<Item = &Override> {
        overrides::of_upgrade(self.spent, self.seen.overrides)
    }

    fn is_of_release(&self, by: &Override, progress: &Progress) -> bool {
        let is_of_hop = same(&by.version, &progress.hop);
        let is_resolved = !is_of_hop || self.seen.hop == Some(progress.hop.as_str());
        is_resolved && self.seen.tkr.is_ok_and(|tkr| tkr == by.release)
    }

    fn settling(&self, since: Option<&Time>) -> Option<Hold> {
        holds::settling(self.judged, self.seen, since)
    }

    /// Values may depend on infrastructure that is only created afterwards.
    fn uncreated(&self) -> Option<Hold> {
        let problem = self.seen.problem;
        problem
            .filter(|hold| hold.reason != GateReason::ValuesNotReady)
            .cloned()
    }

    fn uninstalled(&self) -> Option<Hold> {
        let unknown = || {
            let message = "waiting for the packages to be uninstalled";
            Hold::new(GateReason::UninstallInProgress, message)
        };
        (!self.seen.uninstalled).then(|| self.seen.problem.cloned().unwrap_or_else(unknown))
    }
}

/// Closes the gates that release workers to the version of the control plane: packages would go back while they roll.
fn close_before_rollback(gates: &mut [Gate], progress: &Progress) {
    let is_of_version = |gate: &Gate| {
        progress
            .settled_at()
            .is_some_and(|version| same(version, &gate.version))
    };
    let releases_workers = |gate: &&mut Gate| {
        matches!(
            gate.hook,
            Hook::AfterControlPlaneUpgrade | Hook::BeforeWorkersUpgrade
        )
    };
    for gate in gates.iter_mut().filter(releases_workers) {
        if gate.open && is_of_version(gate) {
            *gate = course::gate(gate.hook, &gate.version, Some(rollback::not_reconciled()));
        }
    }
}

/// Returns the time at which the packages of an open record began to settle. A run that fails meanwhile does not restart it.
fn settling_since(record: &Draft, swap: Option<&Swap>, now: Timestamp) -> Option<Time> {
    let is_settling = |reason: &str| reason == GateReason::PackagesNotSettled.as_str();
    let settles = |gate: &Gate| gate.hook == Hook::AfterClusterUpgrade && is_settling(&gate.reason);
    let settles = record.gates.iter().any(settles) || swap.is_some_and(|swap| is_settling(&swap.reason));
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

/// Whether a new upgrade begins. A release with another package set for the same Kubernetes version is an upgrade without any hook.
fn begins(previous: Option<&UpgradeRecord>, seen: &Observed<'_>, progress: &Progress) -> bool {
    if let Some(rollback) = seen.rollback {
        let same = |previous: &UpgradeRecord| previous.rollback.as_ref() == Some(rollback);
        return !previous.is_some_and(same);
    }
    let is_other = |tkr| previous.is_some_and(|previous| previous.tkr.as_deref() != Some(tkr));
    course::begins(
        previous.map(Into::into),
        seen.cluster.topology_version,
        seen.swap.is_requested(),
        || progress.settled_at_hop() && seen.tkr.is_ok_and(is_other),
        previous.is_some_and(is_cancelled_swap),
    )
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
    let led_there = |record: &UpgradeRecord| {
        let from = record.from.as_deref();
        record.outcome == Some(Outcome::Cancelled)
            || record.rollback.is_some()
            || record.outcome.is_none() && from.is_none_or(|from| !same(from, to))
    };
    progress.settled_at_hop()
        && progress.direction == UpgradeDirection::Forward
        && same(&progress.hop, to)
        && workers.iter().all(|worker| worker.has_reached(to))
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
        seen.rollback.is_none()
            && !seen.workers.iter().any(|worker| worker.rolling)
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

/// Returns the release of the hop and its packages.
fn set(
    previous: Option<&UpgradeRecord>,
    seen: &Observed<'_>,
    judged: Option<&[Judgement]>,
    hop: &str,
) -> (Option<String>, Vec<PackageRecord>) {
    let of_hop = previous.filter(|record| record.hop.as_deref() == Some(hop));
    let tkr = match seen.tkr {
        Ok(tkr) => Some(tkr.to_owned()),
        Err(_) => of_hop.and_then(|record| record.tkr.clone()),
    };
    let packages = match judged {
        Some(judged) => judged.iter().map(|judgement| judgement.record.clone()).collect(),
        None => of_hop
            .filter(|record| record.tkr == tkr)
            .map(|record| record.packages.clone())
            .unwrap_or_default(),
    };
    (tkr, packages)
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

#[cfg(test)]
mod tests;
