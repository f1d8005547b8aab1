//! Cluster API's topology controller v1.14, as far as it calls hooks and writes versions
//! (`exp/topology/desiredstate`: `computeControlPlaneVersion`, `computeMachineDeploymentVersion`, the lifecycle hooks).

use sluice_core::gate::decision::{CachedCluster, Decision, Knowledge, decide};
use sluice_core::gate::hook_call::HookCall;
use sluice_core::gate::retry::RetryPolicy;
use sluice_crds::run::Hook;

use crate::objects::now;
use crate::truth;
use crate::world::{Index, Life, Planned, Rollout, UIDS, World, label, version};

/// How the ClusterClass plans steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Neither versions nor a plan: one step to the target.
    None,
    /// `spec.kubernetesVersions`: the control plane takes every minor version, workers the last.
    Versions,
    /// The plan of an extension, in which workers take every minor version, too.
    WorkersToo,
}

struct Reconcile<'a> {
    world: &'a mut World,
    plan: Plan,
    replica: usize,
    floors: bool,
    blocking: Vec<Hook>,
}

enum Next {
    /// The control plane keeps its version, for the reason that tells workers whether they may go.
    Stay { stable: bool },
    /// The control plane takes a version.
    Take(u8),
}

/// One reconciliation of the Cluster's topology, with hooks answered by one replica.
pub(crate) fn reconcile(world: &mut World, plan: Plan, replica: usize, floors: bool) {
    if world.cluster.paused || world.cluster.gone() {
        return;
    }
    let mut this = Reconcile {
        world,
        plan,
        replica,
        floors,
        blocking: Vec::new(),
    };
    if this.world.cluster.deleting() {
        if this.released(Hook::BeforeClusterDelete, this.world.cluster.to, None) {
            truth::cluster_goes(this.world);
            this.world.cluster.life = Life::Gone;
        }
        return;
    }
    let planned = Planned {
        control_plane: this.control_plane_plan(),
        workers: this.workers_plan(),
    };
    let next = this.control_plane();
    let stable = match next {
        Next::Stay { stable } => stable,
        Next::Take(version) => {
            let seen = this.world.replicas[replica].generation;
            let fresh = seen == Some(this.world.bootstrap.generation);
            truth::control_plane_takes(this.world, version, fresh);
            this.world.control_plane.spec = version;
            false
        }
    };
    let workers_pending = this.workers(stable);
    this.after_cluster_upgrade(stable && !workers_pending);
    this.world.cluster.planned = planned;
}

