//! Searches of orders of events: all orders, by `stateright`, or [runs](sample) with random choices.
//!
//! A step is one round of concurrent reads, one write, or one action of another component. A run has one kind of fault, a limited
//! number of times, or edits that users make in any order. A store with unbounded lag is such a fault. A broken rule of the walks ends a
//! search. Bounds of the searches:
//! - runs end after a number of states. They have one thread and no limit of time, so code and seed alone determine these states;
//! - upgrades have two packages, some deletions three;
//! - the API servers answer all requests of a round at once, and reads of constant objects happen together with the next read;
//! - reconciles share no local state, and no time elapses: random walks cover both;
//! - Cluster API observes the latest objects, and machines change their version at once;
//! - an object with restored content has its earlier resourceVersion;
//! - a second leader has a limited number of reconciles;
//! - states that differ only in the objects before a late write are equal;
//! - only a sample of the states is checked for completion.

mod planted;
mod runs;
mod sample;

use std::{
    collections::{BTreeSet, HashSet},
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
    time::Instant,
};

use sluice_core::reconcile::cluster::{Read, Server};
use stateright::{Model, Property};

use crate::{
    capi::{ClusterApi, brief, record, roll, version_at},
    defect::Defect,
    fault::Fault,
    kapp::Kapp,
    leader::{Leader, Surroundings, is_request},
    objects::{
        PACKAGES, PlannedBy, RELEASES, VERSIONS, cluster, control_plane, kube_system, servers, template,
        worker,
    },
    random::{SEED, number},
    replica::Reading,
    servers::{Late, Servers, digest},
    truth::{
        Right, assert_in_order, concerned, is_first_deployed, opened, recorded_cluster, right, version_of,
    },
    users::{Edit, edit, mend},
    walk::{Walk, cluster_state},
};

/// Name of the property of all states.
const HOLDS: &str = "no rule is broken";

/// Rounds of a fair schedule that complete the upgrade from any state.
const ROUNDS: u32 = 80;

/// Sampling rate of the completion check: many states follow one that never completes.
const ONE_OF: u64 = 64;

/// Caches of a leader, each with its own lag.
pub(super) const STORES: [(Server, &[&str]); 5] = [
    (
        Server::Management,
        &[
            "clusters",
            "clusterclasses",
            "goods",
            "machinedeployments",
            "packages",
            "clusterbootstraptemplates",
            "tanzukubernetesreleases",
        ],
    ),
    (Server::Management, &["clusterbootstraps"]),
    (Server::Management, &["packageinstalls", "apps"]),
    (Server::Workload, &["packageinstalls"]),
    (Server::Workload, &["apps"]),
];

/// Kind of fault in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Nothing,
    /// The process ends.
    Crash,
    /// A request is refused with this code.
    Refused(u16),
    /// A request gets no response; a write takes effect.
    Unanswered,
    /// The process freezes during a write, and the write arrives later.
    Frozen,
    /// A run of kapp-controller fails, or its process ends.
    Run,
    /// Users make each of these edits once, in any order.
    Edits(&'static [Edit]),
    /// Number of reconciles of a second leader.
    Rival(u8),
}

#[derive(Clone)]
pub(super) struct State {
    servers: Servers,
    kapp: Kapp,
    capi: ClusterApi,
    leaders: Vec<Leader>,
    late: Vec<Late>,
    /// Remaining faults, or remaining reconciles of the second leader.
    left: u8,
    /// Edits that were not made yet, one bit each.
    edits: u16,
    /// Facts that held at some time since the start of each leader's reconcile.
    since: Vec<Since>,
    /// The broken rule, if any.
    broken: Option<String>,
}

