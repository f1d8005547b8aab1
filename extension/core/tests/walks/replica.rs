//! Model of a replica that answers hooks: a cache of any age, and reads that confirm releases.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kube::core::Status;
use serde_json::{Value, json};
use sluice_core::{
    cache::stores::{Releases, Stored as _, Stores as _},
    gate::{
        confirmation::{Confirmation, NotConfirmed, ObjectRead, Reads, ReleaseObject},
        decision::Decision,
        flights::Flights,
        hook_call::HookCall,
        index::{Index, Pace},
        plan_call::{NoPlan, PlanCall},
        stuck::Counted,
    },
    reasons::Hold,
    reconcile::cluster::Server,
    resolver::{Asked, ResolverInputs, Running, resolve},
    upgrade::hop::ControlPlaneFacts,
    upgrade_plan::{steps_by, steps_of},
};
use sluice_crds::{
    foreign::{Cluster, ClusterClass},
    run::ClusterBootstrap,
};

use crate::{
    connection::time_at,
    defect::Defect,
    objects::{SYSTEM, TEAM, control_plane},
    odd::{Shown, text},
    servers::{Place, Servers, place},
};

/// Kinds that a replica watches to answer hooks, each with its own cache.
pub(crate) const KINDS: &[&str] = &[
    "clusters",
    "clusterbootstraps",
    "tanzukubernetesreleases",
    "clusterbootstraptemplates",
    "clusterclasses",
];

/// Behaviour of the reads that confirm a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Reading {
    /// The API server answers at once.
    #[default]
    AtOnce,
    /// It does not answer.
    Fails,
    /// It answers at once, and the answers arrive with the next call of Cluster API.
    Late,
}

/// Caller that waits for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    ClusterApi,
    Other,
}

/// A replica.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Replica {
    seen: Servers,
    /// The kind whose watch delivers nothing, if any.
    pub(crate) lags: Option<&'static str>,
    /// State of the servers that a read of another call finds, while its answer is under way.
    in_flight: Option<Servers>,
    /// The call whose answers are late, its time, and the state that was read.
    late: Option<(String, u64, Servers)>,
    /// Seconds by which its clock is ahead of all others.
    pub(crate) ahead: i64,
    pub(crate) defect: Option<Defect>,
}

/// Answer of the replica: whether the call is released, and the time at which it arrived.
pub(crate) struct Answer {
    pub(crate) released: bool,
    pub(crate) asked: u64,
}

impl Replica {
    /// Brings all caches up to date but that of the lagging kind.
    pub(crate) fn watch(&mut self, servers: &Servers) {
        match self.lags {
            None => self.seen = servers.clone(),
            Some(kind) => self.seen.take_over_but(Server::Management, kind, servers),
        }
    }

    /// Sets the cache of one kind to this state of the servers.
    pub(crate) fn show(&mut self, kind: &str, servers: &Servers) {
        self.seen.take_over_kinds(Server::Management, &[kind], servers);
    }

    pub(crate) fn forget(&mut self) {
        self.seen = Servers::default();
    }

    /// Returns the time of its clock.
    pub(crate) fn clock(&self, now: u64) -> Timestamp {
        time_at(now) + SignedDuration::from_secs(self.ahead)
    }

    /// Returns the time that it compares with that of an expiry.
    pub(crate) fn shown_clock(&self, now: u64) -> Timestamp {
        match self.defect {
            Some(Defect::ClockUnseen) => time_at(0),
            _ => self.clock(now),
        }
    }

    /// Another call about the Cluster arrives. The answer to its read stays under way.
    pub(crate) fn is_called_by_another(&mut self, servers: &Servers) {
        self.in_flight.get_or_insert_with(|| servers.clone());
    }

    /// Answers a call of Cluster API.
    pub(crate) fn answer(
        &mut self,
        servers: &Servers,
        call: &HookCall<'_>,
        reading: Reading,
        now: u64,
    ) -> Answer {
        let said = format!(
            "{:?} {} {} {:?}",
            call.hook, call.generation, call.version, call.first_step
        );
        let late = self.late.take().filter(|(of, ..)| *of == said);
        let (asked, read) = match late {
            Some((_, asked, read)) => (asked, Some(read)),
            None if reading == Reading::Fails => (now, None),
            None => (now, Some(self.read_by_flights(servers))),
        };
        if reading == Reading::Late && asked == now {
            self.late = read.map(|read| (said, now, read));
            return Answer {
                released: false,
                asked,
            };
        }
        Answer {
            released: self.decide(call, read.as_ref()),
            asked,
        }
    }