impl Reconcile<'_> {
    fn control_plane_plan(&self) -> Vec<u8> {
        let (from, to) = (self.world.control_plane.spec, self.world.cluster.to);
        match self.plan {
            _ if from >= to => Vec::new(),
            Plan::None => vec![to],
            Plan::Versions | Plan::WorkersToo => (from + 1..=to).collect(),
        }
    }

    fn workers_plan(&self) -> Vec<u8> {
        let Some(workers) = self
            .world
            .workers
            .filter(|workers| workers.spec < self.world.cluster.to)
        else {
            return Vec::new();
        };
        match self.plan {
            Plan::None | Plan::Versions => vec![self.world.cluster.to],
            Plan::WorkersToo => (workers.spec + 1..=self.world.cluster.to).collect(),
        }
    }

    fn control_plane(&mut self) -> Next {
        let current = self.world.control_plane;
        let to = self.world.cluster.to;
        let unstable = Next::Stay { stable: false };
        if current.rolling() {
            if !self.world.capi.pending.has(Hook::AfterControlPlaneUpgrade) {
                self.mark_step(current.spec);
            }
            return unstable;
        }
        let at_target = Next::Stay {
            stable: current.spec == to,
        };
        for hook in [Hook::AfterControlPlaneUpgrade, Hook::BeforeWorkersUpgrade] {
            if !self.pending(hook, current.spec) {
                return at_target;
            }
        }
        if self.workers_plan().first() == Some(&current.spec) {
            return Next::Stay { stable: true };
        }
        if self.world.workers.is_some_and(Rollout::rolling) {
            return at_target;
        }
        if !self.pending(Hook::AfterWorkersUpgrade, current.spec) || current.spec == to {
            return at_target;
        }
        let Some(&next) = self.control_plane_plan().first() else {
            return at_target;
        };
        if !self.world.capi.pending.has(Hook::AfterClusterUpgrade) {
            if self.world.cluster.start_held || !self.released(Hook::BeforeClusterUpgrade, to, Some(next)) {
                return at_target;
            }
            self.world.capi.pending.add(Hook::AfterClusterUpgrade);
        }
        if !self.released(Hook::BeforeControlPlaneUpgrade, next, Some(next)) {
            return at_target;
        }
        self.mark_step(next);
        Next::Take(next)
    }

    fn mark_step(&mut self, version: u8) {
        self.world.capi.pending.add(Hook::AfterControlPlaneUpgrade);
        if self.workers_plan().first() == Some(&version) {
            self.world.capi.pending.add(Hook::BeforeWorkersUpgrade);
            self.world.capi.pending.add(Hook::AfterWorkersUpgrade);
        }
    }

    /// Calls a hook if it is pending; whether the way is free after that.
    fn pending(&mut self, hook: Hook, version: u8) -> bool {
        if !self.world.capi.pending.has(hook) {
            return true;
        }
        let released = self.released(hook, version, None);
        if released {
            self.world.capi.pending.remove(hook);
        }
        released
    }

    /// Whether workers still have a step before them.
    fn workers(&mut self, control_plane_stable: bool) -> bool {
        let Some(workers) = self.world.workers else {
            return false;
        };
        let Some(&next) = self.workers_plan().first() else {
            return workers.rolling();
        };
        let blocked = [Hook::AfterControlPlaneUpgrade, Hook::BeforeWorkersUpgrade]
            .iter()
            .any(|hook| self.blocking.contains(hook));
        if blocked || workers.rolling() || !control_plane_stable {
            return true;
        }
        truth::workers_take(self.world, next);
        self.world.workers = Some(Rollout {
            spec: next,
            ..workers
        });
        true
    }

    fn after_cluster_upgrade(&mut self, settled: bool) {
        let pending = self.world.capi.pending;
        let others = pending.has(Hook::AfterControlPlaneUpgrade) || pending.has(Hook::AfterWorkersUpgrade);
        let at_target = self.world.control_plane.spec == self.world.cluster.to;
        if pending.has(Hook::AfterClusterUpgrade) && !others && settled && at_target {
            self.pending(Hook::AfterClusterUpgrade, self.world.cluster.to);
        }
    }

    /// Asks the replica, unless the floor of an earlier answer still runs.
    fn released(&mut self, hook: Hook, asked: u8, first_step: Option<u8>) -> bool {
        let floored = self.world.capi.floored.has(hook);
        let released = !floored && self.answer(hook, asked, first_step) == Decision::Release;
        if !released {
            self.blocking.push(hook);
            if self.floors {
                self.world.capi.floored.add(hook);
            }
        }
        released
    }

    fn answer(&self, hook: Hook, asked: u8, first_step: Option<u8>) -> Decision {
        let cluster = &self.world.cluster;
        let label = Some(label(cluster.label)).filter(|label| !label.is_empty());
        let call = HookCall {
            hook,
            namespace: "team-a",
            name: "one",
            uid: UIDS[usize::from(cluster.uid)],
            generation: cluster.generation.into(),
            label,
            version: version(asked),
            first_step: first_step.map(version),
            deleted_at: cluster.deleting().then(now),
            now: Some(now()),
        };
        let Index { generation, record } = &self.world.replicas[self.replica];
        let known = CachedCluster {
            record: record.as_ref().map(|record| &*record.0),
            bootstrap_generation: generation.map(Into::into),
            ..CachedCluster::default()
        };
        decide(&call, &Knowledge::synced(label, known), &RetryPolicy::default())
    }
}