#[derive(Clone, Default, Hash)]
struct Since {
    /// Whether each package was correctly deployed.
    right: [Right; PACKAGES.len()],
    /// Whether kapp-controller was deployed as the ClusterBootstrap says, or as its PackageInstall says without a ClusterBootstrap.
    first_deployed: bool,
    /// UID, generation, label and target of the Cluster.
    clusters: BTreeSet<String>,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        digest(self) == digest(other)
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.servers.hash(state);
        self.kapp.hash(state);
        self.capi.hash(state);
        self.leaders.hash(state);
        for Late { write, .. } in &self.late {
            (&write.key, write.verb, &write.body).hash(state);
        }
        (self.left, self.edits).hash(state);
        self.since.hash(state);
        self.broken.hash(state);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Action {
    Lead(usize),
    Fault(usize),
    Watch(usize),
    /// The cache of the replica is up to date.
    Replica,
    Arrive,
    Edit(usize),
    Sync(usize),
    Begin(usize),
    End(usize),
    Fail(usize),
    Interrupt(usize),
    ClusterApi,
}

/// One search.
pub(super) struct Search {
    pub(super) kind: Kind,
    pub(super) times: u8,
    /// The lagging store, if any.
    pub(super) lags: Option<usize>,
    /// Whether the cache of the replica lags.
    pub(super) replica_lags: bool,
    pub(super) planned_by: PlannedBy,
    /// Packages of the Cluster.
    pub(super) packages: &'static [usize],
    /// Edits that are made before anything else happens.
    pub(super) begins_with: &'static [Edit],
    /// Rounds of leader and kapp-controller between these edits and the search.
    pub(super) rounds: u32,
    pub(super) defect: Option<Defect>,
    /// Seed of the order of events.
    seed: u64,
    epoch: Instant,
    /// States with a confirmed completion.
    completes: Mutex<HashSet<u64>>,
}

impl Search {
    /// Returns the search of one hop.
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            times: 1,
            lags: None,
            replica_lags: false,
            planned_by: PlannedBy::default(),
            packages: &[0, 1],
            begins_with: &[Edit::Target(1)],
            rounds: 0,
            defect: None,
            seed: number("SEED", SEED),
            epoch: Instant::now(),
            completes: Mutex::default(),
        }
    }

    fn lead(&self, state: &mut State, which: usize, fault: Fault) {
        if !state.leaders[which].is_running() {
            state.leaders[which].forget();
            state.since[which] = Since::default();
            self.step(state, which, Fault::None);
            if which == 1 {
                state.left -= 1;
            }
        }
        self.step(state, which, fault);
    }

    /// A leader takes one step. Asserts the rules of its writes.
    fn step(&self, state: &mut State, which: usize, fault: Fault) {
        observe(state);
        let before = record(&state.servers);
        let mut around = Surroundings {
            servers: &mut state.servers,
            earlier: &mut None,
            late: &mut state.late,
            now: 1,
            epoch: self.epoch,
        };
        let wrote = state.leaders[which].step(&mut around, fault);
        observe(state);
        let (leader, since) = (&state.leaders[which], &state.since[which]);
        // A leader without a connection has an empty cache of the workload.
        let is_current = self.lags.is_none() && leader.saw.get(&kube_system()).is_some();
        let deployed_at = since.first_deployed.then_some(1);
        Walk::assert_installs(leader, is_current, deployed_at);
        if wrote.is_none() {
            return;
        }
        let Some(after) = record(&state.servers) else {
            return;
        };
        let of = recorded_cluster(&after);
        for gate in opened(&state.servers, before.as_ref(), &after) {
            assert!(
                since.clusters.contains(&of),
                "outdated: {:?} {} is opened for {of}, and the Cluster was {:?} in the reconcile",
                gate.hook,
                gate.version,
                since.clusters,
            );
            assert_in_order(&state.servers, &after, gate);
            let version = version_of(gate);
            let early = concerned(&state.servers, gate.hook).find(|package| !since.right[*package][version]);
            assert!(
                early.is_none(),
                "early: {:?} {} is opened, and package {early:?} was not right in the reconcile",
                gate.hook,
                gate.version,
            );
        }
    }

    /// Returns which reads may fail or race with other components.
    fn stops(&self) -> fn(&Read) -> bool {
        fn of(ask: &Read, kinds: &[&str]) -> bool {
            matches!(ask, Read::Object(key, _) if kinds.contains(&&*key.resource.plural))
        }
        match self.kind {
            Kind::Refused(_) | Kind::Unanswered | Kind::Rival(_) | Kind::Edits([Edit::ReplaceServer]) => {
                is_request
            }
            Kind::Edits(edits) if edits.contains(&Edit::Delete) => is_request,
            Kind::Edits([Edit::Content(..)]) => |ask| of(ask, &["packageinstalls", "apps", "packages"]),
            Kind::Edits([_]) => |ask| of(ask, &["packageinstalls", "apps", "secrets"]),
            Kind::Edits(_) => |ask| of(ask, &["clusters", "goods", "packageinstalls", "apps"]),
            _ => |ask| of(ask, &["packageinstalls", "apps"]),
        }
    }

    /// Updates all stores without lag.
    fn show(&self, state: &mut State) {
        for leader in &mut state.leaders {
            for (store, (server, kinds)) in STORES.iter().enumerate() {
                if self.lags != Some(store) {
                    leader.watch_store(&state.servers, *server, kinds, 1);
                }
            }
        }
    }

    fn fault(&self) -> Option<Fault> {
        match self.kind {
            Kind::Refused(code) => Some(Fault::Refused(code)),
            Kind::Unanswered => Some(Fault::Unanswered),
            Kind::Frozen => Some(Fault::Frozen),
            _ => None,
        }
    }

    /// Asserts that a fair schedule completes the upgrade or the deletion from `state`. Confirms all states on the way.
    fn complete(&self, state: &State) {
        let mut state = state.clone();
        (state.left, state.edits) = (0, 0);
        let mut met = Vec::new();
        for _ in 0..ROUNDS {
            let here = digest(&state);
            let known = self.completes.lock().is_ok_and(|known| known.contains(&here));
            if known || is_over(&state) {
                if let Ok(mut known) = self.completes.lock() {
                    known.extend(met);
                }
                return;
            }
            met.push(here);
            self.round(&mut state);
        }
        let record = record(&state.servers);
        panic!(
            "held: not complete after {ROUNDS} rounds: {}",
            brief(record.as_ref())
        );
    }

    /// Returns the rule that is broken in a state, if any. Only a sample of the states is checked for completion.
    fn broken(&self, state: &State) -> Option<String> {
        let is_checked =
            digest(state).is_multiple_of(ONE_OF) && !state.leaders.iter().any(Leader::is_running);
        if state.broken.is_none() && is_checked {
            return failure(|| self.complete(state));
        }
        state.broken.clone()
    }

    /// Corrects all inputs.
    fn mend(&self, servers: &mut Servers) {
        let Kind::Edits(edits) = self.kind else { return };
        let is_choice = |edit: &Edit| matches!(edit, Edit::Choose(..) | Edit::OldManifest);
        mend(servers, edits.iter().any(is_choice));
        self.reduce(servers);
    }

    /// Removes the third package from all releases if the Cluster has two.
    fn reduce(&self, servers: &mut Servers) {
        if self.packages.len() == PACKAGES.len() {
            return;
        }
        for release in 0..RELEASES.len() {
            servers.edit(&template(release), |template| {
                template["spec"]["additionalPackages"] = serde_json::json!([]);
            });
        }
    }

    fn round(&self, state: &mut State) {
        self.mend(&mut state.servers);
        self.act(state);
    }

    /// Every component acts once, in order.
    fn act(&self, state: &mut State) {
        self.deploy(state);
        if !(roll(&mut state.servers, &control_plane()) || roll(&mut state.servers, &worker())) {
            state.capi.replica.watch(&state.servers);
            self.cluster_api(state);
        }
    }

    /// The leader reconciles, and kapp-controller deploys all packages.
    fn deploy(&self, state: &mut State) {
        for late in std::mem::take(&mut state.late) {
            state.servers.arrive(&late);
        }
        for _ in 0..2 {
            while state.leaders[0].is_running() {
                self.step(state, 0, Fault::None);
            }
            state.leaders[0].watch(&state.servers, 1);
            self.lead(state, 0, Fault::None);
        }
        while state.leaders[0].is_running() {
            self.step(state, 0, Fault::None);
        }
        for &package in self.packages {
            state.kapp.sync(&mut state.servers, package);
            state.kapp.begin(&mut state.servers, package, 1);
            state.kapp.end(&mut state.servers, package, 1, true);
            state.kapp.sync(&mut state.servers, package);
        }
    }

    /// Cluster API reconciles. Only the cache of a replica that lags stays.
    fn cluster_api(&self, state: &mut State) {
        let record = record(&state.servers);
        state.capi.note(&state.servers, record.as_ref(), 1);
        if !self.replica_lags {
            state.capi.replica.watch(&state.servers);
        }
        state.capi.reconcile(&mut state.servers, Reading::AtOnce, 1);
        state.capi.forget();
        if !self.replica_lags {
            state.capi.replica.forget();
        }
    }

    /// Takes an action. Asserts the rules of the walks.
    fn take(&self, state: &mut State, action: Action) {
        let servers = &mut state.servers;
        match action {
            Action::Lead(which) => self.lead(state, which, Fault::OneWrite),
            Action::Fault(which) => {
                state.left -= 1;
                match self.fault() {
                    Some(fault) => self.lead(state, which, fault),
                    None => state.leaders[which].crash(),
                }
            }
            Action::Watch(store) => {
                let (server, kinds) = STORES[store];
                state.leaders[0].watch_store(servers, server, kinds, 1);
            }
            Action::Replica => state.capi.replica.watch(servers),
            Action::Arrive => {
                let late = state.late.remove(0);
                servers.arrive(&late);
            }
            Action::Edit(which) => {
                state.edits &= !(1 << which);
                if let Kind::Edits(edits) = self.kind {
                    edit(servers, edits[which]);
                    self.reduce(servers);
                    if matches!(edits[which], Edit::Move | Edit::Again) {
                        state.capi.renew();
                    }
                    if edits[which] == Edit::Move {
                        state.leaders.iter_mut().for_each(Leader::crash);
                        state.kapp.interrupt(0);
                    }
                }
            }
            Action::Sync(package) => state.kapp.sync(servers, package),
            Action::Begin(package) => state.kapp.begin_what_differs(servers, package, 1),
            Action::End(package) => {
                state.kapp.end(servers, package, 1, true);
                state.kapp.sync(servers, package);
            }
            Action::Fail(package) => {
                state.left -= 1;
                state.kapp.end(servers, package, 1, false);
            }
            Action::Interrupt(package) => {
                state.left -= 1;
                state.kapp.interrupt(package);
            }
            Action::ClusterApi => {
                if !(roll(servers, &control_plane()) || roll(servers, &worker())) {
                    self.cluster_api(state);
                }
            }
        }
        self.show(state);
        observe(state);
    }
}

