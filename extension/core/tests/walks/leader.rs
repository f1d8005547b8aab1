//! The runner of `pass` in a walk: each read and each write is a step of its own, what it knows from memory lags, and it may end
//! between any two steps.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_core::{
    bootstrap::PackageFacts,
    build::Owner,
    hop::{ControlPlaneFacts, Plan, WorkerFacts},
    pass::{
        After, Answer, Ask, Clock, Contact, Done, Facts, Failure, Known, Memory, Object, Server, Settings,
        Stop, Watched, Write, pass,
    },
};
use sluice_crds::{
    foreign::{Cluster, Package},
    labels::label,
    run::ClusterBootstrap,
};

use crate::{
    objects::{SYSTEM, TEAM, bootstrap, cluster, control_plane, worker},
    servers::{Servers, place, place_of, refused},
};

/// One pass that is under way.
#[derive(Debug)]
struct Running {
    facts: Facts,
    memory: Memory,
    began: Clock,
    answers: Vec<(Ask, Answer)>,
    outcomes: Vec<(Write, Result<Object, Failure>)>,
}

/// A process that leads.
#[derive(Debug, Default)]
pub(crate) struct Leader {
    /// What its watches have shown.
    pub(crate) seen: Servers,
    memory: Memory,
    running: Option<Running>,
    /// When the pass began, in steps of the walk.
    pub(crate) began: u64,
    /// What the last pass came to.
    pub(crate) last: Option<Result<Done, Failure>>,
}

/// What a step has done.
#[derive(Debug)]
pub(crate) enum Did {
    /// It has read something, or the pass has ended.
    Nothing,
    /// It has made this write.
    Wrote(Box<Write>),
}

impl Leader {
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The process ends; another one begins that knows nothing.
    pub(crate) fn crash(&mut self) {
        self.running = None;
        self.memory = Memory::default();
    }

    /// One step. The next request is refused with `refuses`, if that is a code.
    pub(crate) fn step(
        &mut self,
        servers: &mut Servers,
        step: u64,
        epoch: std::time::Instant,
        refuses: Option<u16>,
    ) -> Did {
        let Some(running) = self.running.take() else {
            self.begin(step, epoch);
            return Did::Nothing;
        };
        let Running {
            facts,
            memory,
            began,
            mut answers,
            mut outcomes,
        } = running;
        let mut known = Known::new(&facts, &memory, began);
        for (ask, answer) in &answers {
            known.learn(ask.clone(), answer.clone());
        }
        for (write, outcome) in &outcomes {
            known.wrote(write.clone(), outcome.clone());
        }
        let mut after = After::of(&memory);
        let mut did = Did::Nothing;
        match pass(&known, &mut after) {
            Err(Stop::Need(asks)) => {
                let ask = asks
                    .into_iter()
                    .find(|ask| !known.has(ask))
                    .expect("it asks for more");
                let answer = match refuses.filter(|_| matches!(ask, Ask::Object(..))) {
                    Some(code) => Answer::Failed(refused(ask.server(), code)),
                    None => self.answer(servers, &ask),
                };
                answers.push((ask, answer));
            }
            Err(Stop::Write(writes)) => {
                self.memory = after.memory;
                // Mostly all of them are made before anything else happens.
                let made = if step.is_multiple_of(4) { 1 } else { writes.len() };
                for write in writes.into_iter().take(made) {
                    if known.has_made(&write) || outcomes.iter().any(|(other, _)| is_same(other, &write)) {
                        continue;
                    }
                    let outcome = match refuses {
                        Some(code) => Err(refused(write.key.server, code)),
                        None => servers.make(&write),
                    };
                    let ends = outcome.is_err();
                    if !ends {
                        did = Did::Wrote(Box::new(write.clone()));
                    }
                    outcomes.push((write, outcome));
                    if ends {
                        break;
                    }
                }
            }
            Err(Stop::Failed(failure)) => {
                self.end(after, Err(failure));
                return Did::Nothing;
            }
            Err(Stop::Held(hold)) => panic!("a pass ends with a hold: {hold}"),
            Ok(done) => {
                self.end(after, Ok(done));
                return Did::Nothing;
            }
        }
        self.running = Some(Running {
            facts,
            memory,
            began,
            answers,
            outcomes,
        });
        did
    }

    fn end(&mut self, after: After, outcome: Result<Done, Failure>) {
        self.memory = after.memory;
        self.last = Some(outcome);
    }

