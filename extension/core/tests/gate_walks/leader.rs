//! Executor of the reconcile in a walk. Caches lag, each batch of reads and each write is its own step, and the process may crash between
//! any two steps.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sluice_core::{
    cache::stores::Stored as _,
    clock::Clock,
    gates::{
        facts::{GateFacts, GateSettings},
        reconcile::{Context, GateEffects, GateLocalState, reconcile},
    },
    protocol::{
        Done, Failure, Interrupt, Object, Read, ReadPhase, ReadResult, Resource, Server, Verb, Write,
    },
    reconcile::cluster::CachedControlPlane,
    schedule::SyncPeriod,
    upgrade::hop::{ControlPlaneFacts, Rollout},
};
use sluice_crds::foreign::Cluster;

use crate::{
    defect::Defect,
    objects::{TEAM, control_plane, control_plane_key},
    servers::{Servers, make, of, place_of, refused},
    shown::Shown,
};

/// Kinds that a process watches, each with its own cache.
pub(crate) const CACHES: [&str; 6] = [
    "clusters",
    "clusterclasses",
    "clusterupgrades",
    "goods",
    "machinedeployments",
    "upgradegates",
];

/// Interval of drift checks.
pub(crate) const SYNC_PERIOD: Duration = Duration::from_mins(10);

/// Progress and outcome of the requests of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server answers one request, and all concurrent ones.
    None,
    /// The server answers all requests of the reconcile.
    ToTheEnd,
    /// The same, up to the first confirming read.
    UntilConfirm,
    /// The server answers one request, and concurrent ones later.
    Alone,
    /// The server refuses one request with this code.
    Refused(u16),
    /// One request gets no response. A write takes effect.
    Unanswered,
}

impl Fault {
    fn is_alone(self) -> bool {
        matches!(self, Self::Alone | Self::Refused(_) | Self::Unanswered)
    }

    fn continues(self) -> bool {
        matches!(self, Self::ToTheEnd | Self::UntilConfirm)
    }
}

/// Environment of a leader.
pub(crate) struct Surroundings<'a> {
    pub(crate) servers: &'a mut Servers,
    /// Whether the workload API server does not respond.
    pub(crate) is_silent: bool,
    pub(crate) now: u64,
    pub(crate) epoch: Instant,
}

/// A running reconcile.
struct Running {
    facts: Arc<GateFacts>,
    local: GateLocalState,
    began: Clock,
    answers: Vec<(Read, ReadResult)>,
    outcomes: Vec<(Write, Result<Object, Failure>)>,
}

/// A leader process.
#[derive(Default)]
pub(crate) struct Leader {
    /// Objects in its caches.
    seen: Servers,
    local: GateLocalState,
    /// UID of the Cluster of the last reconcile.
    of: String,
    running: Option<Running>,
    /// Time at which the reconcile began.
    pub(crate) began: u64,
    /// Objects in its caches at that time.
    pub(crate) saw: Servers,
    /// Time of its first confirming read, if there was one.
    pub(crate) confirmed_at: Option<u64>,
    pub(crate) defect: Option<Defect>,
}

fn confirms(ask: &Read) -> bool {
    match ask {
        Read::Object(_, phase) | Read::Labelled { phase, .. } => *phase == ReadPhase::Confirm,
        _ => false,
    }
}

fn cached_control_plane(object: &Value) -> CachedControlPlane {
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().map(str::to_owned);
    CachedControlPlane {
        key: control_plane_key(),
        uid: text("uid"),
        generation: metadata["generation"].as_i64(),
        resource_version: text("resourceVersion"),
        versions: ControlPlaneFacts::in_object(object),
        rollout: Rollout::default(),
    }
}

impl Leader {
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The process crashes. Another one lists all kinds, and starts with empty local state.
    pub(crate) fn crash(&mut self, servers: &Servers) {
        *self = Self {
            seen: servers.clone(),
            defect: self.defect,
            ..Self::default()
        };
    }

    /// Brings all caches up to date.
    pub(crate) fn watch(&mut self, servers: &Servers) {
        self.seen = servers.clone();
    }

    /// Brings the cache of a kind up to date.
    pub(crate) fn watch_kind(&mut self, servers: &Servers, kind: &str) {
        self.seen.take_over(servers, |place| place.1 == kind);
    }

