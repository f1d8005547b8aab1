//! Model of Cluster API's topology controller v1.14: its hook calls and version writes (`exp/topology/desiredstate`:
//! `computeControlPlaneVersion`, `computeMachineDeploymentVersion`, `GetUpgradePlanFromExtension`, the lifecycle hooks). With steps that
//! are not [shown](PlannedBy::Sluice), annotations and status of the Cluster are those of v1.12 and v1.13.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize as _;
use serde_json::{Value, json};
use sluice_core::gate::{
    hook_call::HookCall,
    plan_call::{PlanCall, pinned_in},
};
use sluice_crds::{
    labels::{annotation, label},
    run::{Hook, UpgradeRecord},
};

use crate::{
    connection::time_at,
    defect::Defect,
    machines,
    objects::{
        LATER, PlannedBy, RELEASED, TEAM, VERSIONS, additional, bootstrap, cluster, control_plane, is_below,
        is_unmanaged, kubeconfig, minor, planned_by, release, release_of_version, worker,
    },
    overridden::Overrides,
    replica::{Answer, Reading, Replica},
    servers::{Place, Servers},
};

/// Cluster API and the replicas whose hooks it calls.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct ClusterApi {
    /// Pending hooks.
    pending: BTreeSet<&'static str>,
    /// The replica that calls go to.
    pub(crate) replica: Replica,
    /// The other replica.
    other: Replica,
    /// Behaviour of the reads of the current reconcile.
    reading: Reading,
    /// Hooks whose retry delay is not over, if it is longer than the time to the next reconcile.
    delayed: Option<BTreeSet<&'static str>>,
    /// Answers of GenerateUpgradePlan with the time at which each expires, by versions of control plane and workers, and target. They
    /// belong to the name of the Cluster.
    plans: BTreeMap<[usize; 3], (Vec<usize>, u64)>,
    /// Last time at which the server's record was about the current Cluster and ClusterBootstrap, and had each gate open.
    open: BTreeMap<(&'static str, String), u64>,
    /// Overrides that existed, and the gates that they have opened.
    pub(crate) overrides: Overrides,
    /// Last time at which the Cluster had neither label nor ClusterBootstrap.
    unmanaged: Option<u64>,
    /// Whether the additional package was uninstalled, or cannot be, at some moment of the deletion.
    pub(crate) uninstalled: bool,
    /// Whether the deletion is released.
    pub(crate) deleted: bool,
    /// Writes of the current reconcile.
    in_flight: Option<InFlight>,
    /// Writes of a frozen process.
    frozen: Option<InFlight>,
}

/// Writes of a reconcile that have not arrived.
#[derive(Clone, Debug, Hash)]
struct InFlight {
    /// Specs of control plane and workers, where they change.
    specs: [Option<Value>; 2],
    /// Status of the Cluster, if it changes.
    status: Option<Value>,
    /// Version that the control plane takes, if it takes one.
    takes: Option<usize>,
}

impl InFlight {
    /// Returns the writes that lead from one state to another.
    fn between(before: &Servers, after: &Servers) -> Self {
        let changed = |place: &Place, part: &str| {
            let [old, new] = [before, after].map(|servers| servers.get(place).map(|object| &object[part]));
            new.filter(|new| old != Some(*new)).cloned()
        };
        let [old, new] = [before, after].map(|servers| version_at(servers, &control_plane(), "spec"));
        Self {
            specs: [control_plane(), worker()].map(|place| changed(&place, "spec")),
            status: changed(&cluster(), "status"),
            takes: (old != new).then_some(new),
        }
    }

    fn arrive(self, servers: &mut Servers) {
        for (place, spec) in [control_plane(), worker()].iter().zip(self.specs) {
            if let Some(spec) = spec {
                servers.edit(place, |object| object["spec"] = spec);
            }
        }
        if let Some(status) = self.status {
            servers.edit(&cluster(), |cluster| cluster["status"] = status);
        }
    }
}

/// Limit of a deletion, in seconds. Clusters are deleted at the start of the epoch.
const DELETION_LIMIT: u64 = 600;

/// Time for which Cluster API caches an answer of GenerateUpgradePlan, in seconds. Its ten minutes would be half of the rounds of a walk.
const PLAN_CACHED_FOR: u64 = 300;

