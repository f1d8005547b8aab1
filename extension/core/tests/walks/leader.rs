//! Executor of `reconcile` in a walk. Each read and each write is its own step, caches lag, and the process may crash between any two
//! steps.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{Hash, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_core::{
    admission::{
        Verdict,
        cluster_upgrade::{ClusterUpdate, judge},
    },
    cache::stores::Stored as _,
    decode::Undecodable,
    explanation::explain,
    held_cause::{Cause, Probe, ProbedPackage, Probing},
    installation::gate_in_force::{GateInForce, NotInForce, NotInForceReason},
    packages::bootstrap::PackageFacts,
    protocol::SecretVersion,
    reconcile::cluster::{
        CachedControlPlane, Clock, Context, Done, Effects, Facts, Failure, Interrupt, LocalState,
        LocalStates, Object, Read, ReadPhase, ReadResult, Server, Settings, Verb, Watched, Write, reconcile,
    },
    schedule::SyncPeriod,
    upgrade::hop::{ControlPlaneFacts, Rollout},
    upgrade_plan::{UpgradePlan, plan_of},
};
use sluice_crds::{
    foreign::{Cluster, ControlPlane},
    labels::label,
    run::{ClusterBootstrap, HeldCause, UpgradeRecord},
};

use crate::{
    connection::{Connection, WATCHED, time_at},
    defect::{Defect, deployed_with},
    fault::{Fault, make},
    objects::{
        MANAGEMENT_UID, SYSTEM, TEAM, TOKENS, control_plane, control_plane_key, kubeconfig,
        kubeconfig_digest, kubeconfig_with,
    },
    odd::{Shown, are_brought, undecodable},
    overridden::OVERRIDES,
    servers::{Late, Place, Servers, digest, place, place_of, refused},
    supervisor::virtual_machines,
};

/// Sync period of kapp-controller, and resync interval of a settled Cluster.
pub(crate) const SYNC_PERIOD: Duration = Duration::from_mins(10);

/// Kinds that a leader watches, each with its own cache.
pub(crate) const CACHES: &[(Server, &str)] = &[
    (Server::Management, "clusters"),
    (Server::Management, "clusterclasses"),
    (Server::Management, "goods"),
    (Server::Management, "machinedeployments"),
    (Server::Management, "packages"),
    (Server::Management, "clusterbootstraptemplates"),
    (Server::Management, "tanzukubernetesreleases"),
    (Server::Management, "clusterbootstraps"),
    (Server::Management, "packageinstalls"),
    (Server::Management, "apps"),
    (Server::Management, "secrets"),
    (Server::Workload, "packageinstalls"),
    (Server::Workload, "apps"),
];

/// Whether a read is a request to an API server.
pub(crate) fn is_request(ask: &Read) -> bool {
    matches!(
        ask,
        Read::Object(..)
            | Read::Installs
            | Read::Apps
            | Read::PackageNames
            | Read::LabelledSecrets
            | Read::WorkloadObjects
            | Read::Labelled { .. }
            | Read::Machines(_)
            | Read::VirtualMachines(_)
    )
}

/// A running reconcile.
#[derive(Clone, Debug)]
struct Running {
    facts: Arc<Facts>,
    local: LocalState,
    began: Clock,
    answers: Vec<(Read, ReadResult)>,
    outcomes: Vec<(Write, Result<Object, Failure>)>,
}

/// A leader process.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
pub(crate) struct Leader {
    /// Objects in its caches.
    pub(crate) seen: Servers,
    connection: Option<Connection>,
    connections: u64,
    local: LocalState,
    /// UID of the Cluster of the last reconcile.
    of: String,
    running: Option<Running>,
    /// In a search, the reads before which other components may act. Other reads happen together with the next such read.
    search: Option<fn(&Read) -> bool>,
    /// Number of reconciles begun.
    begun: u64,
    /// Hashes of the results that the current reconcile depends on.
    read_by: BTreeSet<(String, u64)>,
    /// Time at which the reconcile began.
    pub(crate) began: u64,
    /// Objects in its caches at that time.
    pub(crate) saw: Servers,
    /// Whether the caches were up to date at that time.
    pub(crate) saw_all: bool,
    /// Whether the cache of overrides was filled.
    lists_overrides: bool,
    /// Whether the metadata watch of values sources is refused.
    pub(crate) lacks_values_watch: bool,
    /// Writes of the last step that took effect.
    pub(crate) made: Vec<Write>,
    /// Whether the last step was told that the workload has no list of PackageInstalls.
    pub(crate) found_no_list: bool,
    /// Result of the last reconcile.
    pub(crate) last: Option<Result<Done, Failure>>,
    pub(crate) defect: Option<Defect>,
    /// Specs of PackageInstalls that were not written, because a planted defect takes their packages for deployed.
    taken_for_deployed: BTreeMap<Place, Value>,
    /// Target, and the watched objects when it was first observed, for a planted defect.
    admitted: Option<(Value, Servers)>,
}

