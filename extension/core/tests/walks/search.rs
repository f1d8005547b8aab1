//! Search of orders of events of upgrades with two packages, by `stateright`.
//!
//! A step is one round of concurrent reads, one write, or one action of another component. A run has one kind of fault, a limited
//! number of times, or edits that users make in any order. A store with unbounded lag is such a fault. Bounds of the search:
//! - a search ends after a number of states. It has one thread and no limit of time, so code and seed alone determine these states;
//! - the API servers answer all requests of a round at once, and reads of constant objects happen together with the next read;
//! - reconciles share no local state, and no time elapses: random walks cover both;
//! - Cluster API observes the latest objects, and machines change their version at once;
//! - an object with restored content has its earlier resourceVersion;
//! - a second leader has a limited number of reconciles;
//! - states that differ only in the objects before a late write are equal;
//! - only a sample of the states is checked for completion.

mod runs;

use std::{
    collections::HashSet,
    hash::{Hash, Hasher},
    sync::Mutex,
    time::Instant,
};

use sluice_core::reconcile::cluster::{Read, Server};
use stateright::{Model, Property};

use crate::{
    capi::{ClusterApi, record, roll, version_at},
    fault::Fault,
    kapp::Kapp,
    leader::{Leader, Surroundings, is_request},
    objects::{PlannedBy, RELEASES, VERSIONS, cluster, control_plane, servers, template, worker},
    random::{SEED, number},
    replica::Reading,
    servers::{Late, Servers, digest},
    truth::{Right, concerned, has_rolled, is_labelled, opened, right, version_of},
    users::{Edit, edit, mend},
};

const PACKAGES: [usize; 2] = [0, 1];

/// Rounds of a fair schedule that complete the upgrade from any state.
const ROUNDS: u32 = 80;

/// Sampling rate of the completion check: many states follow one that never completes.
const ONE_OF: u64 = 64;

/// Caches of a leader, each with its own lag.
pub(super) const STORES: [(Server, &[&str]); 4] = [
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
    (Server::Workload, &["packageinstalls", "apps"]),
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
    /// Packages that were correctly deployed at some time since the start of each leader's reconcile.
    since: Vec<[Right; PACKAGES.len()]>,
    broken: Option<String>,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        digest(self) == digest(other)
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.broken.as_deref().unwrap_or("all invariants hold"))
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
    pub(super) planned_by: PlannedBy,
    /// Edits that are made before anything else happens.
    pub(super) begins_with: &'static [Edit],
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
            planned_by: PlannedBy::default(),
            begins_with: &[Edit::Target(1)],
            seed: number("SEED", SEED),
            epoch: Instant::now(),
            completes: Mutex::default(),
        }
    }

    fn lead(&self, state: &mut State, which: usize, fault: Fault) {
        if !state.leaders[which].is_running() {
            state.leaders[which].forget();
            state.since[which] = Default::default();
            self.step(state, which, Fault::None);
            if which == 1 {
                state.left -= 1;
            }
        }
        self.step(state, which, fault);
    }

    fn step(&self, state: &mut State, which: usize, fault: Fault) {
        observe(state);
        let before = record(&state.servers);
        let mut around = Surroundings {
            servers: &mut state.servers,
            late: &mut state.late,
            now: 1,
            epoch: self.epoch,
        };
        let wrote = state.leaders[which].step(&mut around, fault);
        observe(state);
        if wrote.is_none() {
            return;
        }
        let Some(after) = record(&state.servers) else {
            return;
        };
        for gate in opened(&state.servers, before.as_ref(), &after) {
            let version = version_of(gate);
            let early = concerned(&state.servers, gate.hook)
                .filter(|package| PACKAGES.contains(package))
                .find(|package| !state.since[which][*package][version]);
            if !is_labelled(&after, gate) {
                state.broken = Some(format!(
                    "early: {:?} {} is opened with label {}",
                    gate.hook, gate.version, after.label
                ));
            }
            if !has_rolled(&state.servers, gate) {
                state.broken = Some(format!(
                    "early: {:?} {} is opened before the control plane has the version",
                    gate.hook, gate.version
                ));
            }
            if let Some(package) = early {
                state.broken = Some(format!(
                    "early: {:?} {} is opened, and package {package} was not right in the reconcile",
                    gate.hook, gate.version
                ));
            }
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

    /// Whether a fair schedule completes the upgrade from `state`. Confirms all states on the way.
    fn completes(&self, state: &State) -> bool {
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
                return true;
            }
            met.push(here);
            self.round(&mut state);
            if state.broken.is_some() {
                return true;
            }
        }
        false
    }

    /// Corrects all inputs.
    fn mend(&self, servers: &mut Servers) {
        let Kind::Edits(edits) = self.kind else { return };
        let is_choice = |edit: &Edit| matches!(edit, Edit::Choose(..) | Edit::OldManifest);
        mend(servers, edits.iter().any(is_choice));
        reduce(servers);
    }

    fn round(&self, state: &mut State) {
        self.mend(&mut state.servers);
        self.act(state);
    }

    /// Every component acts once, in order.
    fn act(&self, state: &mut State) {
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
        for package in PACKAGES {
            state.kapp.sync(&mut state.servers, package);
            state.kapp.begin(&mut state.servers, package, 1);
            state.kapp.end(&mut state.servers, package, 1, true);
            state.kapp.sync(&mut state.servers, package);
        }
        if !(roll(&mut state.servers, &control_plane()) || roll(&mut state.servers, &worker())) {
            cluster_api(state);
        }
    }
}

