//! A walk: one Cluster, two leaders, a replica, Cluster API, controllers of the add-on, users, and the invariants.

use std::time::Instant;

use serde_json::Value;

use crate::{
    addons::{Addons, Delivery, report_backend},
    capi::{pending, roll},
    defect::Defect,
    leader::{Fault, Leader, SYNC_PERIOD, Surroundings},
    objects::{
        Setup, System, VERSIONS, cluster, control_plane, index_of, record, servers, target, upgrade,
        versions_at, worker,
    },
    oracle::Oracle,
    replica::Replica,
    servers::Servers,
    users::Edit,
};

/// Maximum number of rounds of an upgrade. Two hops need six.
const ROUNDS: usize = 20;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A leader begins a reconcile, or makes its next requests.
    Lead(usize, Fault),
    /// A leader completes its reconcile, or a new one.
    Reconcile(usize),
    /// A leader reconciles up to its first confirming read.
    Plan(usize),
    /// All caches of a leader are brought up to date.
    Watch(usize),
    WatchKind(usize, &'static str),
    Crash(usize),
    /// All caches of the replica are brought up to date.
    Replica,
    ReplicaKind(&'static str),
    /// Cluster API reconciles.
    ClusterApi,
    /// The same, by the state of the Cluster before its last change.
    ClusterApiBehind,
    /// Machines take the desired versions.
    Roll,
    /// CAAPH reconciles the HelmChartProxy, or source-controller fetches chart or manifests.
    Chart,
    /// The controller that delivers the add-on takes a step.
    Delivery(Delivery),
    /// CAAPH or Flux delivers the add-on.
    Deliver,
    /// The DaemonSet controller replaces an outdated Pod.
    Pod(usize),
    /// A Pod becomes available, or fails.
    Available(usize, bool),
    /// The DaemonSet controller counts Pods.
    Count,
    /// The DaemonSet controller rolls the DaemonSet out.
    RollOut,
    /// The Backend reports its version.
    Report,
    User(Edit),
    /// The garbage collector deletes a ClusterUpgrade of an earlier Cluster.
    Collect,
    Wait(u64),
}

/// A walk.
pub(crate) struct Walk {
    pub(crate) setup: Setup,
    pub(crate) servers: Servers,
    pub(crate) addons: Addons,
    pub(crate) replica: Replica,
    pub(crate) oracle: Oracle,
    /// Whether the workload API server does not respond.
    pub(crate) is_silent: bool,
    leaders: [Leader; 2],
    /// The Cluster, and its state before the last change of labels or spec.
    clusters: [Value; 2],
    now: u64,
    epoch: Instant,
}

impl Walk {
    /// Returns a Cluster with an add-on that its delivery system has deployed, which no leader has reconciled yet.
    pub(crate) fn of(setup: Setup) -> Self {
        let mut servers = servers(setup);
        let mut addons = Addons::of(setup);
        addons.deliver(&mut servers);
        addons.roll_out(&mut servers);
        let mut walk = Self {
            setup,
            replica: Replica::default(),
            oracle: Oracle::default(),
            is_silent: false,
            leaders: Default::default(),
            clusters: Default::default(),
            now: 1_000,
            epoch: Instant::now(),
            servers,
            addons,
        };
        walk.replica.seen = walk.servers.clone();
        for leader in &mut walk.leaders {
            leader.crash(&walk.servers);
        }
        walk.observe();
        walk
    }

    /// Plants a defect in all processes.
    pub(crate) fn plant(&mut self, defect: Option<Defect>) {
        self.replica.defect = defect;
        for leader in &mut self.leaders {
            leader.defect = defect;
        }
    }

    pub(crate) fn take(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(*step);
        }
    }

    /// Takes a step, which lasts one second.
    pub(crate) fn step(&mut self, step: Step) {
        self.now += 1;
        match step {
            Step::Lead(leader, fault) => self.lead(leader, fault),
            Step::Reconcile(leader) => self.lead(leader, Fault::ToTheEnd),
            Step::Plan(leader) => self.lead(leader, Fault::UntilConfirm),
            Step::Watch(leader) => self.leaders[leader].watch(&self.servers),
            Step::WatchKind(leader, kind) => self.leaders[leader].watch_kind(&self.servers, kind),
            Step::Crash(leader) => self.leaders[leader].crash(&self.servers),
            Step::Replica => self.replica.seen = self.servers.clone(),
            Step::ReplicaKind(kind) => {
                let seen = &mut self.replica.seen;
                seen.take_over(&self.servers, |place| place.1 == kind);
            }
            Step::ClusterApi => self.cluster_api(&self.clusters[0].clone()),
            Step::ClusterApiBehind => self.cluster_api(&self.clusters[1].clone()),
            Step::Roll => roll(&mut self.servers),
            Step::Chart => self.addons.source(&mut self.servers),
            Step::Delivery(step) => self.addons.delivery(&mut self.servers, step),
            Step::Deliver => self.addons.deliver(&mut self.servers),
            Step::Pod(node) => self.addons.replace_pod(&self.servers, node),
            Step::Available(node, is_available) => self.addons.set_available(node, is_available),
            Step::Count | Step::RollOut => {
                if step == Step::Count {
                    self.addons.count(&mut self.servers);
                } else {
                    self.addons.roll_out(&mut self.servers);
                }
                self.oracle.counted_at = self.now;
            }
            Step::Report => report_backend(&mut self.servers),
            Step::User(edit) => self.edit(edit),
            Step::Collect => self.collect(),
            Step::Wait(seconds) => self.now += seconds,
        }
        self.observe();
    }

    fn observe(&mut self) {
        self.oracle.observe(&self.servers, &self.addons, self.now);
        let Some(cluster) = self.servers.get(&cluster()) else {
            return;
        };
        let requested = |cluster: &Value| {
            let (metadata, spec) = (&cluster["metadata"], &cluster["spec"]);
            (metadata["uid"].clone(), metadata["labels"].clone(), spec.clone())
        };
        if requested(&self.clusters[0]) != requested(cluster) {
            self.clusters.swap(0, 1);
        }
        self.clusters[0].clone_from(cluster);
    }

    fn lead(&mut self, which: usize, fault: Fault) {
        let before = record(&self.servers);
        let mut around = Surroundings {
            servers: &mut self.servers,
            is_silent: self.is_silent,
            now: self.now,
            epoch: self.epoch,
        };
        if self.leaders[which].step(&mut around, fault) {
            self.oracle.observe(&self.servers, &self.addons, self.now);
            let leader = &self.leaders[which];
            self.oracle
                .judge_write(&self.servers, leader, before.as_ref(), self.now);
        }
    }

    fn collect(&mut self) {
        let uid = self
            .servers
            .get(&cluster())
            .map(|cluster| &cluster["metadata"]["uid"]);
        let found = self.servers.get(&upgrade());
        let owner = found.map(|upgrade| &upgrade["metadata"]["ownerReferences"][0]["uid"]);
        if owner != uid {
            self.servers.remove(&upgrade());
        }
    }

    /// The operator delivers the chart of the version that the record names, whose column in `kubectl get clusterupgrades` is HOP.
    fn operate(&mut self) {
        let hop = record(&self.servers).and_then(|record| record.hop);
        let known = hop.and_then(|hop| VERSIONS.iter().position(|version| *version == hop));
        let version = known.unwrap_or_else(|| target(&self.servers));
        self.step(Step::User(Edit::Chart(version)));
        if self.setup.system == System::HelmRelease {
            // A release in sync is left alone, also if a user has edited its manifests.
            self.step(Step::User(Edit::Image(version)));
        }
        self.take(&[
            Step::User(Edit::Definition(version)),
            Step::User(Edit::Backend(version)),
            Step::Report,
        ]);
    }

    /// Every process and controller does its work.
    fn round(&mut self) {
        self.operate();
        self.take(&[Step::Deliver, Step::RollOut]);
        if self.leaders[0].is_running() {
            self.step(Step::Reconcile(0));
        }
        for _ in 0..2 {
            self.take(&[Step::Watch(0), Step::Reconcile(0)]);
        }
        self.take(&[Step::Replica, Step::ClusterApi, Step::Roll, Step::Wait(20)]);
    }

    /// Whether control plane and workers are at the target, Cluster API waits for no hook, and the record has ended.
    pub(crate) fn is_complete(&self) -> bool {
        let to = target(&self.servers);
        let is_there = |place| versions_at(&self.servers, &place) == [to; 2];
        let has_ended =
            record(&self.servers).is_some_and(|record| record.outcome.is_some() && record.to == VERSIONS[to]);
        is_there(control_plane()) && is_there(worker()) && pending(&self.servers).is_empty() && has_ended
    }

    /// Completes the upgrade on a fair schedule.
    pub(crate) fn complete(&mut self) {
        for _ in 0..ROUNDS {
            if self.is_complete() {
                return;
            }
            self.round();
        }
        if !self.is_complete() {
            let upgrade = self.servers.get(&upgrade()).map(|upgrade| &upgrade["status"]);
            panic!("held: after {ROUNDS} rounds: {}", upgrade.unwrap_or(&Value::Null));
        }
    }

    /// Users correct their inputs, and the Cluster is upgraded to the last version. Then nothing is written.
    pub(crate) fn finish(&mut self) {
        self.mend();
        self.observe();
        self.complete();
        self.step(Step::User(Edit::Target(VERSIONS.len() - 1)));
        self.complete();
        for _ in 0..2 {
            self.round();
        }
        // Nothing else is ever written by a leader. Flux writes at each interval.
        let before = self.servers.get(&upgrade()).cloned();
        for _ in 0..3 {
            self.now += SYNC_PERIOD.as_secs();
            self.round();
        }
        let after = self.servers.get(&upgrade());
        assert!(after == before.as_ref(), "settled: from {before:?} to {after:?}");
    }

    /// Returns the index of the desired version of the control plane.
    pub(crate) fn control_plane(&self) -> usize {
        let object = self.servers.get(&control_plane()).unwrap_or(&Value::Null);
        index_of(&object["spec"]["version"])
    }
}