/// Workload API server that an earlier kubeconfig leads to. It still responds, also over connections that are open.
#[derive(Clone, Debug)]
pub(crate) struct Earlier {
    /// Digest of the kubeconfig.
    pub(crate) digest: String,
    pub(crate) servers: Servers,
}

/// Environment of a leader: both servers, the time, and late writes of frozen processes.
pub(crate) struct Surroundings<'a> {
    pub(crate) servers: &'a mut Servers,
    pub(crate) earlier: &'a mut Option<Earlier>,
    pub(crate) late: &'a mut Vec<Late>,
    pub(crate) now: u64,
    pub(crate) epoch: Instant,
}

/// Of so many reconciles of a leader, one is compared with others that know other reports about its gate and other causes of its hold.
const COMPARED: u64 = 64;

/// Kind of the object that has the record of an upgrade.
const BOOTSTRAP: &str = "ClusterBootstrap";

/// What a reconcile requests.
#[derive(Debug, PartialEq)]
enum Requested {
    Reads(Vec<Read>),
    /// Kind of each written object, with the record of a status, or with the object. Without a write, the stored record.
    Decided(Vec<(String, Value)>),
    /// The write of a status with the stored record.
    OnlyReports,
}

/// Checks that a reconcile requests the same with any report about the gate of its Cluster and any cause of its hold, but for the conditions
/// and the cause in a status. `cause` is an index.
fn decides_nothing_from_reports(
    facts: &Facts,
    (local, began): (&LocalState, Clock),
    answers: &[(Read, ReadResult)],
    cause: usize,
) {
    let stored = serde_json::to_value(record_of(facts)).expect("a record");
    let requested = |facts: &Facts, local: &LocalState| {
        let mut known = Context::new(facts, local, began);
        for (ask, answer) in answers {
            known.record_answer(ask.clone(), answer.clone());
        }
        match reconcile(&known, &mut Effects::of(local)) {
            Err(Interrupt::Need(asks)) => Requested::Reads(asks),
            Err(Interrupt::Write(writes)) => {
                let decided: Vec<(String, Value)> = writes.iter().map(decided).collect();
                match decided.as_slice() {
                    [only] if is_stored(only, &stored) && !stored.is_null() => Requested::OnlyReports,
                    _ => Requested::Decided(decided),
                }
            }
            Err(Interrupt::Failed(_) | Interrupt::Held(_)) | Ok(_) => {
                Requested::Decided(vec![(BOOTSTRAP.to_owned(), stored.clone())])
            }
        }
    };
    let reported = |gate_in_force: Option<GateInForce>, cause: Option<HeldCause>| Facts {
        gate_in_force,
        bootstrap: facts
            .bootstrap
            .as_deref()
            .map(|bootstrap| Arc::new(with_cause(bootstrap, cause))),
        ..facts.clone()
    };
    let unreported = Facts {
        gate_in_force: None,
        ..facts.clone()
    };
    let cause = HeldCause {
        name: Cause::ALL[cause % Cause::ALL.len()].as_str().to_owned(),
        object: "Pod kube-system/agent-0".to_owned(),
        evidence: "anything".to_owned(),
    };
    let not = NotInForce::new(NotInForceReason::NamespaceNotSelected, "unselected");
    let first = requested(&unreported, local);
    let others = [
        requested(&reported(Some(GateInForce::Yes), Some(cause)), local),
        requested(
            &reported(Some(GateInForce::No(not)), None),
            &with_probe(facts, local),
        ),
    ];
    for other in others {
        let is_same = match (&first, &other) {
            // The entries of a swap follow a status that does not differ.
            (Requested::OnlyReports, Requested::Decided(decided))
            | (Requested::Decided(decided), Requested::OnlyReports) => decided
                .iter()
                .all(|write| write.0 == "Cluster" || is_stored(write, &stored)),
            (first, other) => first == other,
        };
        assert!(is_same, "decided from a report: {first:?} and {other:?}");
    }
}

/// Whether a write is that of a status with the stored record.
fn is_stored((kind, content): &(String, Value), stored: &Value) -> bool {
    kind == BOOTSTRAP && content == stored
}

/// Returns the kind of a written object, with what a write decides: the record of a status, or the body.
fn decided(write: &Write) -> (String, Value) {
    let kind = write.key.resource.kind.to_string();
    let mut body = write.body.clone();
    if kind == BOOTSTRAP && write.verb == Verb::ReplaceStatus {
        body = body["status"]["upgrade"].take();
    } else if kind == BOOTSTRAP
        && let Some(object) = body.as_object_mut()
    {
        // The API server ignores it.
        object.remove("status");
    }
    (kind, body)
}

