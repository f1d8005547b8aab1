//! Publishes events for people.

use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use sluice_core::{
    events::{Notice, Published},
    hold::Hold,
};
use sluice_crds::foreign::Cluster;
use tracing::warn;

const CONTROLLER: &str = "sluice";
/// What the controller was doing, as `kubectl describe` shows it.
const ACTION: &str = "UpgradePackages";

/// Publishes events, each text once until another one follows.
pub struct Notifier {
    client: Client,
    published: Mutex<Published<Recorder>>,
}

impl Notifier {
    /// A notifier that has published nothing yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            published: Mutex::default(),
        }
    }

    /// Says that a Cluster waits, and for what.
    pub async fn held(&self, cluster: &Cluster, hold: &Hold) {
        if let Some(notice) = Notice::of_hold(hold) {
            self.publish(&cluster.object_ref(&()), notice).await;
        }
    }

    /// Says that something went well.
    pub async fn told(&self, cluster: &Cluster, reason: &str, note: &str) {
        let warns = false;
        self.publish(&cluster.object_ref(&()), Notice { warns, reason, note })
            .await;
    }

    /// Says what is wrong with an object that is no Cluster.
    pub async fn problem(&self, object: &ObjectReference, reason: &str, note: &str) {
        let warns = true;
        self.publish(object, Notice { warns, reason, note }).await;
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, uid: &str) {
        self.published().forget(uid);
    }

    async fn publish(&self, object: &ObjectReference, notice: Notice<'_>) {
        let fresh = || {
            let reporter = Reporter {
                controller: CONTROLLER.to_owned(),
                instance: None,
            };
            Recorder::new(self.client.clone(), reporter)
        };
        let uid = object.uid.as_deref().unwrap_or_default();
        let recorder = self.published().counter(uid, notice, fresh);
        let Some(recorder) = recorder else { return };
        let Notice { warns, reason, note } = notice;
        let event = Event {
            type_: if warns {
                EventType::Warning
            } else {
                EventType::Normal
            },
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

    fn published(&self) -> MutexGuard<'_, Published<Recorder>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