/// Returns the current record, even of an earlier Cluster of the same name.
fn shown(servers: &Servers) -> Option<UpgradeRecord> {
    let bootstrap = servers.get(&bootstrap())?;
    UpgradeRecord::deserialize(&bootstrap["status"]["upgrade"]).ok()
}

/// Returns the current record of the Cluster.
pub(crate) fn record(servers: &Servers) -> Option<UpgradeRecord> {
    let uid = &servers.get(&cluster())?["metadata"]["uid"];
    shown(servers).filter(|record| *uid == record.cluster_uid)
}

/// Returns a short text of a record.
pub(crate) fn brief(record: Option<&UpgradeRecord>) -> String {
    let Some(record) = record else {
        return "no record".to_owned();
    };
    let gates = record.gates.iter().map(|gate| {
        let open = if gate.open { "open" } else { &gate.message };
        format!("\n  {:?} {}: {open}", gate.hook, gate.version)
    });
    let packages = record.packages.iter().map(|package| {
        let (state, reason) = (package.state, &package.reason);
        format!("\n  {} {}: {state:?} {reason}", package.name, package.version)
    });
    let parts: String = gates.chain(packages).collect();
    format!(
        "record to {} by {:?} of {:?}, {:?}:{parts}",
        record.to, record.hop, record.tkr, record.outcome
    )
}

/// Returns the desired or current version of a control plane or of workers.
pub(crate) fn version_at(servers: &Servers, place: &Place, part: &str) -> usize {
    let object = servers.get(place).unwrap_or(&Value::Null);
    let version = match (place.1.as_str(), part) {
        ("machinedeployments", "spec") => &object["spec"]["template"]["spec"]["version"],
        ("machinedeployments", _) => &object["status"]["versions"][0]["version"],
        _ => &object[part]["version"],
    };
    index_of(version).expect("a version of the walk")
}

fn index_of(version: &Value) -> Option<usize> {
    VERSIONS.iter().position(|known| version == known)
}

fn take(servers: &mut Servers, place: &Place, part: &str, version: usize) {
    let version = json!(VERSIONS[version]);
    servers.edit(place, |object| match (place.1.as_str(), part) {
        ("machinedeployments", "spec") => object["spec"]["template"]["spec"]["version"] = version,
        ("machinedeployments", _) => object["status"]["versions"][0]["version"] = version,
        _ => object[part]["version"] = version,
    });
}

/// Rolls a control plane or workers to their desired version or image. Returns whether they changed.
pub(crate) fn roll(servers: &mut Servers, place: &Place) -> bool {
    let (spec, status) = (
        version_at(servers, place, "spec"),
        version_at(servers, place, "status"),
    );
    if spec == status {
        return machines::replace(servers, place);
    }
    take(servers, place, "status", spec);
    machines::take_image(servers, place);
    true
}

/// Returns the versions that the control plane takes on its way to the target. Of a record of the upgrade, and of the age of an answer of
/// Sluice, nothing is known here.
pub(crate) fn control_plane_steps(servers: &Servers, to: usize) -> Vec<usize> {
    let at = version_at(servers, &control_plane(), "spec");
    match planned_by(servers) {
        _ if !is_below(at, to) => Vec::new(),
        PlannedBy::Nobody => vec![to],
        PlannedBy::Class | PlannedBy::Extension => every_step(at, to),
        PlannedBy::Sluice { .. } => {
            // The release of the later one is always usable.
            let mut between = [LATER, 1].into_iter();
            let is_released = |version: &usize| {
                let release = release(release_of_version(*version));
                servers.get(&release).is_some()
            };
            let between = skips_minor(at, to).then(|| between.find(is_released)).flatten();
            between.into_iter().chain([to]).collect()
        }
    }
}

/// Whether a step passes a minor version.
pub(crate) fn skips_minor(from: usize, to: usize) -> bool {
    minor(to) > minor(from) + 1
}

/// Returns the versions that workers take. An extension plans every one, and Cluster API the last.
fn worker_steps(servers: &Servers, to: usize) -> Vec<usize> {
    let at = version_at(servers, &worker(), "spec");
    match planned_by(servers) {
        _ if !is_below(at, to) => Vec::new(),
        PlannedBy::Nobody | PlannedBy::Class | PlannedBy::Sluice { .. } => vec![to],
        PlannedBy::Extension => every_step(at, to),
    }
}