/// Returns the message of a failed assertion, if any.
fn failure(acts: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(acts)).err()?;
    let message = panic.downcast_ref::<String>().cloned();
    Some(message.unwrap_or_else(|| "a panic".to_owned()))
}

/// Records deployed packages and the state of the Cluster for all reconciles.
fn observe(state: &mut State) {
    let cluster = cluster_state(&state.servers);
    let now = PACKAGES.map(|package| right(&state.servers, &state.kapp, package));
    let is_first_deployed = is_first_deployed(&state.servers, &state.kapp);
    for since in &mut state.since {
        since.clusters.extend(cluster.clone());
        since.first_deployed |= is_first_deployed;
        for (was, is) in since.right.iter_mut().flatten().zip(now.iter().flatten()) {
            *was |= *is;
        }
    }
}

/// Whether the upgrade or the deletion is complete.
fn is_over(state: &State) -> bool {
    if state.edits != 0 {
        return false;
    }
    let Some(cluster) = state.servers.get(&cluster()) else {
        return false;
    };
    if !cluster["metadata"]["deletionTimestamp"].is_null() {
        return state.capi.deleted;
    }
    let to = &cluster["spec"]["topology"]["version"];
    let closed = record(&state.servers).is_some_and(|record| record.outcome.is_some() && *to == record.to);
    closed
        && *to != VERSIONS[0]
        && *to == VERSIONS[version_at(&state.servers, &worker(), "status")]
        && !state.capi.awaits_hooks()
}

