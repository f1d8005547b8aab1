//! Gates of a record, version by version, in the order of the hook calls of Cluster API.

use sluice_crds::run::{Gate, GateOverride, Hook, Phase};

use super::{Course, Draft, Judged, Situation, gate, holds};
use crate::reasons::Hold;
use crate::upgrade::hop::{ControlPlanePhase, Progress, UpgradeDirection};
use crate::upgrade::overrides::{Passed, are_workers_at, first_that, gate_of, has_worker_at};
use crate::version::{reached, same};

const BEFORE: &[Phase] = &[Phase::BeforeControlPlane];
pub(crate) const ALL: &[Phase] = &[Phase::BeforeControlPlane, Phase::AfterControlPlane];

/// Verdict of a gate: hook, version, and its state.
type Verdict<'a> = (Hook, &'a str, State);

/// State of a gate.
#[derive(Clone, Debug, Default)]
struct State {
    /// The hold, if it is closed.
    hold: Option<Hold>,
    /// The override without which it would be closed, if it is open by one.
    by: Option<GateOverride>,
}

impl State {
    const OPEN: Self = Self { hold: None, by: None };

    /// Returns the state of a gate that an override keeps open.
    fn by(by: &GateOverride) -> Self {
        Self {
            hold: None,
            by: Some(by.clone()),
        }
    }

    /// Returns this state if it is closed, otherwise another one.
    fn or_else(&self, other: impl FnOnce() -> Self) -> Self {
        match &self.hold {
            Some(_) => self.clone(),
            None => other(),
        }
    }
}

impl From<Option<Hold>> for State {
    fn from(hold: Option<Hold>) -> Self {
        Self { hold, by: None }
    }
}

/// Inputs of the gates.
pub(crate) struct View<'a, J> {
    seen: Situation<'a>,
    judged: &'a J,
    progress: &'a Progress,
    pause: Option<Hold>,
    /// Gates of the previous record that still apply.
    carried: Vec<&'a Gate>,
}

impl<'a, J: Judged> View<'a, J> {
    pub(crate) fn new(
        previous: Option<Course<'a>>,
        seen: Situation<'a>,
        judged: &'a J,
        progress: &'a Progress,
        begins: bool,
    ) -> Self {
        // A new upgrade keeps the gates of the version that the control plane runs: a hook of it may be pending.
        let still_speaks = |gate: &&Gate| {
            !begins
                || progress
                    .settled_at()
                    .is_some_and(|version| same(version, &gate.version))
        };
        let carried = previous
            .map(|record| record.gates.iter().filter(still_speaks).collect())
            .unwrap_or_default();
        let pause = holds::pause(previous, progress, seen.cluster, judged.pause());
        Self {
            seen,
            judged,
            progress,
            pause,
            carried,
        }
    }

    /// Returns all gates of the record.
    pub(crate) fn gates(&self, record: &Draft) -> Vec<Gate> {
        let next = self.held_by_workers();
        let mut verdicts: Vec<Verdict<'_>> = self
            .passed()
            .into_iter()
            .flat_map(|version| self.of_passed(version))
            .collect();
        let ahead = matches!(
            self.progress.direction,
            UpgradeDirection::Forward | UpgradeDirection::PlanUnknown
        );
        let hop_has_gates = ahead || self.progress.taken;
        if hop_has_gates {
            verdicts.extend(self.of_hop(record));
        }
        if self.at_target() && J::HOLDS_ALL_HOOKS {
            let hold = self.kept(Hook::AfterClusterUpgrade, &record.to, || {
                let workers_done = verdicts.iter().find(|(hook, version, _)| {
                    *hook == Hook::AfterWorkersUpgrade && same(version, &record.to)
                });
                workers_done
                    .and_then(|(_, _, state)| state.hold.clone())
                    .or_else(|| self.pause.clone())
                    .or_else(|| self.judged.settling(record.settling_since.as_ref()))
                    .into()
            });
            verdicts.push((Hook::AfterClusterUpgrade, &record.to, hold));
        }
        if let Some((version, hold)) = &next {
            for hook in [Hook::BeforeClusterUpgrade, Hook::BeforeControlPlaneUpgrade] {
                verdicts.push((hook, version, Some(hold.clone()).into()));
            }
        }
        let gates = verdicts
            .into_iter()
            .map(|(hook, version, state)| Gate {
                overridden_by: state.by,
                ..gate(hook, version, state.hold)
            })
            .collect();
        self.with_deletion(gates)
    }

