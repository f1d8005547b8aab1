//! The model: everything that may happen to a Cluster, and what must be true all the time.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Instant;

use sluice_core::upgrade::tkr::TkrFacts;
use stateright::{Checker as _, Model, Property};

use crate::capi::{self, Plan};
use crate::kapp;
use crate::leader;
use crate::users::{self, Edit};
use crate::world::{
    self, Bootstrap, CapiMemory, Cluster, Contact, Leader, Life, Package, Planned, Rollout, Stop, UIDS, Wish,
    World,
};

/// Rounds of the fair schedule that complete any upgrade of the model.
const ROUNDS: usize = 80;

/// One model: what the world is like and what may happen to it.
pub(crate) struct Upgrade {
    pub(crate) plan: Plan,
    pub(crate) workers: bool,
    pub(crate) packages: usize,
    /// Edits that were made before anything else happens.
    pub(crate) begins_with: &'static [Edit],
    /// Edits that may be made at any time.
    pub(crate) edits: &'static [Edit],
    pub(crate) failures: u8,
    pub(crate) resyncs: u8,
    pub(crate) releases: Vec<TkrFacts>,
    /// Whether PackageInstalls and Apps are seen by separate watches, each at its own time.
    pub(crate) watches_lag: bool,
    /// Whether replicas see the ClusterBootstrap later than it is written.
    pub(crate) replicas: usize,
    /// Leaders that read first and act later, unaware of each other; with none, the one leader reads and acts at once.
    pub(crate) rivals: usize,
    /// Whether Cluster API's floor between two calls is modelled.
    pub(crate) floors: bool,
    /// States from which completion is known.
    pub(crate) completes: Mutex<HashSet<u64>>,
}

impl Upgrade {
    pub(crate) fn new(plan: Plan, edits: &'static [Edit]) -> Self {
        Self {
            plan,
            workers: true,
            packages: 1,
            begins_with: &[],
            edits,
            failures: 0,
            resyncs: 0,
            releases: leader::catalogue(&[0, 1, 2]),
            watches_lag: false,
            replicas: 0,
            rivals: 0,
            floors: false,
            completes: Mutex::new(HashSet::new()),
        }
    }
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Edit(usize),
    Look(usize),
    Pass(usize),
    SeeInstall(usize, usize),
    SeeApp(usize, usize),
    SyncReplica(usize),
    ReconcileInstall(usize),
    StartApp(usize),
    ResyncApp(usize),
    FinishApp(usize),
    FailApp(usize),
    Uninstall(usize),
    ReconcileTopology(usize),
    EndFloors,
    RollControlPlane,
    RollWorkers,
}

impl Model for Upgrade {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.settled_world()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() || world.cluster.gone() {
            return;
        }
        let left = |edit: &usize| world.edits_left & (1 << edit) != 0;
        let edits = (0..self.edits.len()).filter(left);
        actions.extend(
            edits
                .filter(|edit| users::is_possible(world, self.edits[*edit]))
                .map(Action::Edit),
        );
        for leader in 0..world.leaders.len() {
            if self.rivals > 0 {
                actions.push(Action::Look(leader));
            }
            if self.rivals == 0 || world.leaders[leader].read.is_some() {
                actions.push(Action::Pass(leader));
            }
            if self.watches_lag {
                for package in 0..self.packages {
                    actions.push(Action::SeeInstall(leader, package));
                    actions.push(Action::SeeApp(leader, package));
                }
            }
        }
        for (package, state) in world.packages.iter().enumerate() {
            if kapp::install_has_work(state) {
                actions.push(Action::ReconcileInstall(package));
            }
            if kapp::app_may_start(state) {
                actions.push(Action::StartApp(package));
            } else if may_resync(state) && world.resyncs_left > 0 {
                actions.push(Action::ResyncApp(package));
            }
            if state.deleting {
                actions.push(Action::Uninstall(package));
            }
            if state.app.running.is_some() {
                actions.push(Action::FinishApp(package));
                if world.failures_left > 0 {
                    actions.push(Action::FailApp(package));
                }
            }
        }
        for replica in 0..world.replicas.len() {
            actions.push(Action::ReconcileTopology(replica));
            if self.replicas > 0 {
                actions.push(Action::SyncReplica(replica));
            }
        }
        if !world.capi.floored.is_empty() {
            actions.push(Action::EndFloors);
        }
        if world.control_plane.rolling() {
            actions.push(Action::RollControlPlane);
        }
        if world.workers.is_some_and(Rollout::rolling) {
            actions.push(Action::RollWorkers);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        self.act(&mut next, action);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing is released before its proof", |_, world: &World| {
                world.broken.is_none()
            }),
            Property::always("no state holds for ever", |model: &Self, world: &World| {
                world.broken.is_some() || model.completes(world)
            }),
            Property::sometimes("an upgrade completes", |_: &Self, world: &World| {
                (world.cluster.to > 0 || world.cluster.gone())
                    && world.edits_left == 0
                    && Self::is_complete(world)
            }),
        ]
    }
}

