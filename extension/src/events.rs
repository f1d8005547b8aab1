//! Events for people: one for each change of what an object waits for.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use sluice_core::hold::{GateReason, Hold};
use sluice_crds::foreign::Cluster;
use tracing::warn;

const CONTROLLER: &str = "sluice";
/// What the controller was doing, as `kubectl describe` shows it.
const ACTION: &str = "UpgradePackages";

/// What every upgrade waits for at some point; the record tells it to whoever asks.
const PROGRESS: [GateReason; 6] = [
    GateReason::BootstrapNotMerged,
    GateReason::ControlPlaneCreating,
    GateReason::ControlPlaneUpgrading,
    GateReason::KappControllerRestarting,
    GateReason::PackagesUnknown,
    GateReason::WorkersUpgrading,
];

/// So many different texts of one object are counted when they are repeated.
const COUNTED: usize = 16;

/// Publishes events on Clusters.
pub struct Notifier {
    client: Client,
    told: Mutex<HashMap<String, Told>>,
}

/// What was published about one object.
#[derive(Default)]
struct Told {
    last: String,
    /// By reason and note. A recorder takes two events of one reason for the same and repeats the note of the first one, so
    /// there is one for each text.
    recorders: HashMap<String, Recorder>,
}

impl Notifier {
    /// A notifier that has told nothing yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            told: Mutex::default(),
        }
    }

    /// Tells once that a cluster waits, and for what. Steps that every upgrade goes through are no event.
    pub async fn held(&self, cluster: &Cluster, hold: &Hold) {
        if PROGRESS.contains(&hold.reason) {
            return;
        }
        let type_ = if hold.reason == GateReason::PackagesNotReady {
            EventType::Normal
        } else {
            EventType::Warning
        };
        self.tell(cluster, type_, hold.reason.as_str(), &hold.message)
            .await;
    }

    /// Tells once that something went well.
    pub async fn told(&self, cluster: &Cluster, reason: &str, note: &str) {
        self.tell(cluster, EventType::Normal, reason, note).await;
    }

    /// Forgets a cluster that is gone.
    pub fn forget(&self, uid: &str) {
        self.told
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid);
    }

    /// Tells once what is wrong with an object that is no Cluster.
    pub async fn problem(&self, object: &ObjectReference, reason: &str, note: &str) {
        self.publish(object, EventType::Warning, reason, note).await;
    }

    async fn tell(&self, cluster: &Cluster, type_: EventType, reason: &str, note: &str) {
        self.publish(&cluster.object_ref(&()), type_, reason, note).await;
    }

    async fn publish(&self, object: &ObjectReference, type_: EventType, reason: &str, note: &str) {
        let uid = object.uid.clone().unwrap_or_default();
        let said = format!("{reason}: {note}");
        let Some(recorder) = self.recorder(uid, said) else {
            return;
        };
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note.to_owned()),
            action: ACTION.to_owned(),
            secondary: None,
        };
        // An event is a courtesy: the condition says the same, so a lost one is no reason to stop.
        if let Err(error) = recorder.publish(&event, object).await {
            warn!(%error, reason, "Publishing an event");
        }
    }

    /// What counts the repetitions of a text; none if it was published last.
    fn recorder(&self, uid: String, said: String) -> Option<Recorder> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = told.entry(uid).or_default();
        if told.last == said {
            return None;
        }
        told.last.clone_from(&said);
        if told.recorders.len() >= COUNTED {
            told.recorders.clear();
        }
        let fresh = || {
            let reporter = Reporter {
                controller: CONTROLLER.to_owned(),
                instance: None,
            };
            Recorder::new(self.client.clone(), reporter)
        };
        Some(told.recorders.entry(said).or_insert_with(fresh).clone())
    }
}
