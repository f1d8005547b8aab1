//! Kubernetes events.

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
/// Action of the events, as `kubectl describe` shows it.
const ACTION: &str = "UpgradePackages";

/// Publisher of events. It skips an event whose note equals the previous one of the object.
pub struct Notifier {
    client: Client,
    published: Mutex<Published<Recorder>>,
}

impl Notifier {
    /// Returns a notifier without a history.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            published: Mutex::default(),
        }
    }

    /// Publishes an event for `object`, if there is a notice.
    pub async fn publish(&self, object: &ObjectReference, notice: Option<Notice<'_>>) {
        let Some(notice) = notice else { return };
        let uid = object.uid.as_deref().unwrap_or_default();
        // Without the name of this process, so that events stay equal across leaders.
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
        // A lost event is no reason to fail: the condition carries the same text.
        if let Err(error) = recorder.publish(&event, object).await {
            warn!(%error, reason, "Failed to publish event");
        }
    }

    /// Returns the number of tracked objects.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.published).len()
    }

    /// Drops the state of a deleted object.
    pub fn forget(&self, uid: &str) {
        lock(&self.published).forget(uid);
    }
}
