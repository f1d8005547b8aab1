//! Course of an upgrade: the part of an evidence record that does not depend on the judged objects.
//!
//! Records of packages and of UpgradeGates share it: both follow the same control plane and workers, and answer the same hooks.

mod gates;
pub(crate) mod holds;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::{
    lifecycle::GateRecord,
    run::{Gate, Hook, Outcome, Phase, UpgradeRecord},
};

pub(crate) use self::gates::{ALL, View};
use super::hop::{Plan, Progress, UpgradeDirection, WorkerFacts};
use super::overrides::{Override, Passed};
use crate::reasons::Hold;
use crate::version::same;

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

/// Common fields of a record.
#[derive(Clone, Copy, Debug)]
pub struct Course<'a> {
    /// Version of the control plane when the upgrade began.
    pub from: Option<&'a str>,
    /// Target of the upgrade.
    pub to: &'a str,
    /// Version that Cluster API writes to the control plane next.
    pub hop: Option<&'a str>,
    /// UID of the workload cluster.
    pub workload_uid: Option<&'a str>,
    /// Gates.
    pub gates: &'a [Gate],
    /// Outcome of a closed record.
    pub outcome: Option<Outcome>,
    times: Times<'a>,
}

impl Course<'_> {
    /// Whether writes for the upgrade were permitted at some point.
    fn has_begun(&self) -> bool {
        self.times.begun.is_some()
    }
}

/// Times of a record.
#[derive(Clone, Copy, Debug)]
struct Times<'a> {
    started: Option<&'a Time>,
    begun: Option<&'a Time>,
    ready: Option<&'a Time>,
    released: Option<&'a Time>,
    settling: Option<&'a Time>,
    completed: Option<&'a Time>,
}

impl<'a> From<&'a UpgradeRecord> for Course<'a> {
    fn from(record: &'a UpgradeRecord) -> Self {
        Self {
            from: record.from.as_deref(),
            to: &record.to,
            hop: record.hop.as_deref(),
            workload_uid: record.workload_uid.as_deref(),
            gates: &record.gates,
            outcome: record.outcome,
            times: Times {
                started: record.started_at.as_ref(),
                begun: record.begun_at.as_ref(),
                ready: record.ready_at.as_ref(),
                released: record.released_at.as_ref(),
                settling: record.settling_since.as_ref(),
                completed: record.completed_at.as_ref(),
            },
        }
    }
}

impl<'a> From<&'a GateRecord> for Course<'a> {
    fn from(record: &'a GateRecord) -> Self {
        Self {
            from: record.from.as_deref(),
            to: &record.to,
            hop: record.hop.as_deref(),
            workload_uid: record.workload_uid.as_deref(),
            gates: &record.gates,
            outcome: record.outcome,
            times: Times {
                started: record.started_at.as_ref(),
                begun: record.begun_at.as_ref(),
                ready: record.ready_at.as_ref(),
                released: record.released_at.as_ref(),
                settling: None,
                completed: record.completed_at.as_ref(),
            },
        }
    }
}

/// Observed state of a Cluster that every record depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'a> {
    pub(crate) cluster: &'a ClusterFacts<'a>,
    pub(crate) workers: &'a [WorkerFacts],
    pub(crate) plan: &'a Plan,
    pub(crate) workload: &'a Workload<'a>,
    pub(crate) now: Timestamp,
}

/// Judged objects of a record, as its gates need them.
pub(crate) trait Judged {
    /// Whether the record answers every hook. Otherwise it answers only those before and after the step of the control plane, and the one
    /// before that of the workers.
    const HOLDS_ALL_HOOKS: bool;

    /// Returns the hold by a pause of another object than the Cluster.
    fn pause(&self) -> Option<Hold> {
        None
    }