    /// Takes one step. Returns whether a status was written.
    pub(crate) fn step(&mut self, around: &mut Surroundings<'_>, fault: Fault) -> bool {
        if self.running.is_none() {
            self.running = self.begin(around);
            if !fault.continues() {
                return false;
            }
        }
        let Some(running) = self.running.take() else {
            return false;
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
        let mut wrote = false;
        loop {
            let mut effects = GateEffects::of(&local);
            let (asks, writes) = match reconcile(&known, &mut effects) {
                Err(Interrupt::Need(asks)) => (asks, Vec::new()),
                Err(Interrupt::Write(writes)) => (Vec::new(), writes),
                Err(Interrupt::Held(hold)) => panic!("a reconcile ends with a hold: {hold}"),
                Ok(Done::Forget) => {
                    self.local = GateLocalState::default();
                    return wrote;
                }
                Ok(_) | Err(Interrupt::Failed(_)) => {
                    self.local = effects.local;
                    return wrote;
                }
            };
            if fault == Fault::UntilConfirm && asks.iter().any(confirms) {
                break;
            }
            let made = answers.len() + outcomes.len();
            for ask in asks {
                if known.has(&ask) {
                    continue;
                }
                let answer = self.answer(around, &ask, fault, &answers);
                if confirms(&ask) {
                    self.confirmed_at.get_or_insert(around.now);
                }
                known.record_answer(ask.clone(), answer.clone());
                answers.push((ask, answer));
                if fault.is_alone() {
                    break;
                }
            }
            for write in writes {
                if known.has_outcome(&write) {
                    continue;
                }
                let (outcome, is_made) = make_with(around.servers, &write, fault);
                wrote |= is_made && write.verb == Verb::ReplaceStatus;
                let ends = outcome.is_err() || fault.is_alone();
                known.record_outcome(write.clone(), outcome.clone());
                outcomes.push((write, outcome));
                if ends {
                    break;
                }
            }
            assert!(
                made < answers.len() + outcomes.len(),
                "held: a reconcile requests only what it knows"
            );
            if !fault.continues() {
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

    fn begin(&mut self, around: &Surroundings<'_>) -> Option<Running> {
        let shown = match self.defect {
            Some(defect) => defect.remembered(&self.seen, around.servers),
            None => self.seen.clone(),
        };
        let stores = Shown(&shown);
        let cluster: Arc<Cluster> = stores.get(Some(TEAM), "one")?;
        let settings = GateSettings {
            system_namespace: "system".to_owned(),
            extension_configs: Vec::new(),
            sync_period: SyncPeriod {
                length: SYNC_PERIOD,
                since: around.epoch,
            },
        };
        let facts = GateFacts::of(&cluster, &stores, &settings, |_| {
            Ok(shown.get(&control_plane()).map(cached_control_plane))
        })?;
        // The local state of an earlier Cluster of the name does not apply to this one.
        if self.of != facts.owner.uid {
            self.of.clone_from(&facts.owner.uid);
            self.local = GateLocalState::default();
        }
        self.began = around.now;
        self.saw = self.seen.clone();
        self.confirmed_at = None;
        Some(Running {
            facts: Arc::new(facts),
            local: self.local.clone(),
            began: Clock {
                now: Timestamp::UNIX_EPOCH + SignedDuration::from_secs(around.now.cast_signed()),
                instant: around.epoch + Duration::from_secs(around.now),
            },
            answers: Vec::new(),
            outcomes: Vec::new(),
        })
    }

    fn answer(
        &self,
        around: &Surroundings<'_>,
        ask: &Read,
        fault: Fault,
        answers: &[(Read, ReadResult)],
    ) -> ReadResult {
        if matches!(ask, Read::DriftCheckConnection(_)) {
            return ReadResult::Connected(0);
        }
        let server = ask.server();
        let is_silent = around.is_silent && server == Server::Workload;
        let code = match fault {
            Fault::Refused(code) => Some(Some(code)),
            Fault::Unanswered => Some(None),
            _ => is_silent.then_some(None),
        };
        if let Some(code) = code {
            return ReadResult::Failed(refused(server, code));
        }
        let planned = self.defect.and_then(|defect| defect.planned(ask, answers));
        planned.unwrap_or_else(|| self.response(around.servers, ask))
    }

    /// Returns the response of an API server.
    fn response(&self, servers: &Servers, ask: &Read) -> ReadResult {
        let shown = |plural: &str, object: &Value| {
            let object = object.clone();
            Object(match self.defect {
                Some(defect) => defect.seen(servers, plural, object),
                None => object,
            })
        };
        match ask {
            Read::Object(key, _) => {
                let place = place_of(key);
                let found = servers.get(&place);
                found.map_or(ReadResult::Absent, |found| {
                    ReadResult::Found(shown(&place.1, found))
                })
            }
            Read::Labelled {
                resource,
                namespace,
                labels,
                ..
            } => {
                let has_labels = |object: &Value| {
                    labels.split(',').all(|label| {
                        let (key, value) = label.split_once('=').expect("a label");
                        object["metadata"]["labels"][key] == value
                    })
                };
                let there = of(servers, &resource.plural)
                    .filter(|(place, object)| place.2 == *namespace && has_labels(object));
                ReadResult::Listed(there.map(|(place, object)| shown(&place.1, object)).collect())
            }
            Read::Kind {
                api_version, kind, ..
            } => {
                let (group, version) = api_version.split_once('/').expect("a group and version");
                let plural = match kind.as_str() {
                    "HelmChartProxy" => "helmchartproxies",
                    "HelmRelease" => "helmreleases",
                    "Kustomization" => "kustomizations",
                    "GitRepository" => "gitrepositories",
                    "DaemonSet" => "daemonsets",
                    "CustomResourceDefinition" => "customresourcedefinitions",
                    "Backend" => "backends",
                    kind => panic!("no gate of a walk checks a {kind}"),
                };
                let resource = Resource {
                    group: group.to_owned().into(),
                    version: version.to_owned().into(),
                    kind: kind.clone().into(),
                    plural: plural.into(),
                };
                if plural == "customresourcedefinitions" {
                    ReadResult::ServedClusterWide(resource)
                } else {
                    ReadResult::Served(resource)
                }
            }
            ask => panic!("no reconcile of gates needs {ask:?}"),
        }
    }
}

/// Executes a write. Returns its result for the reconcile, and whether it took effect.
fn make_with(servers: &mut Servers, write: &Write, fault: Fault) -> (Result<Object, Failure>, bool) {
    let server = write.key.server;
    if let Fault::Refused(code) = fault {
        return (Err(refused(server, Some(code))), false);
    }
    let outcome = make(servers, write);
    let is_made = outcome.is_ok();
    if fault == Fault::Unanswered {
        (Err(refused(server, None)), is_made)
    } else {
        (outcome, is_made)
    }
}
