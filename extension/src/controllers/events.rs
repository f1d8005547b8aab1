//! Publishes events for people.

use std::sync::Mutex;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder},
};
use sluice_core::events::{Notice, Published};
use tracing::warn;

use crate::lock::lock;

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

    /// Says something of an object, if there is something to say.
    pub async fn publish(&self, object: &ObjectReference, notice: Option<Notice<'_>>) {
        let Some(notice) = notice else { return };
        let uid = object.uid.as_deref().unwrap_or_default();
        // Without the name of this process: an event is the same whichever replica leads.
        let fresh = || Recorder::new(self.client.clone(), CONTROLLER.to_owned().into());
        let recorder = lock(&self.published).counter(uid, notice, fresh);
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

    /// Of how many objects something is known.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.published).len()
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, uid: &str) {
        lock(&self.published).forget(uid);
    }
}