    /// Answers a call of GenerateUpgradePlan; `None` for a failure. Without filled caches, it needs reads that are answered at once.
    pub(crate) fn plan(&self, servers: &Servers, call: &PlanCall, reading: Reading) -> Option<Vec<String>> {
        let planned = if !call.passes_minors() {
            steps_by(call, &Releases::new(), None).map_err(NoPlan::from)
        } else if self.is_filled() {
            steps_of(call, &Shown(&self.seen), SYSTEM)
        } else if reading == Reading::AtOnce {
            let read = Shown(servers);
            let bootstrap: Option<Arc<ClusterBootstrap>> = read.get(Some(TEAM), &call.name);
            steps_by(call, &read.releases(), bootstrap.as_deref()).map_err(NoPlan::from)
        } else {
            return None;
        };
        planned.ok()
    }

    /// Whether the caches are filled. A cache without its Cluster stands for one that is not filled yet.
    fn is_filled(&self) -> bool {
        let stores = Shown(&self.seen);
        let cluster: Option<Arc<Cluster>> = stores.get(Some(TEAM), "one");
        cluster.is_some() || stores.undecodable_cluster().is_some()
    }

    /// Reviews an edit of the Cluster. Returns the operations of RFC 6902 that the webhook adds.
    pub(crate) fn review(&self, old: &Value, new: &Value) -> Vec<Value> {
        let seen = match self.defect {
            Some(defect) => defect.reviewed(&self.seen),
            None => self.seen.clone(),
        };
        let stores = Shown(&seen);
        let plane = seen.get(&control_plane()).map(ControlPlaneFacts::in_object);
        let running = Running::of(TEAM, "one", plane, &stores);
        let class: Option<Arc<ClusterClass>> = stores.get(Some(TEAM), "class");
        let cluster = |object: &Value| serde_json::from_value(object.clone()).expect("a Cluster");
        let asked = Asked {
            old: Some(cluster(old)),
            new: cluster(new),
        };
        let (releases, images) = (stores.releases(), stores.images());
        let inputs = ResolverInputs {
            class: Ok(class.as_deref()),
            releases: &releases,
            images: images.as_deref(),
            running: Some(&running),
            pinned: None,
            rollback_to: None,
        };
        // A request that the webhook refuses is stored all the same: walks refuse edits themselves.
        resolve(&asked, inputs)
            .map(|resolution| resolution.patch)
            .unwrap_or_default()
    }

    /// Returns the state of the servers that the reads for a call find, which arrives now.
    fn read_by_flights(&mut self, servers: &Servers) -> Servers {
        let mut flights = Flights::<(), Caller>::default();
        let sent = self.in_flight.take();
        if sent.is_some() {
            flights.join((), Caller::Other);
        }
        let sends = flights.join((), Caller::ClusterApi);
        let (first, goes_on) = flights.end(&());
        let of_first = sent.unwrap_or_else(|| servers.clone());
        let serves_it = first.contains(&Caller::ClusterApi) || self.defect == Some(Defect::SharedTooLate);
        assert!(sends || goes_on, "no read is sent for the call");
        match self.defect {
            Some(Defect::ConfirmedByCache) => self.seen.clone(),
            _ if serves_it => of_first,
            _ => servers.clone(),
        }
    }

    fn decide(&self, call: &HookCall<'_>, read: Option<&Servers>) -> bool {
        let shown = |servers: &Servers| match self.defect {
            Some(defect) => defect.recorded(servers, call),
            None => servers.clone(),
        };
        let (seen, read) = (shown(&self.seen), read.map(shown));
        let stores = Shown(&seen);
        if !self.is_filled() {
            return false;
        }
        let index = Index {
            stores: &stores,
            system_namespace: SYSTEM,
            hold_unresolved: true,
            note: |_: &str| None::<Hold>,
        };
        let pace = Pace::of(call.uid, &Counted::default(), 600, Duration::ZERO);
        let mut reads = Reads::default();
        loop {
            match index.confirm(call, &pace, false, &reads) {
                Confirmation::Decided(decision) => return decision == Decision::Release,
                Confirmation::Needs(_) if self.defect == Some(Defect::Unconfirmed) => return true,
                Confirmation::Needs(objects) => {
                    let Some(servers) = &read else { return false };
                    for object in objects {
                        let Ok(found) = respond(servers, &object) else {
                            return false;
                        };
                        reads.add(object, found);
                    }
                }
            }
        }
    }
}

/// Returns the response of the management API server to a read.
fn respond(servers: &Servers, object: &ReleaseObject) -> Result<ObjectRead, NotConfirmed> {
    let path = object.request()?.uri().path().to_owned();
    let parts: Vec<&str> = path.split('/').collect();
    let (name, plural) = (parts[parts.len() - 1], parts[parts.len() - 2]);
    let namespace = if parts[4] == "namespaces" { parts[5] } else { "" };
    if let Some(found) = servers.get(&at(plural, namespace, name)) {
        return object.found(&text(found));
    }
    let details = json!({"name": name, "group": parts[2], "kind": plural});
    let status = Status::failure("", "NotFound").with_code(404);
    object.absent(&status.with_details(serde_json::from_value(details).expect("details")))
}

fn at(plural: &str, namespace: &str, name: &str) -> Place {
    place(Server::Management, plural, namespace, name)
}
