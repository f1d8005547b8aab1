//! A leader's connection to the workload, and the observations of its watches.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use sluice_core::{
    proof::first_seen_run,
    reconcile::cluster::{Contact, Server},
};
use sluice_crds::{foreign::App, run::FirstSeenRun};

use crate::{
    objects::kube_system,
    servers::{Servers, refused},
};

/// Validity of the UID of the server, in seconds.
const BELIEVED: u64 = 10;

/// Kinds of the workload that a connection watches, each with its own cache.
pub(crate) const WATCHED: [&str; 2] = ["packageinstalls", "apps"];

/// Connection to the workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    pub(crate) number: u64,
    /// Digest of the kubeconfig.
    pub(crate) digest: String,
    /// Whether the cache of each watched kind was filled.
    filled: [bool; WATCHED.len()],
    /// UID of the server, and time of its last read.
    identity: Option<(String, u64)>,
    /// Whether a watch ended or filled since that read.
    disturbed: bool,
    silent_since: Option<u64>,
    unread_since: Option<u64>,
    answered: u64,
    /// Run of each App at the first observation of its generation.
    runs: BTreeMap<String, FirstSeenRun>,
}

impl std::hash::Hash for Connection {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.digest, self.filled, &self.identity, self.disturbed).hash(state);
        (self.silent_since, self.unread_since, format!("{:?}", self.runs)).hash(state);
    }
}

pub(crate) fn time_at(second: u64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second.cast_signed())
}

impl Connection {
    pub(crate) fn open(number: u64, digest: &str) -> Self {
        Self {
            number,
            digest: digest.to_owned(),
            ..Self::default()
        }
    }

    /// Whether the caches of all watched kinds were filled.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled == [true; WATCHED.len()]
    }

    /// The watches of some kinds read the server. Returns whether it responded.
    pub(crate) fn watch(&mut self, servers: &Servers, kinds: &[&str], now: u64) -> bool {
        if servers.silent {
            self.silent_since.get_or_insert(now);
            self.disturbed = true;
            return false;
        }
        let known = self.identity.as_ref().map(|(uid, _)| uid.as_str());
        self.disturbed |= known.is_some_and(|known| known != uid(servers));
        for (kind, filled) in WATCHED.iter().zip(&mut self.filled) {
            if kinds.contains(kind) {
                self.disturbed |= !*filled;
                *filled = true;
            }
        }
        (self.silent_since, self.answered) = (None, now);
        if kinds.contains(&"apps") {
            self.see_runs(servers);
        }
        true
    }

    /// Records the run of each App at the first observation of its generation.
    fn see_runs(&mut self, servers: &Servers) {
        let mut there = Vec::new();
        for (place, object) in servers.of(Server::Workload, "apps") {
            let app: App = serde_json::from_value(object.clone()).expect("an App");
            if let Some(run) = first_seen_run(self.runs.get(&place.3), Some(&app)) {
                self.runs.insert(place.3.clone(), run);
            }
            there.push(&place.3);
        }
        self.runs.retain(|name, _| there.contains(&name));
    }

    pub(crate) fn first_seen(&self, app: &str) -> Option<FirstSeenRun> {
        self.runs.get(app).cloned()
    }

    /// Returns the contact to the server.
    pub(crate) fn contact(&mut self, servers: &Servers, now: u64) -> Contact {
        if let Some(since) = self.silent_since {
            return Contact::Silent {
                since: time_at(since),
                now: time_at(now),
                last_answer: Some(Duration::from_secs(now - self.answered)),
                cause: None,
            };
        }
        if let Some((uid, read)) = &self.identity
            && !self.disturbed
            && now - read < BELIEVED
        {
            return Contact::Serves { uid: uid.clone() };
        }
        if servers.silent {
            let since = self
                .identity
                .is_some()
                .then(|| *self.unread_since.get_or_insert(now));
            return Contact::Unread {
                since: since.map(time_at),
                failure: refused(Server::Workload, None),
            };
        }
        (self.unread_since, self.answered) = (None, now);
        let uid = uid(servers);
        if self.identity.as_ref().is_some_and(|(known, _)| known != uid) {
            return Contact::Replaced;
        }
        self.identity = Some((uid.to_owned(), now));
        self.disturbed = false;
        Contact::Serves { uid: uid.to_owned() }
    }
}

fn uid(servers: &Servers) -> &str {
    let namespace = servers.get(&kube_system());
    namespace.map_or("", |namespace| {
        namespace["metadata"]["uid"].as_str().unwrap_or_default()
    })
}