    /// Returns the hold of invalid inputs.
    fn inputs(&self, progress: &Progress, passed: Passed<'_>) -> Option<Hold>;

    /// Whether the workload cluster has objects of these phases.
    fn needs_workload(&self, _phases: &[Phase]) -> bool {
        true
    }

    /// Returns the hold of objects of these phases without a proof.
    fn unproven(&self, phases: &[Phase], passed: Passed<'_>) -> Option<Hold>;

    /// Returns the overrides that may open gates of this upgrade.
    fn overrides(&self) -> impl Iterator<Item = &Override> {
        std::iter::empty()
    }

    /// Whether an override is for the release of the hop.
    fn is_of_release(&self, _by: &Override, _progress: &Progress) -> bool {
        false
    }

    /// Returns the hold of objects that have not settled, with the time since which only that is missing.
    fn settling(&self, _since: Option<&Time>) -> Option<Hold> {
        None
    }

    /// Returns the hold of the creation of the Cluster.
    fn uncreated(&self) -> Option<Hold> {
        None
    }

    /// Returns the hold of the deletion of the Cluster.
    fn uninstalled(&self) -> Option<Hold> {
        None
    }
}

/// Whether a new upgrade begins: there is no record, or the record is closed and an input has changed. `is_requested` tells that of
/// another target than a Kubernetes version, and `is_of_another_set` that of other judged objects at the version of the control plane.
pub(crate) fn begins(
    previous: Option<Course<'_>>,
    to: &str,
    is_requested: bool,
    is_of_another_set: impl FnOnce() -> bool,
    is_cancelled_swap: bool,
) -> bool {
    let Some(previous) = previous else { return true };
    let moved = previous.to != to;
    match previous.outcome {
        Some(_) if moved || is_requested => true,
        None => false,
        Some(Outcome::Cancelled) if !is_cancelled_swap => false,
        Some(_) => is_of_another_set(),
    }
}

/// Common fields of the next record.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) from: Option<String>,
    pub(crate) to: String,
    pub(crate) hop: String,
    pub(crate) gates: Vec<Gate>,
    pub(crate) started_at: Option<Time>,
    pub(crate) begun_at: Option<Time>,
    pub(crate) ready_at: Option<Time>,
    pub(crate) released_at: Option<Time>,
    pub(crate) settling_since: Option<Time>,
    pub(crate) completed_at: Option<Time>,
    pub(crate) outcome: Option<Outcome>,
}

/// End of an upgrade.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
pub(crate) struct End {
    /// Control plane, workers and judged objects are at the target.
    pub(crate) is_complete: bool,
    /// The target was withdrawn without a change of the Kubernetes version.
    pub(crate) is_withdrawn: bool,
    /// All judged objects are proven, and there are some.
    pub(crate) is_ready: bool,
    /// The previous record is about the same targets of the hop.
    pub(crate) has_same_targets: bool,
}

impl Draft {
    /// Returns the fields of the next record without its gates, which a closed record keeps.
    pub(crate) fn of(
        previous: Option<Course<'_>>,
        seen: Situation<'_>,
        progress: &Progress,
        begins: bool,
        is_cancelled_swap: bool,
    ) -> Self {
        let continued = previous.filter(|_| !begins);
        let closed = continued.filter(|record| stays_closed(*record, progress, is_cancelled_swap));
        let hop = closed.and_then(|record| record.hop).unwrap_or(&progress.hop);
        // A first installation has no previous version until its target changes.
        let moved_on = progress.settled_at().filter(|_| !progress.taken);
        let from = match continued {
            Some(record) => record.from.or(moved_on),
            None => progress.stage(),
        };
        let to = seen.cluster.topology_version;
        let times = continued.map(|record| record.times);
        Self {
            from: from.map(str::to_owned),
            to: to.to_owned(),
            hop: hop.to_owned(),
            gates: closed.map(|record| record.gates.to_vec()).unwrap_or_default(),
            started_at: times
                .and_then(|times| times.started.cloned())
                .or(Some(Time(seen.now))),
            begun_at: times.and_then(|times| times.begun.cloned()),
            ready_at: None,
            released_at: None,
            settling_since: continued
                .filter(|record| record.to == to)
                .and_then(|record| record.times.settling.cloned()),
            completed_at: times.and_then(|times| times.completed.cloned()),
            outcome: closed.and_then(|record| record.outcome),
        }
    }

    /// Whether nothing prevents writes for the hop. Gates of other versions belong to an earlier upgrade.
    fn has_begun(&self) -> bool {
        self.outcome.is_none()
            && self.gates.iter().any(|gate| {
                gate.hook == Hook::BeforeClusterUpgrade
                    && same(&self.hop, &gate.version)
                    && !holds::is_pause(gate)
            })
    }

    /// Notes the time at which nothing prevents writes for the hop.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        if self.begun_at.is_none() && self.has_begun() {
            self.begun_at = Some(Time(now));
        }
    }

    /// Closes the record if the upgrade has ended, and stamps it.
    pub(crate) fn close(
        &mut self,
        previous: Option<Course<'_>>,
        progress: &Progress,
        end: End,
        now: Timestamp,
    ) {
        let now = || Some(Time(now));
        let of_hop = previous.filter(|previous| previous.hop == Some(self.hop.as_str()));
        let times = of_hop.map(|previous| previous.times);
        if self.outcome.is_some() {
            self.ready_at = times.and_then(|times| times.ready.cloned());
            self.released_at = times.and_then(|times| times.released.cloned());
            return;
        }
        if progress.direction == UpgradeDirection::Cancelled || end.is_withdrawn {
            self.outcome = Some(Outcome::Cancelled);
        } else if end.is_complete {
            self.outcome = Some(Outcome::Completed);
        }
        if self.outcome == Some(Outcome::Completed) || end.is_withdrawn {
            self.gates.retain(|gate| gate.version == self.to);
            for gate in &mut self.gates {
                if gate.hook != Hook::BeforeClusterDelete {
                    *gate = self::gate(gate.hook, &gate.version, None);
                }
            }
        }
        self.settling_since = self.settling_since.take().filter(|_| self.outcome.is_none());
        self.completed_at = self.outcome.and_then(|_| self.completed_at.take().or_else(now));
        self.released_at = progress
            .taken
            .then(|| times.and_then(|times| times.released.cloned()).or_else(now))
            .flatten();
        let same_targets = times.filter(|_| end.has_same_targets);
        self.ready_at = end
            .is_ready
            .then(|| same_targets.and_then(|times| times.ready.cloned()).or_else(now))
            .flatten();
    }

    /// Whether control plane and workers are at the target.
    pub(crate) fn is_at_target(&self, seen: Situation<'_>, progress: &Progress) -> bool {
        progress.settled_at_hop() && self.hop == self.to && !seen.workers.iter().any(|worker| worker.rolling)
    }

    /// Whether a gate of this hook is open for a version.
    pub(crate) fn has_open(&self, hook: Hook, version: &str) -> bool {
        self.gates
            .iter()
            .any(|gate| gate.open && gate.hook == hook && gate.version == version)
    }
}

