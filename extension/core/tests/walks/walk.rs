//! One walk and its steps.

mod invariants;
mod plans;
mod rollbacks;
mod swaps;

use std::{collections::BTreeMap, time::Instant};

use serde_json::{Value, json};
use sluice_core::reconcile::cluster::Server;
use sluice_crds::run::UpgradeRecord;

pub(crate) use invariants::cluster_state;
use rollbacks::Rollbacks;
use swaps::{Moment, Swaps};

use crate::{
    capi::{ClusterApi, record, roll},
    connection::WATCHED,
    defect::Defect,
    fault::Fault,
    kapp::Kapp,
    leader::{Earlier, Leader, Surroundings},
    machines::{admit, servers_with_images},
    objects::{
        PACKAGES, TOKENS, VERSIONS, cluster, control_plane, is_unmanaged, kube_system, kubeconfig,
        kubeconfig_digest, servers, worker,
    },
    overridden::{Asked, Existing, create, set_binding, set_policy},
    replica::Reading,
    servers::{Late, Place, Servers},
    supervisor::{self, servers_on_supervisor},
    truth::{Right, deployment, is_first_deployed},
    users::{Edit, edit},
};

/// UID of another API server of the workload.
const DUPLICATE: &str = "duplicate";

/// Step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// A leader takes one step of its reconcile.
    Lead(usize, Fault),
    /// A leader completes its reconcile.
    Reconcile(usize),
    Watch(usize),
    WatchOne(usize, u8),
    /// The cache of a leader of this kind of a server is up to date.
    WatchKind(usize, Server, &'static str),
    /// All caches of a leader are up to date but those of this kind.
    WatchBut(usize, &'static str),
    /// From now on a leader may not watch values sources, or may.
    RefuseValuesWatch(usize, bool),
    Crash(usize),
    /// The writes of frozen processes arrive.
    Arrive,
    /// Every component acts once, in order.
    Round,
    Deploy(usize),
    Sync(usize),
    Begin(usize),
    Apply(usize),
    End(usize, bool),
    Interrupt(usize),
    /// From now on a resource of a package never becomes ready: its runs apply everything, wait, and fail.
    NeverSettles(usize),
    /// The replica that answers hooks has up-to-date caches.
    Replica,
    /// The cache of the replica of this kind shows the state before this number of changes of any object.
    ReplicaKind(&'static str, u8),
    /// The watch of the replica of this kind delivers nothing until `Replica`.
    ReplicaLags(&'static str),
    /// Another call arrives, whose read stays under way.
    AnotherCall,
    /// From now on another replica, with a cache of its own, answers hooks.
    OtherReplica,
    /// Cluster API reconciles, with this behaviour of the reads that confirm releases.
    ClusterApi(Reading),
    /// The same, and its cache shows the Cluster before the last edit of its spec.
    OutdatedClusterApi(Reading),
    /// Cluster API reconciles, and its writes arrive with its next step.
    BeginClusterApi(Reading),
    /// The writes of the current reconcile of Cluster API arrive.
    EndClusterApi,
    /// The process of Cluster API freezes before its writes, which `Arrive` brings, and another one takes over.
    FreezeClusterApi,
    /// From now on, Cluster API calls a held hook again only after the next round.
    RetryAfterRound,
    /// The API servers and the deployments are backed up.
    BackUp,
    /// The last backup is restored. Caches and local states of processes stay.
    Restore,
    /// A leader detects the rollback.
    Detect(usize),
    /// The machines roll to their desired version.
    Roll,
    /// Another API server gets the objects and deployments of the workload.
    Duplicate,
    /// The kubeconfig leads to the other API server.
    Swap,
    /// Another kubeconfig leads to the other API server. Open connections still lead to the earlier one.
    Redirect,
    /// The garbage collector deletes one dependent of deleted owners; a round deletes all of them.
    Collect(u8),
    Wait(u64),
    /// A user creates an override.
    Override(Asked),
    /// The policy of overrides exists, or does not.
    OverridePolicy(bool),
    /// Its binding exists, or does not.
    OverrideBinding(bool),
    /// The clock of the replica is ahead of all others by these seconds.
    ReplicaClock(i64),
    User(Edit),
    /// Only reconciles happen for a while.
    Calm,
}

/// Backup of the world outside of Sluice.
#[derive(Clone)]
struct Backup {
    servers: Servers,
    kapp: Kapp,
    capi: ClusterApi,
}

/// Objects and actual deployments at the last change.
#[derive(Clone)]
struct Observed {
    servers: Servers,
    kapp: Kapp,
    right: [Right; PACKAGES.len()],
    /// Whether kapp-controller is deployed as its ClusterBootstrap says.
    is_first_deployed: bool,
    record: Option<UpgradeRecord>,
    swaps: Option<Moment>,
    overrides: Existing,
}

#[derive(Clone)]
pub(crate) struct Walk {
    pub(crate) servers: Servers,
    pub(crate) kapp: Kapp,
    capi: ClusterApi,
    /// Two processes that both act as leader. The first one does most of the work.
    leaders: [Leader; 2],
    pub(crate) late: Vec<Late>,
    /// Whether a user or the template of a release chose other package versions.
    chosen: bool,
    epoch: Instant,
    now: u64,
    /// Last time at which each package was correctly deployed for each release.
    right_at: [[Option<u64>; VERSIONS.len()]; PACKAGES.len()],
    /// Last time at which kapp-controller was deployed as its ClusterBootstrap says.
    first_deployed_at: Option<u64>,
    observed: Option<Observed>,
    /// All states of the servers so far, the current one last.
    history: Vec<Servers>,
    /// Last time at which the Cluster had each combination of UID, generation, label and target.
    clusters: BTreeMap<String, u64>,
    pub(crate) swaps: Swaps,
    rollbacks: Rollbacks,
    backup: Option<Box<Backup>>,
    /// Workload objects and deployments of another API server.
    elsewhere: Option<Box<(Servers, Kapp)>>,
    /// Workload API server of the kubeconfig before the last redirection.
    earlier: Option<Earlier>,
    never_settles: Option<usize>,
    /// The Cluster before its target was set.
    before_target: Option<Value>,
    /// Number of writes of leaders to the workload.
    workload_writes: usize,
    /// Number of steps of leaders.
    led: usize,
    /// Leader step at which the process crashes, or has this fault.
    pub(crate) ends_at: Option<(usize, Option<Fault>)>,
}

impl Walk {
    pub(crate) fn new() -> Self {
        Self {
            servers: servers(),
            kapp: Kapp::default(),
            capi: ClusterApi::default(),
            leaders: [Leader::default(), Leader::default()],
            late: Vec::new(),
            chosen: false,
            epoch: Instant::now(),
            now: 0,
            right_at: Default::default(),
            first_deployed_at: None,
            observed: None,
            history: Vec::new(),
            clusters: BTreeMap::new(),
            swaps: Swaps::default(),
            rollbacks: Rollbacks::default(),
            backup: None,
            elsewhere: None,
            earlier: None,
            never_settles: None,
            before_target: None,
            workload_writes: 0,
            led: 0,
            ends_at: None,
        }
    }

    /// Returns a walk whose machines have images of releases.
    pub(crate) fn with_images() -> Self {
        Self {
            servers: servers_with_images(),
            ..Self::new()
        }
    }

    /// Returns a walk whose Cluster is on a Supervisor. Its machines have images of releases.
    pub(crate) fn on_supervisor() -> Self {
        Self {
            servers: servers_on_supervisor(),
            ..Self::new()
        }
    }

    pub(crate) fn take(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(*step);
        }
    }

    #[expect(clippy::too_many_lines, reason = "a list of steps")]
    pub(crate) fn step(&mut self, step: Step) {
        let (servers, now) = (&mut self.servers, self.now);
        match step {
            Step::Lead(leader, fault) => self.lead(leader, fault),
            Step::Reconcile(leader) => self.come_to_an_end(leader),
            Step::Watch(leader) => {
                let servers = self.watched_by(leader);
                self.leaders[leader].watch(&servers, now);
            }
            Step::WatchOne(leader, which) => self.watch_one(leader, which),
            Step::WatchKind(leader, server, kind) => {
                let servers = self.watched_by(leader);
                self.leaders[leader].watch_store(&servers, server, &[kind], now);
            }
            Step::WatchBut(leader, kind) => {
                let servers = self.watched_by(leader);
                self.leaders[leader].watch_but(&servers, kind, now);
            }
            Step::RefuseValuesWatch(leader, refuses) => self.leaders[leader].lacks_values_watch = refuses,
            Step::Crash(leader) => self.leaders[leader].crash(),
            Step::Arrive => {
                for late in self.late.drain(..) {
                    let before = servers.clone();
                    servers.arrive(&late);
                    self.swaps.note(&before, servers);
                }
                self.capi.thaw(servers);
            }
            Step::Round => self.round(),
            Step::Deploy(package) => self.deploy(package),
            Step::Sync(package) => self.kapp.sync(servers, package),
            Step::Begin(package) => self.kapp.begin(servers, package, now),
            Step::Apply(package) => self.kapp.apply(servers, package, now),
            Step::End(package, well) => self.kapp.end(servers, package, now, well),
            Step::Interrupt(package) => self.kapp.interrupt(package),
            Step::NeverSettles(package) => self.never_settles = Some(package),
            Step::Replica => {
                self.capi.replica.lags = None;
                self.capi.replica.watch(servers);
            }
            Step::ReplicaKind(kind, changes) => self.show_replica(kind, changes),
            Step::ReplicaLags(kind) => self.capi.replica.lags = Some(kind),
            Step::AnotherCall => self.capi.replica.is_called_by_another(servers),
            Step::OtherReplica => self.capi.turn(),
            Step::ClusterApi(reading) => self.capi.reconcile(servers, reading, now),
            Step::OutdatedClusterApi(reading) => {
                let mut earlier = self.history.iter().rev();
                let object = earlier.find_map(|state| of_another_generation(state, servers));
                self.capi.reconcile_cached(servers, object, reading, now);
            }
            Step::BeginClusterApi(reading) => self.capi.begin(servers, reading, now),
            Step::EndClusterApi => self.capi.end(servers),
            Step::FreezeClusterApi => {
                self.capi.freeze();
                self.rollbacks.is_uncertain = true;
            }
            Step::RetryAfterRound => self.capi.delay(),
            Step::BackUp => {
                self.backup = Some(Box::new(Backup {
                    servers: servers.clone(),
                    kapp: self.kapp.clone(),
                    capi: self.capi.clone(),
                }));
            }
            Step::Restore => self.restore(),
            Step::Detect(leader) => {
                let servers = self.watched_by(leader);
                self.leaders[leader].restart_watches(&servers, now);
            }
            Step::Roll => {
                let _rolled = roll(servers, &control_plane()) || roll(servers, &worker());
            }
            Step::Duplicate => {
                let mut servers = servers.clone();
                servers.edit(&kube_system(), |namespace| {
                    namespace["metadata"]["uid"] = json!(DUPLICATE);
                });
                self.elsewhere = Some(Box::new((servers, self.kapp.on(DUPLICATE))));
            }
            Step::Swap => self.swap(),
            Step::Redirect => {
                let digest = servers.get(&kubeconfig()).map(kubeconfig_digest);
                self.earlier = digest.map(|digest| Earlier {
                    digest,
                    servers: servers.clone(),
                });
                edit(servers, Edit::Kubeconfig(TOKENS[1]));
                self.swap();
            }
            Step::Collect(which) => servers.collect_one(which),
            Step::Wait(seconds) => self.now += seconds,
            Step::Override(asked) => create(servers, asked, now),
            Step::OverridePolicy(exists) => set_policy(servers, exists, now),
            Step::OverrideBinding(exists) => set_binding(servers, exists, now),
            Step::ReplicaClock(ahead) => self.capi.replica.ahead = ahead,
            Step::User(Edit::Move) => {
                edit(servers, Edit::Move);
                // The management cluster and the processes are new.
                self.leaders.iter_mut().for_each(Leader::crash);
                self.kapp.interrupt(0);
                self.capi = ClusterApi::default();
                self.late.clear();
                self.history.clear();
            }
            Step::User(Edit::Again) => {
                edit(servers, Edit::Again);
                self.capi.renew();
                self.swaps.forget();
            }
            // Without a review: the webhook puts the entries back.
            Step::User(Edit::NoEntries) => edit(servers, Edit::NoEntries),
            Step::User(it) => {
                self.chosen |= matches!(
                    it,
                    Edit::Choose(..) | Edit::UpdatesAvailableWrite(..) | Edit::OldManifest
                );
                let before = servers.get(&cluster()).cloned();
                edit(servers, it);
                if let Some((before, after)) = before.zip(servers.get(&cluster())) {
                    let patch = self.capi.replica.review(&before, after);
                    admit(servers, &before, patch);
                }
            }
            Step::Calm => self.calm(),
        }
        self.tick();
    }

    /// Exchanges the workload with that of the other API server.
    fn swap(&mut self) {
        if let Some((there, kapp)) = self.elsewhere.as_deref_mut() {
            let here = self.servers.clone();
            self.servers.take_over(Server::Workload, there);
            *there = here;
            self.kapp.exchange(kapp);
        }
    }

    /// Returns the servers that the watches of a leader read.
    fn watched_by(&self, leader: usize) -> Servers {
        let mut servers = self.servers.clone();
        let digest = self.leaders[leader].connected_by();
        let earlier = self.earlier.as_ref();
        if let Some(earlier) = earlier.filter(|earlier| digest == Some(earlier.digest.as_str())) {
            servers.take_over(Server::Workload, &earlier.servers);
        }
        servers
    }

    /// Brings all caches of the first leader up to date.
    fn watch(&mut self) {
        let servers = self.watched_by(0);
        self.leaders[0].watch(&servers, self.now);
    }

    /// Delivers the watch event of one object.
    fn watch_one(&mut self, leader: usize, which: u8) {
        let places = self.servers.all().map(|(place, _)| place);
        let watched = places.filter(|place| !place.0 || WATCHED.contains(&place.1.as_str()));
        let places: Vec<Place> = watched.cloned().collect();
        let place = places[usize::from(which) % places.len()].clone();
        let servers = self.watched_by(leader);
        self.leaders[leader].watch_one(&servers, place, self.now);
    }

    /// Sets the cache of one kind of the replica to the state before this number of changes.
    fn show_replica(&mut self, kind: &str, changes: u8) {
        let at = self.history.len().saturating_sub(usize::from(changes) + 1);
        let state = self.history.get(at).unwrap_or(&self.servers);
        self.capi.replica.show(kind, state);
    }

    fn restore(&mut self) {
        let Some(backup) = &self.backup else { return };
        self.servers.restore(&backup.servers);
        self.kapp = backup.kapp.clone();
        self.capi.go_back(&backup.capi);
        // The world of before is no evidence of what opens a gate from now on.
        self.right_at = Default::default();
        self.first_deployed_at = None;
        self.clusters.clear();
        self.swaps.forget();
        self.rollbacks = Rollbacks::restored();
        self.observed = None;
        self.late.clear();
        for leader in &mut self.leaders {
            leader.saw_all = false;
        }
    }

    /// Plants a defect in all processes.
    pub(crate) fn plant(&mut self, defect: Option<Defect>) {
        self.capi.plant(defect);
        self.servers.is_unconditional = defect == Some(Defect::PreconditionIgnored);
        for leader in &mut self.leaders {
            leader.defect = defect;
        }
    }

    fn tick(&mut self) {
        self.now += 1;
        self.observe();
    }

    /// Records which packages are correctly deployed.
    fn observe(&mut self) {
        let known = self.observed.as_ref();
        let unchanged = known
            .is_some_and(|observed| observed.servers.ptr_eq(&self.servers) && observed.kapp == self.kapp);
        let last = self.history.last();
        if last.is_none_or(|last| !last.ptr_eq(&self.servers)) {
            self.history.push(self.servers.clone());
        }
        if !unchanged {
            let deployments = PACKAGES.map(|package| deployment(&self.servers, &self.kapp, package));
            self.rollbacks
                .observe(&self.servers, deployments.map(|(is_deployed, _)| is_deployed));
            self.observed = Some(Observed {
                servers: self.servers.clone(),
                kapp: self.kapp.clone(),
                right: deployments.map(|(_, right)| right),
                is_first_deployed: is_unmanaged(&self.servers)
                    || is_first_deployed(&self.servers, &self.kapp),
                record: record(&self.servers),
                swaps: Moment::of(&self.servers, &self.kapp),
                overrides: Existing::of(&self.servers),
            });
        }
        let Some(observed) = &self.observed else { return };
        for (right, at) in observed.right.iter().zip(&mut self.right_at) {
            for (right, at) in right.iter().zip(at) {
                if *right {
                    *at = Some(self.now);
                }
            }
        }
        if observed.is_first_deployed {
            self.first_deployed_at = Some(self.now);
        }
        self.capi.overrides.observe(&observed.overrides, self.now);
        self.capi
            .note(&observed.servers, observed.record.as_ref(), self.now);
        if let Some(state) = cluster_state(&observed.servers) {
            self.clusters.insert(state, self.now);
        }
        if let Some(moment) = &observed.swaps {
            self.swaps.observe(moment, self.now);
        }
    }

    fn lead(&mut self, which: usize, fault: Fault) {
        let mut fault = fault;
        match self.ends_at {
            Some((at, None)) if at == self.led => self.leaders[which].crash(),
            Some((at, Some(with))) if at == self.led => fault = with,
            _ => {}
        }
        self.led += 1;
        let (before, there) = (record(&self.servers), self.servers.clone());
        let mut around = Surroundings {
            servers: &mut self.servers,
            earlier: &mut self.earlier,
            late: &mut self.late,
            now: self.now,
            epoch: self.epoch,
        };
        let leader = &mut self.leaders[which];
        let wrote = leader.step(&mut around, fault);
        let (began, found_no_list) = (leader.began, leader.found_no_list);
        let made = leader.made.iter();
        self.workload_writes += made.filter(|write| write.key.server == Server::Workload).count();
        plans::assert_usable(leader);
        // A list that does not exist counts as an empty one.
        self.capi.uninstalled |= found_no_list && self.is_deleting();
        self.judge_installs(which);
        self.judge_lowered(which, &there);
        if let Some(write) = wrote {
            if let Some(written) = record(&self.servers) {
                plans::assert_next_step(&self.leaders[which], before.as_ref(), &written);
            }
            self.note_target(which, before.as_ref());
            self.judge(before.as_ref(), &write, began);
            self.judge_spent(which, before.as_ref());
            self.judge_completion(which, before.as_ref());
        }
        self.judge_swaps(which, &there);
        supervisor::judge(&there, &self.servers, &self.leaders[which].made);
    }

    fn round(&mut self) {
        // A running reconcile may have stale reads.
        self.come_to_an_end(0);
        self.watch();
        self.come_to_an_end(0);
        for package in PACKAGES {
            self.deploy(package);
        }
        self.capi.replica.watch(&self.servers);
        self.capi.end_delays();
        self.capi.reconcile(&mut self.servers, Reading::AtOnce, self.now);
        let _rolled = roll(&mut self.servers, &control_plane()) || roll(&mut self.servers, &worker());
        self.servers.collect();
        // A hold of half an hour must end within the rounds.
        self.now += if self.never_settles.is_some() { 60 } else { 10 };
        self.tick();
    }

    /// Runs kapp-controller for a package without interleaving.
    fn deploy(&mut self, package: usize) {
        self.kapp.sync(&mut self.servers, package);
        if self.never_settles != Some(package) {
            self.kapp.begin(&mut self.servers, package, self.now);
            self.kapp.end(&mut self.servers, package, self.now, true);
        } else if self.kapp.is_at_work(package) {
            self.kapp.end(&mut self.servers, package, self.now, false);
        } else {
            self.kapp.begin(&mut self.servers, package, self.now);
            self.kapp.apply(&mut self.servers, package, self.now);
        }
        self.kapp.sync(&mut self.servers, package);
    }

    /// Completes the current or next reconcile of a leader.
    fn come_to_an_end(&mut self, leader: usize) {
        // Faults of `ends_at` need single steps.
        let fault = if self.ends_at.is_some() {
            Fault::None
        } else {
            Fault::ToTheEnd
        };
        self.lead(leader, fault);
        while self.leaders[leader].is_running() {
            self.lead(leader, fault);
            self.tick();
        }
    }

    pub(crate) fn is_deleting(&self) -> bool {
        let cluster = self.servers.get(&cluster());
        cluster.is_some_and(|cluster| !cluster["metadata"]["deletionTimestamp"].is_null())
    }

    /// Whether a reconcile of the first leader is in progress.
    pub(crate) fn is_reconciling(&self) -> bool {
        self.leaders[0].is_running()
    }

    /// Returns the number of steps of leaders so far.
    pub(crate) fn led(&self) -> usize {
        self.led
    }
}

/// Returns the Cluster of a state, if its generation is not the current one.
fn of_another_generation(state: &Servers, current: &Servers) -> Option<Value> {
    let generation = |cluster: &Value| cluster["metadata"]["generation"].clone();
    let (state, current) = (state.get(&cluster())?, current.get(&cluster())?);
    (generation(state) != generation(current)).then(|| state.clone())
}