impl Upgrade {
    /// A cluster at the first version, with everything proven.
    fn settled_world(&self) -> World {
        let wish = Wish {
            package: 0,
            values: 0,
            stage: 0,
            server: 0,
        };
        let packages = vec![Package::settled(wish, 0, 0); self.packages];
        let leader = Leader {
            read: None,
            installs: packages.iter().map(|package| package.install.clone()).collect(),
            apps: packages.iter().map(|package| package.app.clone()).collect(),
        };
        let mut world = World {
            cluster: Cluster {
                uid: 0,
                generation: 1,
                to: 0,
                label: 0,
                paused: false,
                start_held: false,
                life: Life::Lives,
                planned: Planned::default(),
            },
            control_plane: Rollout::settled(0),
            workers: self.workers.then(|| Rollout::settled(0)),
            capi: CapiMemory::default(),
            bootstrap: Bootstrap::made(0, 0),
            elsewhere: vec![Package::settled(Wish { server: 1, ..wish }, 1, 0); self.packages - 1],
            packages,
            server: 0,
            contact: Contact::Answers,
            merge_fails: false,
            leaders: vec![leader; self.rivals.max(1)],
            replicas: Vec::new(),
            edits_left: (1 << self.edits.len()) - 1,
            failures_left: self.failures,
            resyncs_left: self.resyncs,
            broken: None,
        };
        leader::pass(&mut world, 0, self.plan, &self.releases);
        world.replicas = vec![world.index(); self.replicas.max(1)];
        for edit in self.begins_with {
            users::make(&mut world, *edit);
        }
        world
    }

    fn act(&self, world: &mut World, action: Action) {
        match action {
            Action::Edit(edit) => {
                users::make(world, self.edits[edit]);
                world.edits_left &= !(1 << edit);
            }
            Action::Look(leader) => world.leaders[leader].read = Some(Box::new(world.read())),
            Action::Pass(leader) => {
                leader::pass(world, leader, self.plan, &self.releases);
                world.leaders[leader].read = None;
            }
            Action::SeeInstall(leader, package) => {
                world.leaders[leader].installs[package] = world.packages[package].install.clone();
            }
            Action::SeeApp(leader, package) => {
                world.leaders[leader].apps[package] = world.packages[package].app.clone();
            }
            Action::SyncReplica(replica) => world.replicas[replica] = world.index(),
            Action::ReconcileInstall(package) => kapp::reconcile_install(&mut world.packages[package]),
            Action::StartApp(package) => {
                let on = kapp::api_server(world);
                kapp::start_app(&mut world.packages[package], on);
            }
            Action::ResyncApp(package) => {
                let on = kapp::api_server(world);
                kapp::start_app(&mut world.packages[package], on);
                world.resyncs_left -= 1;
            }
            Action::FinishApp(package) => kapp::finish_app(world, package, true),
            Action::FailApp(package) => {
                kapp::finish_app(world, package, false);
                world.failures_left -= 1;
            }
            Action::Uninstall(package) => world.packages[package] = Package::missing(world.server),
            Action::ReconcileTopology(replica) => {
                capi::reconcile(world, self.plan, replica, self.floors);
            }
            Action::EndFloors => world.capi.floored = world::Hooks::default(),
            Action::RollControlPlane => world.control_plane.status = world.control_plane.spec,
            Action::RollWorkers => {
                if let Some(workers) = &mut world.workers {
                    workers.status = workers.spec;
                }
            }
        }
        if !self.watches_lag {
            self.show_everything(world);
        }
        if self.replicas == 0 {
            world.replicas[0] = world.index();
        }
    }