/// Whether a closed record stays unchanged. The hooks of the version that the control plane runs may still need a cancelled record,
/// unless that version is currently unknown.
fn stays_closed(record: Course<'_>, progress: &Progress, is_cancelled_swap: bool) -> bool {
    match record.outcome {
        None => false,
        Some(Outcome::Completed | Outcome::RolledBack) => true,
        Some(Outcome::Cancelled) => progress.settled_at().is_none() || is_cancelled_swap,
    }
}

/// Whether the gate is open, and the control plane or workers wait for it.
pub(crate) fn releases_step(gate: &Gate) -> bool {
    use Hook::{
        AfterControlPlaneUpgrade, BeforeClusterUpgrade, BeforeControlPlaneUpgrade, BeforeWorkersUpgrade,
    };
    let hooks = [
        BeforeClusterUpgrade,
        BeforeControlPlaneUpgrade,
        AfterControlPlaneUpgrade,
        BeforeWorkersUpgrade,
    ];
    gate.open && hooks.contains(&gate.hook)
}

/// Whether the hook comes before the control plane takes the version.
pub(crate) fn is_before_control_plane(hook: Hook) -> bool {
    matches!(hook, Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade)
}

/// Whether the previous record has this gate open, by a proof or by the same override. Otherwise a gate would stay open by evidence that
/// no read has confirmed.
pub(crate) fn was_open(previous: Option<Course<'_>>, gate: &Gate) -> bool {
    fn evidence(gate: &Gate) -> (Hook, &str, Option<&str>) {
        let by = gate.overridden_by.as_ref().map(|by| by.uid.as_str());
        (gate.hook, &gate.version, by)
    }
    let mut gates = previous.into_iter().flat_map(|record| record.gates);
    gates.any(|other| other.open && evidence(other) == evidence(gate))
}

/// Whether a gate opens that releases the control plane or workers.
pub(crate) fn opens_step(previous: Option<Course<'_>>, gates: &[Gate]) -> bool {
    let mut open = gates.iter().filter(|gate| releases_step(gate));
    open.any(|gate| !was_open(previous, gate))
}

/// Returns the release lag of a hop: the time from the start of the reconcile that observed the last proof until the control plane is observed
/// at the version. `proven` keeps that start, with the version, from one reconcile to the next.
pub(crate) fn release_lag(
    proven: &mut Option<(String, Instant)>,
    previous: Option<Course<'_>>,
    record: Course<'_>,
    now: Instant,
) -> Option<Duration> {
    let known = proven.take();
    let hop = record.hop.filter(|_| record.outcome.is_none())?;
    let known = known.filter(|(version, _)| version == hop);
    if record.times.released.is_some() {
        return known.map(|(_, since)| now.saturating_duration_since(since));
    }
    let is_open = |record: Course<'_>| {
        let mut gates = record.gates.iter();
        gates.any(|gate| gate.open && gate.hook == Hook::BeforeControlPlaneUpgrade && gate.version == hop)
    };
    if is_open(record) {
        // For a gate that was open before this process observed it, the time of its proof is unknown.
        let opens = !previous.is_some_and(is_open);
        let begins = || opens.then(|| (hop.to_owned(), now));
        *proven = known.or_else(begins);
    }
    None
}

/// Closes the gates that open, or stay open because of the version of the control plane.
pub(crate) fn withhold(gates: &mut [Gate], previous: Option<Course<'_>>, hold: &Hold) {
    let open = gates.iter_mut().filter(|gate| gate.open);
    for gate in open.filter(|gate| gate.hook != Hook::BeforeClusterDelete) {
        if is_before_control_plane(gate.hook) || !was_open(previous, gate) {
            gate.open = false;
            gate.reason = hold.reason.to_string();
            gate.message.clone_from(&hold.message);
            gate.overridden_by = None;
        }
    }
}

/// Returns the gate of a hook for a version.
pub(crate) fn gate(hook: Hook, version: &str, hold: Option<Hold>) -> Gate {
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
        overridden_by: None,
    }
}