fn every_step(at: usize, to: usize) -> Vec<usize> {
    let is_step = |step: &usize| is_below(at, *step) && !is_below(to, *step);
    (0..RELEASED).filter(is_step).collect()
}

/// Whether a hook releases a version that Cluster API has not written yet.
fn is_ahead(servers: &Servers, hook: Hook, version: usize) -> bool {
    let place = match hook {
        Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade => control_plane(),
        Hook::AfterControlPlaneUpgrade | Hook::BeforeWorkersUpgrade => worker(),
        _ => return false,
    };
    is_below(version_at(servers, &place, "spec"), version)
}

/// Steps of control plane and workers.
struct Steps {
    control_plane: Vec<usize>,
    workers: Vec<usize>,
}

impl Steps {
    /// Whether workers take this version next.
    fn is_of_workers(&self, version: usize) -> bool {
        self.workers.first() == Some(&version)
    }
}

/// Asserts that Cluster API accepts steps of the control plane: they ascend to the target, and skip no minor version.
fn assert_accepted(steps: &[usize], at: usize, to: usize) {
    let before = [at].into_iter().chain(steps.iter().copied());
    let mut pairs = before.zip(steps);
    assert!(
        pairs.all(|(before, step)| is_below(before, *step) && !skips_minor(before, *step))
            && steps.last() == Some(&to),
        "refused: the steps from {} to {} are {:?}",
        VERSIONS[at],
        VERSIONS[to],
        steps.iter().map(|step| VERSIONS[*step]).collect::<Vec<_>>(),
    );
}

/// Marks the step of an upgrade that is under way.
fn mark_step(servers: &mut Servers, shown: bool, is_under_way: bool) {
    let at = version_at(servers, &control_plane(), "spec");
    servers.edit(&cluster(), |cluster| {
        if is_under_way || !shown {
            let step = if is_under_way { VERSIONS[at] } else { "" };
            cluster["metadata"]["annotations"][annotation::UPGRADE_STEP] = json!(step);
            return;
        }
        let annotations = cluster.pointer_mut("/metadata/annotations");
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.remove(annotation::UPGRADE_STEP);
        }
    });
}

impl ClusterApi {
    /// Forgets which gates were open, when the Cluster was unmanaged, and all overrides.
    pub(crate) fn forget(&mut self) {
        self.open.clear();
        self.overrides = Overrides::default();
        self.unmanaged = None;
    }

    /// Cluster API and the replicas call and answer for another Cluster of the same name.
    pub(crate) fn renew(&mut self) {
        *self = Self {
            replica: std::mem::take(&mut self.replica),
            other: std::mem::take(&mut self.other),
            plans: std::mem::take(&mut self.plans),
            ..Self::default()
        };
    }

    /// Calls go to the other replica.
    pub(crate) fn turn(&mut self) {
        std::mem::swap(&mut self.replica, &mut self.other);
    }

    /// From now on, the retry delay of a held hook lasts until [`Self::end_delays`].
    pub(crate) fn delay(&mut self) {
        self.delayed.get_or_insert_default();
    }

    /// Ends the retry delay of all hooks.
    pub(crate) fn end_delays(&mut self) {
        self.delayed.iter_mut().for_each(BTreeSet::clear);
    }

    /// Plants a defect in both replicas.
    pub(crate) fn plant(&mut self, defect: Option<Defect>) {
        self.replica.defect = defect;
        self.other.defect = defect;
    }

    /// Goes back to an earlier state, as an API server does. The replica is another process, and keeps its cache.
    pub(crate) fn go_back(&mut self, earlier: &Self) {
        self.pending.clone_from(&earlier.pending);
        (self.deleted, self.uninstalled) = (earlier.deleted, earlier.uninstalled);
        (self.in_flight, self.frozen) = (None, None);
        self.forget();
    }

    /// Reconciles the Cluster. Its writes arrive at [`Self::end`], or with the next reconcile: no two are concurrent.
    pub(crate) fn begin(&mut self, servers: &mut Servers, reading: Reading, now: u64) {
        self.end(servers);
        let mut there = servers.clone();
        self.reconcile(&mut there, reading, now);
        self.in_flight = Some(InFlight::between(servers, &there));
    }