/// Returns the stored record of a Cluster.
fn record_of(facts: &Facts) -> Option<&UpgradeRecord> {
    facts.bootstrap.as_deref()?.status.as_ref()?.upgrade.as_ref()
}

/// Returns a ClusterBootstrap with this cause of its held gate, if a gate is held.
fn with_cause(bootstrap: &ClusterBootstrap, cause: Option<HeldCause>) -> ClusterBootstrap {
    let mut bootstrap = bootstrap.clone();
    let status = bootstrap.status.as_mut();
    if let Some(held) = status.and_then(|status| status.held.as_mut()) {
        held.cause = cause;
    }
    bootstrap
}

/// Returns a local state with the result of a probe, if the Cluster waits by the stored record: an admission webhook denies the package.
fn with_probe(facts: &Facts, local: &LocalState) -> LocalState {
    let Some(wait) = record_of(facts).and_then(|record| explain(record, None)) else {
        return local.clone();
    };
    let mut probing = Probing::new(Probe {
        subject: wait.subject(),
        package: Some(ProbedPackage {
            server: Server::Workload,
            namespace: SYSTEM.to_owned(),
            name: "denied".to_owned(),
        }),
        is_unreachable: false,
        namespace: TEAM.to_owned(),
        cluster: "one".to_owned(),
    });
    let install = json!({
        "metadata": {"generation": 1},
        "status": {
            "observedGeneration": 1, "conditions": [{"type": "ReconcileFailed", "status": "True"}],
            "usefulErrorMessage": "admission webhook \"policy.example.com\" denied the request: no",
        },
    });
    probing.answered(Ok(install.to_string().as_str()));
    let (mut states, uid) = (LocalStates::default(), &facts.owner.uid);
    states.keep(uid, local.clone());
    states.probed(uid, probing.end());
    states.get(uid)
}

/// Returns a requested write as a leader with this defect sends it.
fn sent(defect: Option<Defect>, servers: &Servers, requested: Write) -> Write {
    match defect {
        Some(defect) => defect.made(servers, requested),
        None => requested,
    }
}

/// Returns the time of a reconcile that begins now.
fn clock(around: &Surroundings<'_>) -> Clock {
    Clock {
        now: time_at(around.now),
        instant: around.epoch + Duration::from_secs(around.now),
    }
}

/// Returns the facts of a Package. They are cached: few exist, and each is expensive.
pub(crate) fn facts_of(package: &Value) -> PackageFacts {
    thread_local! {
        static KNOWN: RefCell<HashMap<Value, PackageFacts>> = RefCell::default();
    }
    let annotations = &package["metadata"]["annotations"];
    let of = |spec: &Value| {
        let package = json!({
            "apiVersion": package["apiVersion"], "kind": "Package", "metadata": {"annotations": annotations}, "spec": spec,
        });
        PackageFacts::of(&serde_json::from_value(package).expect("a Package"))
    };
    if !annotations.is_null() {
        return of(&package["spec"]);
    }
    KNOWN.with_borrow_mut(|known| {
        let spec = &package["spec"];
        if !known.contains_key(spec) {
            known.insert(spec.clone(), of(spec));
        }
        known[spec].clone()
    })
}

/// Returns a Cluster as the cache stores it, without the variables that Sluice does not read.
fn cached(cluster: &Cluster) -> Arc<Cluster> {
    let json = serde_json::to_value(cluster).expect("JSON of a Cluster");
    Arc::new(serde_json::from_value(json).expect("a Cluster"))
}

impl Hash for Leader {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.seen.hash(state);
        self.connection.hash(state);
        let Some(running) = &self.running else { return };
        self.read_by.hash(state);
        let outcomes: BTreeSet<_> = running
            .outcomes
            .iter()
            .map(|(write, outcome)| {
                let outcome = outcome
                    .as_ref()
                    .map(|object| digest(&object.0))
                    .map_err(|failure| failure.code);
                (format!("{:?} {:?}", write.key, write.verb), outcome)
            })
            .collect();
        outcomes.hash(state);
    }
}

impl Leader {
    /// Returns a leader of a search, in which other components may act before these reads.
    pub(crate) fn of_search(stops: fn(&Read) -> bool) -> Self {
        Self {
            search: Some(stops),
            ..Self::default()
        }
    }