    /// Adds the gate for deletion, if the Cluster is being deleted.
    pub(crate) fn with_deletion(&self, mut gates: Vec<Gate>) -> Vec<Gate> {
        gates.retain(|gate| gate.hook != Hook::BeforeClusterDelete);
        if self.seen.cluster.deleting && J::HOLDS_ALL_HOOKS {
            gates.push(gate(
                Hook::BeforeClusterDelete,
                self.seen.cluster.topology_version,
                self.judged.uninstalled(),
            ));
        }
        gates
    }

    /// Returns the step after the hop, and its hold, while workers at the hop may roll forever. Its gates name them; otherwise the
    /// step has none yet.
    fn held_by_workers(&self) -> Option<(String, Hold)> {
        let Progress { hop, direction, .. } = self.progress;
        let is_left =
            *direction == UpgradeDirection::Forward && self.progress.settled_at_hop() && !self.at_target();
        let hold = holds::endless_rollout(self.seen.workers, hop).filter(|_| is_left)?;
        let next = self
            .seen
            .plan
            .next_step(hop, self.seen.cluster.topology_version)?;
        Some((next, hold))
    }

    /// Whether the hop is the last one, or none is left.
    fn at_target(&self) -> bool {
        match self.progress.direction {
            UpgradeDirection::Forward => same(&self.progress.hop, self.seen.cluster.topology_version),
            UpgradeDirection::Cancelled => true,
            UpgradeDirection::Downgrade | UpgradeDirection::PlanUnknown => false,
        }
    }

    /// Returns the versions that the control plane has reached, the running one last.
    fn passed(&self) -> Vec<&str> {
        let hop = self.progress.hop.as_str();
        let mut versions: Vec<&str> = Vec::new();
        let proven = |gate: &&&Gate| gate.hook == Hook::AfterControlPlaneUpgrade && gate.open;
        for gate in self.carried.iter().filter(proven) {
            if !same(&gate.version, hop) && !versions.contains(&gate.version.as_str()) {
                versions.push(&gate.version);
            }
        }
        // A control plane that went back to an earlier version has to reach later ones again.
        if let Some(stage) = self.progress.stage() {
            versions.retain(|version| reached(stage, version));
        }
        if let Some(running) = self.progress.settled_at().filter(|version| !same(version, hop)) {
            versions.retain(|version| !same(version, running));
            versions.push(running);
        }
        versions
    }