    /// The writes of the current reconcile arrive.
    pub(crate) fn end(&mut self, servers: &mut Servers) {
        if let Some(writes) = self.in_flight.take() {
            writes.arrive(servers);
        }
    }

    /// The process freezes before its writes, and another one takes over.
    pub(crate) fn freeze(&mut self) {
        if let Some(writes) = self.in_flight.take() {
            self.frozen = Some(writes);
        }
    }

    /// The writes of the frozen process arrive.
    pub(crate) fn thaw(&mut self, servers: &mut Servers) {
        if let Some(writes) = self.frozen.take() {
            writes.arrive(servers);
        }
    }

    /// Returns the version that the control plane takes by a write that has not arrived.
    pub(crate) fn taking(&self) -> Option<usize> {
        self.in_flight.as_ref()?.takes
    }

    /// Records the open gates, and what else releases a call.
    pub(crate) fn note(&mut self, servers: &Servers, record: Option<&UpgradeRecord>, now: u64) {
        let has_bootstrap = servers.get(&bootstrap()).is_some();
        let Some(cluster) = servers.get(&cluster()) else {
            return;
        };
        if !has_bootstrap && cluster["metadata"]["labels"][label::TKR].is_null() {
            self.unmanaged = Some(now);
        }
        let is_deleting = !cluster["metadata"]["deletionTimestamp"].is_null();
        let has_nothing = !has_bootstrap
            || is_unmanaged(servers)
            || servers.get(&kubeconfig()).is_none()
            || servers.get(&additional()).is_none();
        self.uninstalled |= is_deleting && (has_nothing || now >= DELETION_LIMIT);
        let generation = |object: &Value| object["metadata"]["generation"].as_i64().unwrap_or_default();
        let is_current = |record: &&UpgradeRecord| {
            record.observed_cluster_generation >= generation(cluster)
                && record.label
                    == cluster["metadata"]["labels"][label::TKR]
                        .as_str()
                        .unwrap_or_default()
                && servers
                    .get(&bootstrap())
                    .is_some_and(|bootstrap| record.observed_bootstrap_generation == generation(bootstrap))
        };
        for gate in record
            .filter(is_current)
            .into_iter()
            .flat_map(|record| &record.gates)
        {
            if gate.open {
                self.open.insert((gate.hook.as_str(), gate.version.clone()), now);
                self.overrides.note(gate, now);
            }
        }
    }

    /// Reconciles the Cluster once, with this behaviour of the reads that confirm releases.
    pub(crate) fn reconcile(&mut self, servers: &mut Servers, reading: Reading, now: u64) {
        let object = servers.get(&cluster()).cloned();
        self.reconcile_cached(servers, object, reading, now);
    }

    /// Reconciles this state of the Cluster, which the cache of Cluster API shows.
    pub(crate) fn reconcile_cached(
        &mut self,
        servers: &mut Servers,
        object: Option<Value>,
        reading: Reading,
        now: u64,
    ) {
        self.end(servers);
        self.reading = reading;
        let Some(object) = object else {
            return;
        };
        if object["spec"]["paused"] == json!(true) {
            return;
        }
        let to = index_of(&object["spec"]["topology"]["version"]).expect("a version of the walk");
        if !object["metadata"]["deletionTimestamp"].is_null() {
            self.deleted |= self.released(servers, &object, (Hook::BeforeClusterDelete, to, None), now);
            return;
        }
        let Some(steps) = self.steps(servers, &object, to, now) else {
            return;
        };
        let stable = self.control_plane(servers, &object, (to, &steps), now);
        let workers = version_at(servers, &worker(), "spec");
        let rolling = workers != version_at(servers, &worker(), "status");
        let held =
            self.is_pending(Hook::AfterControlPlaneUpgrade) || self.is_pending(Hook::BeforeWorkersUpgrade);
        if let Some(next) = steps.workers.first() {
            if !rolling && !held && stable && !machines::is_deferred(&object) {
                take(servers, &worker(), "spec", *next);
            }
        } else if stable
            && version_at(servers, &control_plane(), "spec") == to
            && !rolling
            && !self.is_pending(Hook::AfterControlPlaneUpgrade)
            && !self.is_pending(Hook::AfterWorkersUpgrade)
        {
            self.call(servers, &object, Hook::AfterClusterUpgrade, to, now);
        }
        let planned_by = planned_by(servers);
        if let PlannedBy::Extension | PlannedBy::Sluice { shown: true } = planned_by {
            servers.edit(&cluster(), |cluster| {
                for (part, steps) in [
                    ("controlPlane", &steps.control_plane),
                    ("workers", &steps.workers),
                ] {
                    let steps = steps.iter().map(|step| json!({"version": VERSIONS[*step]}));
                    cluster["status"][part]["upgradePlan"] = steps.collect();
                }
            });
        }
        if let PlannedBy::Sluice { shown } = planned_by {
            mark_step(servers, shown, self.is_pending(Hook::AfterClusterUpgrade));
        }
        machines::reconcile(servers, &object);
    }