    /// Returns a reader of plans, which has no connection to the workload.
    pub(crate) fn of_plans(defect: Option<Defect>) -> Self {
        Self {
            defect,
            ..Self::default()
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The process crashes. Another one starts with empty local state.
    pub(crate) fn crash(&mut self) {
        *self = Self {
            connections: self.connections,
            begun: self.begun,
            search: self.search,
            defect: self.defect,
            ..Self::default()
        };
    }

    /// Returns the digest of the kubeconfig of the connection.
    pub(crate) fn connected_by(&self) -> Option<&str> {
        Some(self.connection.as_ref()?.digest.as_str())
    }

    /// Exchanges the servers if the connection leads to the earlier workload API server. Returns whether it does.
    fn exchange(&self, around: &mut Surroundings<'_>, server: Server) -> bool {
        let is_of = |earlier: &&mut Earlier| self.connected_by() == Some(&earlier.digest);
        let earlier = around.earlier.as_mut().filter(|_| server == Server::Workload);
        let Some(earlier) = earlier.filter(is_of) else {
            return false;
        };
        std::mem::swap(around.servers, &mut earlier.servers);
        true
    }

    /// Puts the servers back.
    fn put_back(around: &mut Surroundings<'_>, is_exchanged: bool) {
        if let Some(earlier) = around.earlier.as_mut().filter(|_| is_exchanged) {
            std::mem::swap(around.servers, &mut earlier.servers);
        }
    }

    /// Brings all caches up to date.
    pub(crate) fn watch(&mut self, servers: &Servers, now: u64) {
        self.watch_but(servers, "", now);
    }

    /// Brings all caches up to date but those of one kind, on both servers.
    pub(crate) fn watch_but(&mut self, servers: &Servers, kind: &str, now: u64) {
        if !are_brought(servers) {
            return;
        }
        let before = self.defect.map(|_| self.seen.clone());
        self.seen.take_over_but(Server::Management, kind, servers);
        self.lists_overrides |= kind != OVERRIDES;
        let mut kinds = WATCHED.to_vec();
        kinds.retain(|watched| *watched != kind);
        if self.watch_workload(servers, &kinds, now) {
            self.seen.take_over_but(Server::Workload, kind, servers);
        }
        if let Some((defect, before)) = self.defect.zip(before) {
            defect.watched(&before, &mut self.seen, &mut self.admitted);
        }
    }

    /// Brings the store of some kinds of a server up to date.
    pub(crate) fn watch_store(&mut self, servers: &Servers, server: Server, kinds: &[&str], now: u64) {
        if server == Server::Management || self.watch_workload(servers, kinds, now) {
            self.seen.take_over_kinds(server, kinds, servers);
            self.lists_overrides |= kinds.contains(&OVERRIDES);
        }
    }

    /// The watches of some kinds of the workload read it. Returns whether it responded.
    fn watch_workload(&mut self, servers: &Servers, kinds: &[&str], now: u64) -> bool {
        let is_hidden = self.hides_silence(servers);
        let connection = self.connection.as_mut().filter(|_| !is_hidden);
        connection.is_some_and(|connection| connection.watch(servers, kinds, now))
    }

    /// Whether a planted defect hides that the workload is silent.
    fn hides_silence(&self, servers: &Servers) -> bool {
        servers.silent && self.defect == Some(Defect::SilenceUnseen)
    }

    /// Drops the local state.
    pub(crate) fn forget(&mut self) {
        self.local = LocalState::default();
    }

    /// Restarts all watches with a list after a rollback of the API server, and drops the local state.
    pub(crate) fn restart_watches(&mut self, servers: &Servers, now: u64) {
        self.forget();
        self.watch(servers, now);
    }

    /// Delivers the watch event of one object; of the workload, all events of its kind.
    pub(crate) fn watch_one(&mut self, servers: &Servers, place: Place, now: u64) {
        if place.0 {
            self.watch_store(servers, Server::Workload, &[place.1.as_str()], now);
        } else {
            let shown = servers.get(&place).cloned().unwrap_or_default();
            self.seen.set(place, shown);
        }
    }

    /// Compares some reconciles with others, before their first write. A search counts states instead of reconciles.
    fn compare(
        &self,
        facts: &Facts,
        at: (&LocalState, Clock),
        answers: &[(Read, ReadResult)],
        outcomes: &[(Write, Result<Object, Failure>)],
    ) {
        if self.search.is_none() && self.begun.is_multiple_of(COMPARED) && outcomes.is_empty() {
            let compared = usize::try_from(self.begun / COMPARED).expect("a number of reconciles");
            decides_nothing_from_reports(facts, at, answers, compared);
        }
    }

    /// Takes one step. Returns the written status, if any.
    pub(crate) fn step(&mut self, around: &mut Surroundings<'_>, fault: Fault) -> Option<Write> {
        self.made.clear();
        self.found_no_list = false;
        let Some(running) = self.running.take() else {
            self.begin(around);
            if fault == Fault::ToTheEnd && self.running.is_some() {
                return self.step(around, fault);
            }
            return None;
        };
        let Running {
            facts,
            local,
            began,
            mut answers,
            mut outcomes,
        } = running;
        let mut known = Context::new(&facts, &local, began);
        for (ask, answer) in &answers {
            known.record_answer(ask.clone(), answer.clone());
        }
        for (write, outcome) in &outcomes {
            known.record_outcome(write.clone(), outcome.clone());
        }
        let mut wrote = None;
        loop {
            self.compare(&facts, (&local, began), &answers, &outcomes);
            let mut effects = Effects::of(&local);
            let (asks, writes) = match reconcile(&known, &mut effects) {
                Err(Interrupt::Need(asks)) => (asks, Vec::new()),
                Err(Interrupt::Write(writes)) => {
                    self.local = effects.local;
                    (Vec::new(), writes)
                }
                Err(Interrupt::Failed(failure)) => {
                    self.end(effects, Err(failure));
                    return wrote;
                }
                Err(Interrupt::Held(hold)) => panic!("a reconcile ends with a hold: {hold}"),
                Ok(done) => {
                    self.end(effects, Ok(done));
                    return wrote;
                }
            };
            let stops = match self.search {
                None => true,
                Some(stops) => !writes.is_empty() || asks.iter().any(stops),
            };
            for ask in asks {
                if known.has(&ask) {
                    continue;
                }
                let answer = self.answered(around, &ask, fault);
                if self.search.is_some() {
                    let said = self.content(around, &ask, &answer);
                    self.read_by.insert((format!("{ask:?}"), said));
                }
                known.record_answer(ask.clone(), answer.clone());
                answers.push((ask, answer));
                if fault.is_alone() {
                    break;
                }
            }
            for requested in writes {
                if known.has_outcome(&requested) {
                    continue;
                }
                let sent = sent(self.defect, around.servers, requested.clone());
                if fault == Fault::Frozen {
                    around.late.push(around.servers.delayed(sent));
                    self.crash();
                    return None;
                }
                let outcome = self.make(around, &sent, fault);
                if outcome.1 && sent.verb == Verb::ReplaceStatus {
                    wrote = Some(sent.clone());
                }
                if outcome.1 {
                    self.made.push(sent);
                }
                let ends = outcome.0.is_err() || fault.is_alone() || fault == Fault::OneWrite;
                known.record_outcome(requested.clone(), outcome.0.clone());
                outcomes.push((requested, outcome.0));
                if ends {
                    break;
                }
            }
            if stops && fault != Fault::ToTheEnd {
                break;
            }
        }
        drop(known);
        self.running = Some(Running {
            facts,
            local,
            began,
            answers,
            outcomes,
        });
        wrote
    }

    /// Executes a write. Returns its result for the reconcile, and whether it took effect. A planted defect may take the package of a
    /// PackageInstall for deployed without the write.
    fn make(
        &mut self,
        around: &mut Surroundings<'_>,
        write: &Write,
        fault: Fault,
    ) -> (Result<Object, Failure>, bool) {
        let is_exchanged = self.exchange(around, write.key.server);
        let outcome = self.make_there(around.servers, write, fault);
        Self::put_back(around, is_exchanged);
        outcome
    }

    fn make_there(
        &mut self,
        servers: &mut Servers,
        write: &Write,
        fault: Fault,
    ) -> (Result<Object, Failure>, bool) {
        let Some(defect) = self.defect else {
            return make(servers, write, fault);
        };
        let place = place_of(&write.key);
        let Some(install) = defect.taken_for_deployed(servers, write) else {
            self.taken_for_deployed.remove(&place);
            return make(servers, write, fault);
        };
        self.taken_for_deployed.insert(place, install["spec"].clone());
        (Ok(Object(install)), false)
    }

    fn end(&mut self, effects: Effects, outcome: Result<Done, Failure>) {
        self.local = effects.local;
        self.last = Some(outcome);
        if effects.disconnect {
            self.disconnect();
        }
    }

    fn disconnect(&mut self) {
        self.connection = None;
        self.seen.take_over(Server::Workload, &Servers::default());
    }

    fn begin(&mut self, around: &Surroundings<'_>) {
        let Some(facts) = self.facts(around) else {
            return;
        };
        // The local state of an earlier Cluster of the name does not apply to this one.
        if self.of != facts.owner.uid {
            self.of.clone_from(&facts.owner.uid);
            self.local = LocalState::default();
            self.disconnect();
        }
        self.began = around.now;
        self.begun += 1;
        self.saw = self.seen.clone();
        if self.search.is_some() {
            self.read_by = BTreeSet::from([(String::new(), digest(&self.seen))]);
        } else {
            self.saw_all = self.seen.same_objects(around.servers);
        }
        self.running = Some(Running {
            facts: Arc::new(facts),
            local: self.local.clone(),
            began: clock(around),
            answers: Vec::new(),
            outcomes: Vec::new(),
        });
    }

    fn object<K: DeserializeOwned>(&self, place: &Place) -> Option<K> {
        let object = self.observed(place, self.seen.get(place)?.clone());
        serde_json::from_value(object).ok()
    }

    /// Returns an object as a planted defect shows it.
    fn observed(&self, place: &Place, object: Value) -> Value {
        let Some(defect) = self.defect else {
            return object;
        };
        let mut install = place.clone();
        "packageinstalls".clone_into(&mut install.1);
        let object = match self.taken_for_deployed.get(&install) {
            Some(spec) => deployed_with(spec, &place.1, object),
            None => object,
        };
        if place.1 == OVERRIDES {
            return defect.overridden(&self.seen, object);
        }
        defect.seen(place, object)
    }

    /// Returns the watched objects as a planted defect shows them.
    fn shown(&self) -> Servers {
        let mut seen = self.seen.clone();
        if self.defect.is_some() {
            for (place, object) in self.seen.all() {
                seen.set(place.clone(), self.observed(place, object.clone()));
            }
        }
        seen
    }

    /// Returns the plan of the upgrade, from the watched objects alone.
    pub(crate) fn plan(&self, around: &Surroundings<'_>) -> UpgradePlan {
        let facts = self.facts(around).expect("a managed Cluster");
        plan_of(&facts, &Shown(&self.shown()), clock(around)).expect("a plan")
    }

    /// Returns the verdict about an update of the Cluster, from the watched objects alone.
    pub(crate) fn verdict(&self, around: &Surroundings<'_>, [stored, old, new]: [&Value; 3]) -> Verdict {
        let cluster = |object: &Value| serde_json::from_value(object.clone()).expect("a Cluster");
        let (stored, old, new): (Cluster, Cluster, Cluster) = (cluster(stored), cluster(old), cluster(new));
        let update = ClusterUpdate {
            stored: &stored,
            old: &old,
            new: &new,
            denies: true,
        };
        let seen = self.shown();
        let facts = |cluster: &Arc<Cluster>| self.facts_as(around, &seen, cluster);
        judge(&update, facts, &Shown(&seen), clock(around)).expect("a listed control plane")
    }

    fn facts(&self, around: &Surroundings<'_>) -> Option<Facts> {
        let seen = self.shown();
        let cluster: Arc<Cluster> = Shown(&seen).get(Some(TEAM), "one")?;
        self.facts_as(around, &seen, &cluster)
    }

    /// Returns the facts of a Cluster, which may differ from the watched one.
    fn facts_as(&self, around: &Surroundings<'_>, seen: &Servers, cluster: &Arc<Cluster>) -> Option<Facts> {
        let stores = Shown(seen);
        let topology = cluster.spec.topology.as_ref();
        let has_variables = topology.is_some_and(|topology| !topology.variables.is_empty());
        let cluster = if has_variables {
            cached(cluster)
        } else {
            Arc::clone(cluster)
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let plane = seen.get(&control_plane())?;
        let settings = Settings {
            system_namespace: SYSTEM.to_owned(),
            extension_configs: Vec::new(),
            sync_period: SyncPeriod {
                length: SYNC_PERIOD,
                since: around.epoch,
            },
            deletion_limit: SYNC_PERIOD,
        };
        let control_plane = CachedControlPlane {
            key: control_plane_key(),
            uid: text(&plane["metadata"]["uid"]),
            generation: plane["metadata"]["generation"].as_i64(),
            resource_version: text(&plane["metadata"]["resourceVersion"]),
            versions: ControlPlaneFacts::in_object(plane),
            rollout: Rollout::of(&serde_json::from_value::<ControlPlane>(plane.clone()).ok()?),
        };
        let found = Facts::of(&cluster, &stores, &settings, |_| Ok(Some(control_plane)))?;
        let own = if self.defect == Some(Defect::OwnServerUnseen) {
            "unseen"
        } else {
            MANAGEMENT_UID
        };
        Some(Facts {
            server_now: Some(time_at(around.now)),
            management_uid: (!around.servers.is_management_unread).then(|| own.into()),
            overrides: found.overrides.filter(|_| self.lists_overrides),
            ..found
        })
    }

    /// Whether the metadata watch of values sources shows this version of a Secret.
    fn shows(&self, secret: &SecretVersion) -> bool {
        let place = place(Server::Management, "secrets", &secret.namespace, &secret.name);
        let Some(shown) = self.seen.get(&place).filter(|_| !self.lacks_values_watch) else {
            return false;
        };
        let metadata = &shown["metadata"];
        let (is_same, is_labelled) = (
            metadata["uid"] == secret.uid,
            metadata["labels"][label::CLUSTER_NAME].is_string(),
        );
        let is_last = is_same && metadata["resourceVersion"] == secret.resource_version;
        is_labelled && (is_last || !is_same && self.defect == Some(Defect::RecreationUnseen))
    }

    /// Result of a request of a reconcile, or of a lookup in a cache.
    fn answered(&mut self, around: &mut Surroundings<'_>, ask: &Read, fault: Fault) -> ReadResult {
        let opens = matches!(ask, Read::Connection(_));
        let is_exchanged = !opens && self.exchange(around, ask.server());
        let answer = self.answered_there(around, ask, fault);
        Self::put_back(around, is_exchanged);
        answer
    }

    fn answered_there(&mut self, around: &mut Surroundings<'_>, ask: &Read, fault: Fault) -> ReadResult {
        if is_request(ask) {
            let code = match fault {
                Fault::Refused(code) => Some(Some(code)),
                Fault::Unanswered => Some(None),
                _ => {
                    let is_silent = around.servers.silent && !self.hides_silence(around.servers);
                    (is_silent && ask.server() == Server::Workload).then_some(None)
                }
            };
            if let Some(code) = code {
                self.found_no_list |= *ask == Read::Installs && code == Some(404);
                return ReadResult::Failed(refused(ask.server(), code));
            }
        }
        self.answer(around, ask)
    }

    fn answer(&mut self, around: &mut Surroundings<'_>, ask: &Read) -> ReadResult {
        match self.undecodable(around.servers, ask) {
            Some(object) => ReadResult::Failed(Failure::undecodable(ask.server(), object)),
            None => self.decoded(around, ask),
        }
    }

    /// Returns the first undecodable object that a read covers.
    fn undecodable(&self, servers: &Servers, ask: &Read) -> Option<Arc<Undecodable>> {
        let stored = |plural: &str, name: &str| place(Server::Management, plural, SYSTEM, name);
        let listed = |plural| {
            let mut there = servers.of(Server::Workload, plural);
            there.find_map(|(_, object)| undecodable(object))
        };
        match ask {
            Read::Object(key, _) => undecodable(servers.get(&place_of(key))?),
            Read::Template(name) => undecodable(self.seen.get(&stored("clusterbootstraptemplates", name))?),
            Read::Package(name) => undecodable(self.seen.get(&stored("packages", name))?),
            Read::Watched(server, name) => {
                let namespace = match server {
                    Server::Management => TEAM,
                    Server::Workload => SYSTEM,
                };
                let mut kinds = ["packageinstalls", "apps"].into_iter();
                kinds.find_map(|plural| undecodable(self.seen.get(&place(*server, plural, namespace, name))?))
            }
            Read::Installs => listed("packageinstalls"),
            Read::Apps => listed("apps"),
            _ => None,
        }
    }

    fn decoded(&mut self, around: &mut Surroundings<'_>, ask: &Read) -> ReadResult {
        let servers = if ask.server() == Server::Workload && self.hides_silence(around.servers) {
            &self.seen
        } else {
            &*around.servers
        };
        let stored = |plural: &str, name: &str| place(Server::Management, plural, SYSTEM, name);
        let listed = |plural| {
            let there = servers.of(Server::Workload, plural);
            ReadResult::Listed(there.map(|(_, object)| Object(object.clone())).collect())
        };
        match ask {
            Read::Cluster(..) | Read::Source(_) => {
                unreachable!("only reconciles of configurations read these")
            }
            Read::Kind { .. } => unreachable!("only reconciles of UpgradeGates read these"),
            Read::Labelled { .. } => ReadResult::Listed(self.labelled(servers, ask)),
            Read::Object(key, phase) => {
                let is_unread = self
                    .defect
                    .is_some_and(|defect| defect.is_unread(&key.resource.plural));
                let servers = if *phase == ReadPhase::Confirm && is_unread {
                    &self.seen
                } else {
                    servers
                };
                let place = place_of(key);
                let found = self
                    .kubeconfig(&place, *phase)
                    .or_else(|| servers.get(&place).cloned());
                match found.map(|found| self.observed(&place, found)) {
                    None => ReadResult::Absent,
                    // Most of its spec is not read.
                    Some(found) if place.1 == "clusters" => ReadResult::of_object(key, &found.to_string()),
                    Some(found) => ReadResult::Found(Object(found)),
                }
            }
            Read::Template(name) => self
                .object(&stored("clusterbootstraptemplates", name))
                .map_or(ReadResult::Absent, |found| ReadResult::Template(Arc::new(found))),
            Read::Package(name) => self
                .object(&stored("packages", name))
                .map_or(ReadResult::Absent, |found| ReadResult::Package(Arc::new(found))),
            Read::Watched(server, name) => {
                let namespace = match server {
                    Server::Management => TEAM,
                    Server::Workload => SYSTEM,
                };
                let at = |plural| place(*server, plural, namespace, name);
                let connection = self.connection.as_ref().filter(|_| *server == Server::Workload);
                ReadResult::Watched(Box::new(Watched {
                    install: self.object(&at("packageinstalls")).map(Arc::new),
                    app: self.object(&at("apps")).map(Arc::new),
                    first_seen: connection.and_then(|connection| connection.first_seen(name)),
                    filled: connection.is_none_or(Connection::is_filled),
                }))
            }
            Read::Shown(secret) => ReadResult::Shown(self.shows(secret)),
            Read::Served { .. } => ReadResult::Absent,
            Read::Connection(kubeconfig) => ReadResult::Connected(self.connect(around, &kubeconfig.digest)),
            Read::OpenConnection(number) => {
                let open = self.connection.as_ref().map(|open| open.number);
                let open = open.filter(|open| open == number);
                open.map_or(ReadResult::Absent, ReadResult::Connected)
            }
            Read::Contact(_) => match &mut self.connection {
                Some(connection) => ReadResult::Contact(connection.contact(servers, around.now)),
                None => ReadResult::Failed(refused(Server::Workload, None)),
            },
            Read::DriftCheckPermit(_) => ReadResult::Turn(true),
            Read::DriftCheckConnection(_) => ReadResult::Connected(0),
            Read::Installs if self.defect == Some(Defect::InstallsUnlisted) => ReadResult::Listed(Vec::new()),
            Read::Installs => listed("packageinstalls"),
            Read::Apps => listed("apps"),
            Read::PackageNames => listed("packages"),
            Read::LabelledSecrets => listed("secrets"),
            Read::WorkloadObjects => ReadResult::WorkloadObjects(Box::default()),
            Read::Machines(_) => ReadResult::Listed(Vec::new()),
            Read::VirtualMachines(_) => virtual_machines(servers),
        }
    }

    /// Returns the kubeconfig that a leader with that defect takes for the current one: that of its connection.
    fn kubeconfig(&self, place: &Place, phase: ReadPhase) -> Option<Value> {
        let is_unread = phase == ReadPhase::Confirm && self.defect == Some(Defect::KubeconfigUnread);
        let digest = self
            .connected_by()
            .filter(|_| is_unread && *place == kubeconfig())?;
        let mut known = TOKENS.into_iter().map(kubeconfig_with);
        known.find(|secret| kubeconfig_digest(secret) == digest)
    }

    /// Returns the overrides that a leader lists.
    fn labelled(&self, servers: &Servers, ask: &Read) -> Vec<Object> {
        let Read::Labelled {
            server,
            resource,
            namespace,
            phase,
            ..
        } = ask
        else {
            unreachable!("a list of labelled objects");
        };
        let is_unread = self
            .defect
            .is_some_and(|defect| defect.is_unlisted(&resource.plural));
        let servers = if *phase == ReadPhase::Confirm && is_unread {
            &self.seen
        } else {
            servers
        };
        let there = servers.of(*server, &resource.plural);
        let there = there.filter(|(place, _)| place.2 == *namespace);
        let shown = there.map(|(place, object)| Object(self.observed(place, object.clone())));
        shown.collect()
    }

    /// Digest of a read result.
    fn content(&self, around: &Surroundings<'_>, ask: &Read, answer: &ReadResult) -> u64 {
        match (ask, answer) {
            (_, ReadResult::Found(Object(found))) => digest(found),
            (_, ReadResult::Listed(found)) => {
                digest(&found.iter().map(|found| digest(&found.0)).collect::<Vec<_>>())
            }
            (Read::WorkloadObjects, _) => 0,
            // From the cache: for the management cluster, the objects at the start of the reconcile.
            (Read::Watched(..) | Read::Package(_) | Read::Template(_), _) => digest(&self.seen),
            (_, answer) => digest(&(format!("{answer:?}"), around.now)),
        }
    }

    /// Returns the number of the connection. Another kubeconfig opens another one, whose stores usually fill at once.
    fn connect(&mut self, around: &Surroundings<'_>, digest: &str) -> u64 {
        let open = self.connection.as_ref().filter(|open| open.digest == digest);
        if let Some(open) = open {
            return open.number;
        }
        self.connections += 1;
        let mut connection = Connection::open(self.connections, digest);
        self.seen.take_over(Server::Workload, &Servers::default());
        if !around.now.is_multiple_of(4) && connection.watch(around.servers, &WATCHED, around.now) {
            self.seen.take_over(Server::Workload, around.servers);
        }
        self.connection = Some(connection);
        self.connections
    }
}