    /// Returns the gates of a version below the hop. The control plane has reached it, so BeforeClusterUpgrade and
    /// BeforeControlPlaneUpgrade have nothing left to hold. The other three are recorded as open, unless the record was lost or the
    /// target has changed: otherwise the judgements of the hop decide, proven on the running version.
    fn of_passed<'v>(&self, version: &'v str) -> Vec<Verdict<'v>> {
        let before = [Hook::BeforeClusterUpgrade, Hook::BeforeControlPlaneUpgrade]
            .into_iter()
            .filter(|hook| self.carries(*hook, version))
            .map(|hook| (hook, version, State::OPEN));
        let unproven = |passed: Passed<'_>| self.unproven(false, ALL, passed);
        let after_control_plane = self.kept(Hook::AfterControlPlaneUpgrade, version, || {
            self.opened(Hook::AfterControlPlaneUpgrade, version, unproven)
        });
        // A package may have failed since the control plane was released.
        let before_workers = after_control_plane.or_else(|| {
            self.kept(Hook::BeforeWorkersUpgrade, version, || {
                self.opened(Hook::BeforeWorkersUpgrade, version, unproven)
            })
        });
        let after_workers = J::HOLDS_ALL_HOOKS.then(|| {
            let hold = || before_workers.hold.clone().into();
            let before = [&after_control_plane, &before_workers];
            let state = self.after_workers(version, before, hold);
            (Hook::AfterWorkersUpgrade, version, state)
        });
        let after = [
            (Hook::AfterControlPlaneUpgrade, version, after_control_plane),
            (Hook::BeforeWorkersUpgrade, version, before_workers),
        ];
        before.chain(after).chain(after_workers).collect()
    }

    /// Returns the gates of the hop.
    fn of_hop(&self, record: &Draft) -> Vec<Verdict<'_>> {
        let hop = self.progress.hop.as_str();
        let mut gates = Vec::new();
        if record.from.is_none() {
            if J::HOLDS_ALL_HOOKS {
                let hold = (!self.progress.taken).then(|| self.uncreated()).flatten();
                gates.push((Hook::BeforeClusterCreate, hop, hold.into()));
            }
        } else {
            for hook in [Hook::BeforeClusterUpgrade, Hook::BeforeControlPlaneUpgrade] {
                let state = if self.progress.taken {
                    State::OPEN
                } else {
                    self.opened(hook, hop, |passed| {
                        self.unproven(self.was_open(hook, hop, passed), BEFORE, passed)
                    })
                };
                gates.push((hook, hop, state));
            }
        }
        let after_control_plane = self.kept(Hook::AfterControlPlaneUpgrade, hop, || {
            self.opened(Hook::AfterControlPlaneUpgrade, hop, |passed| {
                holds::control_plane(self.progress).or_else(|| self.unproven(false, ALL, passed))
            })
        });
        let before_workers = after_control_plane.or_else(|| {
            let state = self.opened(Hook::BeforeWorkersUpgrade, hop, |passed| {
                self.pause
                    .clone()
                    .or_else(|| self.judged.inputs(self.progress, passed))
                    .or_else(|| {
                        // An open gate stays open while the workload cluster does not respond, however long; but silence opens no gate.
                        let was_open = self.was_open(Hook::BeforeWorkersUpgrade, hop, passed);
                        let silent = (!was_open && self.judged.needs_workload(ALL))
                            .then(|| holds::workload(self.seen.workload, false, self.seen.now))
                            .flatten();
                        passed.left(silent)
                    })
                    .or_else(|| self.judged.unproven(ALL, passed))
            });
            let carried = self.carried(Hook::BeforeWorkersUpgrade, hop);
            let by = carried.filter(|gate| gate.open);
            match by.and_then(|gate| gate.overridden_by.as_ref()) {
                Some(by) => self.with_made(state, by, hop),
                None => state,
            }
        });
        let after_workers = || {
            self.after_workers(hop, [&after_control_plane, &before_workers], || {
                let hold = before_workers.hold.clone();
                hold.or_else(|| holds::workers(self.seen.workers, hop)).into()
            })
        };
        let after_workers = J::HOLDS_ALL_HOOKS.then(|| (Hook::AfterWorkersUpgrade, hop, after_workers()));
        gates.push((Hook::AfterControlPlaneUpgrade, hop, after_control_plane));
        gates.push((Hook::BeforeWorkersUpgrade, hop, before_workers));
        gates.extend(after_workers);
        gates
    }

    /// Returns the hold of the creation of the Cluster.
    fn uncreated(&self) -> Option<Hold> {
        self.pause.clone().or_else(|| self.judged.uncreated())
    }

    /// Returns the hold of judgements of these phases that lack a proof on the running API server.
    fn unproven(&self, was_open: bool, phases: &[Phase], passed: Passed<'_>) -> Option<Hold> {
        self.pause
            .clone()
            .or_else(|| self.judged.inputs(self.progress, passed))
            .or_else(|| match self.progress.phase {
                ControlPlanePhase::Creating => holds::control_plane(self.progress),
                _ => None,
            })
            .or_else(|| {
                let needed = self.judged.needs_workload(phases);
                let silent = needed
                    .then(|| holds::workload(self.seen.workload, was_open, self.seen.now))
                    .flatten();
                passed.left(silent)
            })
            .or_else(|| self.judged.unproven(phases, passed))
    }

    /// Returns the state of a gate: open if nothing holds it, or if nothing does that one override leaves.
    fn opened(&self, hook: Hook, version: &str, hold: impl Fn(Passed<'_>) -> Option<Hold>) -> State {
        let Some(objection) = hold(Passed::NONE) else {
            return State::OPEN;
        };
        // Gates of an earlier version wait for the packages of the hop, too: the override names their release.
        let overrides = self.judged.overrides().filter(|by| {
            gate_of(hook) == Some(by.gate)
                && by.version == version
                && self.judged.is_of_release(by, self.progress)
        });
        let before = self.carried(hook, version);
        let before = before.and_then(|gate| gate.overridden_by.as_ref());
        match first_that(overrides, before, |by| hold(Passed(Some(by))).is_none()) {
            Some(by) => State {
                hold: None,
                by: Some(by),
            },
            None => Some(objection).into(),
        }
    }

    /// Returns the state of a gate that never closes again, unless the control plane went back below its version, or the override that has
    /// opened it has no effect any more before the step was made.
    fn kept(&self, hook: Hook, version: &str, state: impl FnOnce() -> State) -> State {
        let step_was_made = self.progress.taken || !same(version, &self.progress.hop);
        let carried = self
            .carried(hook, version)
            .filter(|gate| gate.open && step_was_made);
        match carried.map(|gate| &gate.overridden_by) {
            Some(None) => State::OPEN,
            Some(Some(by)) => {
                let state = self.with_made(state(), by, version);
                match state.hold {
                    Some(_) if self.is_usable(by) => State::by(by),
                    _ => state,
                }
            }
            None => state(),
        }
    }

    /// Returns the state of gate AfterWorkersUpgrade. It closes again with gates before it that an override has opened.
    fn after_workers(&self, version: &str, before: [&State; 2], state: impl FnOnce() -> State) -> State {
        let hooks = [Hook::AfterControlPlaneUpgrade, Hook::BeforeWorkersUpgrade];
        let was_overridden = hooks.iter().any(|hook| {
            self.carried(*hook, version)
                .is_some_and(|gate| gate.overridden_by.is_some())
        });
        if was_overridden || before.iter().any(|state| state.by.is_some()) {
            state()
        } else {
            self.kept(Hook::AfterWorkersUpgrade, version, state)
        }
    }

    /// Whether an override may be used.
    fn is_usable(&self, by: &GateOverride) -> bool {
        self.judged.overrides().any(|usable| usable.by.uid == by.uid)
    }

    /// Returns the state of a gate of workers that this override has opened. The gate stays open once workers have the version. No other
    /// override is used once all have it; before, hooks still need one that may be used.
    fn with_made(&self, state: State, by: &GateOverride, version: &str) -> State {
        let is_proven = state.hold.is_none() && state.by.is_none();
        if !is_proven && are_workers_at(self.seen.workers, version)
            || state.hold.is_some() && has_worker_at(self.seen.workers, version)
        {
            State::by(by)
        } else {
            state
        }
    }

    fn carried(&self, hook: Hook, version: &str) -> Option<&'a Gate> {
        let mut carried = self.carried.iter();
        carried
            .find(|gate| gate.hook == hook && same(&gate.version, version))
            .copied()
    }

    /// Whether a gate was open by a proof, or, if an override is tried, also by one.
    fn was_open(&self, hook: Hook, version: &str, passed: Passed<'_>) -> bool {
        self.carried(hook, version)
            .is_some_and(|gate| gate.open && (gate.overridden_by.is_none() || passed.0.is_some()))
    }

    fn carries(&self, hook: Hook, version: &str) -> bool {
        self.carried(hook, version).is_some()
    }
}