    /// Returns the steps to the target; `None` if Sluice does not plan them.
    fn steps(&mut self, servers: &Servers, object: &Value, to: usize, now: u64) -> Option<Steps> {
        let at = version_at(servers, &control_plane(), "spec");
        let control_plane = match planned_by(servers) {
            PlannedBy::Sluice { .. } if is_below(at, to) => self.planned(servers, object, (at, to), now)?,
            _ => control_plane_steps(servers, to),
        };
        Some(Steps {
            control_plane,
            workers: worker_steps(servers, to),
        })
    }

    /// Returns the cached answer of GenerateUpgradePlan, or else calls the hook.
    fn planned(
        &mut self,
        servers: &Servers,
        object: &Value,
        (at, to): (usize, usize),
        now: u64,
    ) -> Option<Vec<usize>> {
        let key = [at, version_at(servers, &worker(), "spec"), to];
        if let Some((steps, _)) = self.plans.get(&key).filter(|(_, until)| now < *until) {
            return Some(steps.clone());
        }
        let variables = &object["spec"]["topology"]["variables"];
        let pinned = if variables.is_null() {
            Vec::new()
        } else {
            pinned_in(&variables.to_string()).expect("variables")
        };
        let call = PlanCall {
            namespace: TEAM.to_owned(),
            name: "one".to_owned(),
            uid: object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            from: VERSIONS[at].to_owned(),
            to: VERSIONS[to].to_owned(),
            pinned,
        };
        let planned = self.replica.plan(servers, &call, self.reading)?;
        let of_walk = |step: &String| VERSIONS.iter().position(|known| known == step);
        let steps: Vec<usize> = planned.iter().filter_map(of_walk).collect();
        assert_eq!(steps.len(), planned.len(), "{planned:?} are versions of the walk");
        assert_accepted(&steps, at, to);
        self.plans.insert(key, (steps.clone(), now + PLAN_CACHED_FOR));
        Some(steps)
    }

    /// Whether the control plane has a version that workers may follow to.
    fn control_plane(
        &mut self,
        servers: &mut Servers,
        object: &Value,
        (to, steps): (usize, &Steps),
        now: u64,
    ) -> bool {
        let at = version_at(servers, &control_plane(), "spec");
        if at != version_at(servers, &control_plane(), "status") {
            if !self.is_pending(Hook::AfterControlPlaneUpgrade) {
                self.mark(at, steps);
            }
            return false;
        }
        for hook in [Hook::AfterControlPlaneUpgrade, Hook::BeforeWorkersUpgrade] {
            if !self.call(servers, object, hook, at, now) {
                return at == to;
            }
        }
        if steps.is_of_workers(at) {
            return true;
        }
        let workers = version_at(servers, &worker(), "spec");
        if workers != version_at(servers, &worker(), "status")
            || !self.call(servers, object, Hook::AfterWorkersUpgrade, at, now)
        {
            return at == to;
        }
        let Some(next) = steps.control_plane.first().copied() else {
            return at == to;
        };
        if !self.is_pending(Hook::AfterClusterUpgrade) {
            let is_held = object["metadata"]["annotations"]
                .as_object()
                .is_some_and(|annotations| {
                    annotations
                        .keys()
                        .any(|key| key.starts_with(annotation::BEFORE_UPGRADE_PREFIX))
                });
            if is_held || !self.released(servers, object, (Hook::BeforeClusterUpgrade, to, Some(next)), now) {
                return false;
            }
            self.pending.insert(Hook::AfterClusterUpgrade.as_str());
        }
        if self.released(
            servers,
            object,
            (Hook::BeforeControlPlaneUpgrade, next, Some(next)),
            now,
        ) {
            self.mark(next, steps);
            take(servers, &control_plane(), "spec", next);
        }
        false
    }