impl Model for Search {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut servers = servers();
        servers.strategy.by_content = true;
        self.reduce(&mut servers);
        edit(&mut servers, Edit::Steps(self.planned_by));
        let rivals = if let Kind::Rival(_) = self.kind { 2 } else { 1 };
        let leader = Leader::of_search(self.stops());
        let mut state = State {
            servers,
            kapp: Kapp::default(),
            capi: ClusterApi::default(),
            leaders: vec![leader; rivals],
            late: Vec::new(),
            left: 0,
            edits: 0,
            since: vec![Since::default(); rivals],
            broken: None,
        };
        // Create the Cluster.
        for _ in 0..8 {
            self.act(&mut state);
        }
        for leader in &mut state.leaders {
            leader.watch(&state.servers, 1);
        }
        for made in self.begins_with {
            edit(&mut state.servers, *made);
        }
        for _ in 0..self.rounds {
            self.deploy(&mut state);
        }
        match self.kind {
            Kind::Edits(edits) => state.edits = (1 << edits.len()) - 1,
            _ => state.left = self.times,
        }
        state.capi.plant(self.defect);
        for leader in &mut state.leaders {
            leader.defect = self.defect;
        }
        observe(&mut state);
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() || is_over(state) {
            return;
        }
        let faulty = state.left > 0;
        for (which, leader) in state.leaders.iter().enumerate() {
            if which == 0 || leader.is_running() || faulty {
                actions.push(Action::Lead(which));
            }
        }
        if let Some(store) = self.lags {
            actions.push(Action::Watch(store));
        }
        if self.replica_lags {
            actions.push(Action::Replica);
        }
        if !state.late.is_empty() {
            actions.push(Action::Arrive);
        }
        let left = |edit: &usize| state.edits & (1 << edit) != 0;
        actions.extend((0..16).filter(left).map(Action::Edit));
        if faulty {
            match self.kind {
                Kind::Crash | Kind::Frozen if state.leaders[0].is_running() => {
                    actions.push(Action::Fault(0));
                }
                Kind::Refused(_) | Kind::Unanswered => actions.push(Action::Fault(0)),
                _ => {}
            }
        }
        for &package in self.packages {
            actions.push(Action::Sync(package));
            if state.kapp.is_at_work(package) {
                actions.push(Action::End(package));
                if faulty && self.kind == Kind::Run {
                    actions.push(Action::Fail(package));
                    actions.push(Action::Interrupt(package));
                }
            } else {
                actions.push(Action::Begin(package));
            }
        }
        actions.push(Action::ClusterApi);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let broken = failure(|| self.take(&mut state, action));
        state.broken = broken;
        Some(state).filter(|state| digest(state) != digest(last))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(HOLDS, |model: &Self, state: &State| {
            model.broken(state).is_none()
        })]
    }
}