    fn begin(&mut self, step: u64, epoch: std::time::Instant) {
        let Some(facts) = self.facts() else { return };
        self.began = step;
        self.running = Some(Running {
            facts,
            memory: self.memory.clone(),
            began: Clock {
                now: Timestamp::UNIX_EPOCH + SignedDuration::from_secs(step.cast_signed()),
                instant: epoch + Duration::from_secs(step),
            },
            answers: Vec::new(),
            outcomes: Vec::new(),
        });
    }

    fn object<K: DeserializeOwned>(&self, place: &crate::servers::Place) -> Option<K> {
        serde_json::from_value(self.seen.get(place)?.clone()).ok()
    }

    fn facts(&self) -> Option<Facts> {
        let cluster: Cluster = self.object(&cluster())?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let plane = self.seen.get(&control_plane())?;
        let worker = self.seen.get(&worker())?;
        let all = |plural: &'static str| {
            let places = self.seen.all().iter();
            places.filter(move |(place, _)| !place.0 && place.1 == plural)
        };
        let releases = all("tanzukubernetesreleases")
            .filter_map(|(_, object)| serde_json::from_value(object.clone()).ok())
            .map(Arc::new);
        let catalogue = all("packages").filter_map(|(place, object)| {
            let package: Package = serde_json::from_value(object.clone()).ok()?;
            Some((place.3.clone(), PackageFacts::of(&package)))
        });
        let versions = |worker: &Value| vec![text(&worker["status"]["version"]).unwrap_or_default()];
        Some(Facts {
            settings: Settings {
                system_namespace: SYSTEM.to_owned(),
                sync_period: Duration::from_mins(10),
            },
            owner: Owner {
                name: "one".to_owned(),
                namespace: TEAM.to_owned(),
                uid: "uid".to_owned(),
            },
            label: cluster.metadata.labels.as_ref()?.get(label::TKR)?.clone(),
            topology: cluster.spec.topology.clone()?,
            bootstrap: self.object::<ClusterBootstrap>(&bootstrap()).map(Arc::new),
            control_plane: Some(ControlPlaneFacts {
                spec_version: text(&plane["spec"]["version"]),
                status_version: text(&plane["status"]["version"]),
            }),
            unknown: None,
            workers: vec![WorkerFacts {
                name: "one-md".to_owned(),
                spec_version: text(&worker["spec"]["version"]),
                versions: versions(worker),
                rolling: worker["spec"]["version"] != worker["status"]["version"],
            }],
            plan: Plan::Direct,
            releases: releases.collect(),
            catalogue: catalogue.collect(),
            cluster: Arc::new(cluster),
        })
    }

    fn answer(&self, servers: &mut Servers, ask: &Ask) -> Answer {
        let stored =
            |plural: &str, name: &str| self.seen.get(&place(Server::Management, plural, SYSTEM, name));
        match ask {
            Ask::Cluster(..) | Ask::Source(_) => unreachable!("passes over configurations ask for these"),
            Ask::Object(key, _) => {
                servers.requests += 1;
                let found = servers.get(&place_of(key)).cloned();
                found.map_or(Answer::Absent, |found| Answer::Found(Object(found)))
            }
            Ask::Template(name) => {
                stored("clusterbootstraptemplates", name).map_or(Answer::Absent, |found| {
                    Answer::Template(Arc::new(
                        serde_json::from_value(found.clone()).expect("a template"),
                    ))
                })
            }
            Ask::Package(name) => stored("packages", name).map_or(Answer::Absent, |found| {
                Answer::Package(Arc::new(
                    serde_json::from_value(found.clone()).expect("a Package"),
                ))
            }),
            Ask::Watched(server, name) => {
                let namespace = match server {
                    Server::Management => TEAM,
                    Server::Workload => SYSTEM,
                };
                let at = |plural| place(*server, plural, namespace, name);
                Answer::Watched(Box::new(Watched {
                    install: self.object(&at("packageinstalls")).map(Arc::new),
                    app: self.object(&at("apps")).map(Arc::new),
                    first_seen: None,
                    filled: true,
                }))
            }
            Ask::Served { .. } => Answer::Absent,
            Ask::Connection(_) => Answer::Connected(1),
            Ask::Contact(_) => Answer::Contact(Contact::Serves {
                uid: "workload".to_owned(),
            }),
            Ask::Installs | Ask::LabelledSecrets => {
                let plural = if *ask == Ask::Installs {
                    "packageinstalls"
                } else {
                    "secrets"
                };
                let there = servers
                    .all()
                    .iter()
                    .filter(|(place, _)| place.0 && place.1 == plural);
                Answer::Listed(there.map(|(_, object)| Object(object.clone())).collect())
            }
        }
    }
}

fn is_same(one: &Write, other: &Write) -> bool {
    (&one.key, one.verb) == (&other.key, other.verb)
}