    /// Marks the hooks of a version that the control plane takes.
    fn mark(&mut self, version: usize, steps: &Steps) {
        self.pending.insert(Hook::AfterControlPlaneUpgrade.as_str());
        if steps.is_of_workers(version) {
            self.pending.insert(Hook::BeforeWorkersUpgrade.as_str());
            self.pending.insert(Hook::AfterWorkersUpgrade.as_str());
        }
    }

    /// Whether a hook was not released yet.
    pub(crate) fn awaits_hooks(&self) -> bool {
        !self.pending.is_empty()
    }

    fn is_pending(&self, hook: Hook) -> bool {
        self.pending.contains(hook.as_str())
    }

    /// Calls a hook if it is pending. Returns whether it is released.
    fn call(&mut self, servers: &Servers, object: &Value, hook: Hook, version: usize, now: u64) -> bool {
        if !self.is_pending(hook) {
            return true;
        }
        let released = self.released(servers, object, (hook, version, None), now);
        if released {
            self.pending.remove(hook.as_str());
        }
        released
    }

    /// Asserts that a released gate was open in the record of the API server at some moment between call and answer, or that Sluice did
    /// not manage the Cluster. A deletion may exceed its limit, so packages are its measure.
    fn judge(&self, hook: Hook, version: usize, asked: u64) {
        if hook == Hook::BeforeClusterDelete {
            assert!(
                self.uninstalled,
                "deleted: a call of {asked} is released before the additional package is uninstalled"
            );
        } else if self.unmanaged.is_none_or(|at| at < asked) {
            let open = self.open.get(&(hook.as_str(), VERSIONS[version].to_owned()));
            assert!(
                open.is_some_and(|at| *at >= asked),
                "stale: a call of {asked} to {hook:?} {} is released, and its gate was open last at {open:?}",
                VERSIONS[version]
            );
        }
    }

    /// Returns whether a call is released: hook, version, and next version of the control plane. A hook is not called during its retry
    /// delay.
    fn released(
        &mut self,
        servers: &Servers,
        object: &Value,
        (hook, asked, step): (Hook, usize, Option<usize>),
        now: u64,
    ) -> bool {
        let name = hook.as_str();
        if self
            .delayed
            .as_ref()
            .is_some_and(|delayed| delayed.contains(name))
        {
            return false;
        }
        let metadata = &object["metadata"];
        let deleting = !metadata["deletionTimestamp"].is_null();
        let call = HookCall {
            hook,
            namespace: TEAM,
            name: "one",
            uid: metadata["uid"].as_str().unwrap_or_default(),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            label: metadata["labels"][label::TKR].as_str(),
            labels: None,
            version: VERSIONS[asked],
            first_step: step.map(|step| VERSIONS[step]),
            deleted_at: deleting.then(|| time_at(now)),
            now: Some(time_at(now)),
            clock: Some(self.replica.shown_clock(now)),
        };
        let Answer { released, asked: at } = self.replica.answer(servers, &call, self.reading, now);
        if released {
            let next = step.unwrap_or(asked);
            self.judge(hook, next, at);
            let is_managed = self.unmanaged.is_none_or(|unmanaged| unmanaged < at);
            if is_managed && is_ahead(servers, hook, next) {
                let clock = self.replica.clock(now);
                self.overrides.judge(&call, VERSIONS[next], clock, (at, now));
            }
            let observed = record(servers).map(|record| record.observed_cluster_generation);
            let is_earlier = observed.is_some_and(|observed| call.generation < observed);
            // Late answers are about an earlier record, and a deletion may exceed its limit.
            assert!(
                at < now || hook == Hook::BeforeClusterDelete || !is_earlier,
                "generation: a call to {hook:?} {} about generation {} of the Cluster is released by a record of {observed:?}",
                VERSIONS[asked],
                call.generation,
            );
        } else if let Some(delayed) = &mut self.delayed {
            delayed.insert(name);
        }
        released
    }
}
