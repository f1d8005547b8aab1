//! Gates of a record, version by version, in the order of the hook calls of Cluster API.

use sluice_crds::run::{Gate, Hook, Phase};

use super::{Course, Draft, Judged, Situation, gate, holds};
use crate::reasons::Hold;
use crate::upgrade::hop::{ControlPlanePhase, Progress, UpgradeDirection};
use crate::version::{reached, same};

const BEFORE: &[Phase] = &[Phase::BeforeControlPlane];
pub(crate) const ALL: &[Phase] = &[Phase::BeforeControlPlane, Phase::AfterControlPlane];

/// Verdict of a gate: hook, version, and the hold if it is closed.
type Verdict<'a> = (Hook, &'a str, Option<Hold>);

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
                    .and_then(|(_, _, hold)| hold.clone())
                    .or_else(|| self.pause.clone())
                    .or_else(|| self.judged.settling(record.settling_since.as_ref()))
            });
            verdicts.push((Hook::AfterClusterUpgrade, &record.to, hold));
        }
        if let Some((version, hold)) = &next {
            for hook in [Hook::BeforeClusterUpgrade, Hook::BeforeControlPlaneUpgrade] {
                verdicts.push((hook, version, Some(hold.clone())));
            }
        }
        let gates = verdicts
            .into_iter()
            .map(|(hook, version, hold)| gate(hook, version, hold))
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

    /// Returns the step after the hop, and its hold, while workers at the hop report another build of it. Its gates name both versions;
    /// otherwise the step has none yet.
    fn held_by_workers(&self) -> Option<(String, Hold)> {
        let Progress { hop, direction, .. } = self.progress;
        let is_left =
            *direction == UpgradeDirection::Forward && self.progress.settled_at_hop() && !self.at_target();
        let hold = holds::other_build(self.seen.workers, hop).filter(|_| is_left)?;
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
            .map(|hook| (hook, version, None));
        let after_control_plane = self.kept(Hook::AfterControlPlaneUpgrade, version, || {
            self.unproven(false, ALL)
        });
        // A package may have failed since the control plane was released.
        let before_workers = after_control_plane
            .clone()
            .or_else(|| self.kept(Hook::BeforeWorkersUpgrade, version, || self.unproven(false, ALL)));
        let after_workers = J::HOLDS_ALL_HOOKS.then(|| {
            let hold = self.kept(Hook::AfterWorkersUpgrade, version, || before_workers.clone());
            (Hook::AfterWorkersUpgrade, version, hold)
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
                gates.push((Hook::BeforeClusterCreate, hop, hold));
            }
        } else {
            for hook in [Hook::BeforeClusterUpgrade, Hook::BeforeControlPlaneUpgrade] {
                let hold = (!self.progress.taken)
                    .then(|| self.unproven(self.was_open(hook, hop), BEFORE))
                    .flatten();
                gates.push((hook, hop, hold));
            }
        }
        let after_control_plane = self.kept(Hook::AfterControlPlaneUpgrade, hop, || {
            holds::control_plane(self.progress).or_else(|| self.unproven(false, ALL))
        });
        let before_workers = after_control_plane
            .clone()
            .or_else(|| self.pause.clone())
            .or_else(|| self.judged.inputs(self.progress))
            .or_else(|| {
                // An open gate stays open while the workload cluster does not respond, however long; but silence opens no gate.
                let was_open = self.was_open(Hook::BeforeWorkersUpgrade, hop);
                (!was_open && self.judged.needs_workload(ALL))
                    .then(|| holds::workload(self.seen.workload, false, self.seen.now))
                    .flatten()
            })
            .or_else(|| self.judged.unproven(ALL));
        let after_workers = || {
            self.kept(Hook::AfterWorkersUpgrade, hop, || {
                before_workers
                    .clone()
                    .or_else(|| holds::workers(self.seen.workers, hop))
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
    fn unproven(&self, was_open: bool, phases: &[Phase]) -> Option<Hold> {
        self.pause
            .clone()
            .or_else(|| self.judged.inputs(self.progress))
            .or_else(|| match self.progress.phase {
                ControlPlanePhase::Creating => holds::control_plane(self.progress),
                _ => None,
            })
            .or_else(|| {
                let needed = self.judged.needs_workload(phases);
                needed
                    .then(|| holds::workload(self.seen.workload, was_open, self.seen.now))
                    .flatten()
            })
            .or_else(|| self.judged.unproven(phases))
    }

    /// Returns the hold of a gate that never closes again, unless the control plane went back below its version.
    fn kept(&self, hook: Hook, version: &str, hold: impl FnOnce() -> Option<Hold>) -> Option<Hold> {
        let step_was_made = self.progress.taken || !same(version, &self.progress.hop);
        if step_was_made && self.was_open(hook, version) {
            None
        } else {
            hold()
        }
    }

    fn was_open(&self, hook: Hook, version: &str) -> bool {
        self.carried
            .iter()
            .any(|gate| gate.hook == hook && same(&gate.version, version) && gate.open)
    }

    fn carries(&self, hook: Hook, version: &str) -> bool {
        self.carried
            .iter()
            .any(|gate| gate.hook == hook && same(&gate.version, version))
    }
}