fn cluster_api(state: &mut State) {
    let record = record(&state.servers);
    state.capi.note(&state.servers, record.as_ref(), 1);
    state.capi.replica.watch(&state.servers);
    state.capi.reconcile(&mut state.servers, Reading::AtOnce, 1);
    state.capi.forget();
}

/// Removes the third package from all releases.
fn reduce(servers: &mut Servers) {
    for release in 0..RELEASES.len() {
        servers.edit(&template(release), |template| {
            template["spec"]["additionalPackages"] = serde_json::json!([]);
        });
    }
}

/// Records which packages are correctly deployed.
fn observe(state: &mut State) {
    for package in PACKAGES {
        let now = right(&state.servers, &state.kapp, package);
        for since in &mut state.since {
            for (was, is) in since[package].iter_mut().zip(now) {
                *was |= is;
            }
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
        reduce(&mut servers);
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
            since: vec![Default::default(); rivals],
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
        match self.kind {
            Kind::Edits(edits) => state.edits = (1 << edits.len()) - 1,
            _ => state.left = self.times,
        }
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
        for package in PACKAGES {
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
        actions.sort_by_cached_key(|action| digest(&(self.seed, *action)));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let servers = &mut state.servers;
        match action {
            Action::Lead(which) => self.lead(&mut state, which, Fault::OneWrite),
            Action::Fault(which) => {
                state.left -= 1;
                match self.fault() {
                    Some(fault) => self.lead(&mut state, which, fault),
                    None => state.leaders[which].crash(),
                }
            }
            Action::Watch(store) => {
                let (server, kinds) = STORES[store];
                state.leaders[0].watch_store(servers, server, kinds, 1);
            }
            Action::Arrive => {
                let late = state.late.remove(0);
                servers.arrive(&late);
            }
            Action::Edit(which) => {
                state.edits &= !(1 << which);
                if let Kind::Edits(edits) = self.kind {
                    edit(servers, edits[which]);
                    reduce(servers);
                    if matches!(edits[which], Edit::Move | Edit::Again) {
                        state.capi.renew();
                    }
                    if edits[which] == Edit::Move {
                        state.leaders.iter_mut().for_each(Leader::crash);
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
                    cluster_api(&mut state);
                }
            }
        }
        self.show(&mut state);
        observe(&mut state);
        Some(state).filter(|state| digest(state) != digest(last))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing is released early", |_: &Self, state: &State| {
                state.broken.is_none()
            }),
            Property::always("nothing is held for ever", |model: &Self, state: &State| {
                let is_checked = digest(state).is_multiple_of(ONE_OF)
                    && state.broken.is_none()
                    && !state.leaders.iter().any(Leader::is_running);
                !is_checked || model.completes(state)
            }),
        ]
    }
}