    fn show_everything(&self, world: &mut World) {
        for leader in 0..world.leaders.len() {
            for package in 0..self.packages {
                show(world, leader, package);
            }
        }
    }

    fn is_complete(world: &World) -> bool {
        if world.cluster.deleting() {
            return world.cluster.gone();
        }
        let to = Rollout::settled(world.cluster.to);
        let record = world.bootstrap.record.as_ref();
        world.control_plane == to
            && world.workers.is_none_or(|workers| workers == to)
            && world.capi.pending.is_empty()
            && record.is_some_and(|record| {
                record.0.outcome.is_some()
                    && record.0.to == world::version(world.cluster.to)
                    && record.0.cluster_uid == UIDS[usize::from(world.cluster.uid)]
            })
    }

    /// Whether a fair schedule completes the upgrade once every input is good.
    fn completes(&self, world: &World) -> bool {
        let mut world = world.clone();
        users::make_everything_good(&mut world);
        let mut passed = Vec::new();
        for _ in 0..ROUNDS {
            let known = self
                .completes
                .lock()
                .expect("no thread panicked")
                .contains(&fingerprint(&world));
            if known || Self::is_complete(&world) {
                self.completes.lock().expect("no thread panicked").extend(passed);
                return true;
            }
            passed.push(fingerprint(&world));
            self.fair_round(&mut world);
            if world.broken.is_some() {
                return false;
            }
        }
        false
    }

    /// Everybody does what there is to do, once, and sees what there is to see.
    fn fair_round(&self, world: &mut World) {
        for package in 0..self.packages {
            if kapp::install_has_work(&world.packages[package]) {
                self.act(world, Action::ReconcileInstall(package));
            }
            if kapp::app_may_start(&world.packages[package]) {
                self.act(world, Action::StartApp(package));
            }
            self.act(world, Action::FinishApp(package));
            if world.packages[package].deleting {
                self.act(world, Action::Uninstall(package));
            }
        }
        self.show_everything(world);
        for leader in 0..world.leaders.len() {
            if self.rivals > 0 {
                self.act(world, Action::Look(leader));
            }
            self.act(world, Action::Pass(leader));
        }
        world.replicas = vec![world.index(); world.replicas.len()];
        self.act(world, Action::EndFloors);
        for replica in 0..world.replicas.len() {
            self.act(world, Action::ReconcileTopology(replica));
        }
        self.act(world, Action::RollControlPlane);
        self.act(world, Action::RollWorkers);
    }
}

fn may_resync(package: &Package) -> bool {
    package.app.running.is_none() && package.app.stop == Stop::No && !package.is_missing()
}

fn show(world: &mut World, leader: usize, package: usize) {
    world.leaders[leader].installs[package] = world.packages[package].install.clone();
    world.leaders[leader].apps[package] = world.packages[package].app.clone();
}

fn fingerprint(world: &World) -> u64 {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(world)
}

/// Explores a model to its end, prints how large it is and fails with the events that break a property.
pub(crate) fn check(name: &str, model: Upgrade) {
    let began = Instant::now();
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!(
        "{name}: {} states, {} transitions, depth {}, {:.1} s",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f32()
    );
    for property in ["nothing is released before its proof", "no state holds for ever"] {
        if let Some(path) = checker.discovery(property) {
            let mut last = path.last_state().clone();
            let actions = path.into_actions();
            println!("{name}: {actions:?} leads to {last:#?}");
            if last.broken.is_none() {
                users::make_everything_good(&mut last);
                (0..ROUNDS).for_each(|_| checker.model().fair_round(&mut last));
            }
            panic!("{name}: not true that {property}; in the end {last:#?}");
        }
    }
    assert!(
        checker.discovery("an upgrade completes").is_some(),
        "{name}: no upgrade ever completes"
    );
}
