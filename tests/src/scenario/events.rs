//! Events on the Cluster of a scenario.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::cluster::Cluster;
use super::read;
use crate::observer::Revision;
use crate::requests::edit;
use crate::wait;

impl Cluster {
    /// Waits until an Event on the Cluster has this reason and a note that contains `names`.
    pub async fn has_event(&self, reason: &str, names: &str, deadline: Duration) -> Result<()> {
        self.has_event_after(Revision::default(), reason, names, deadline)
            .await
    }

    /// The same for an Event that was published, or repeated, after `since`.
    pub async fn has_event_after(
        &self,
        since: Revision,
        reason: &str,
        names: &str,
        deadline: Duration,
    ) -> Result<()> {
        let path = format!(
            "/apis/events.k8s.io/v1/namespaces/{}/events?fieldSelector=regarding.kind=Cluster,regarding.name={}",
            self.scene().namespace(),
            self.name()
        );
        let what = format!(
            "an Event {reason} on Cluster {} that names {names:?}",
            self.name()
        );
        wait::until(what, deadline, || async {
            let listed = read::get(&self.scene().client(), &path).await?;
            let events = listed["items"].as_array().into_iter().flatten();
            let notes: Vec<&Value> = events
                .filter(|event| event["reason"] == reason)
                .filter(|event| edit::revision(event).is_ok_and(|written| written > since))
                .map(|event| &event["note"])
                .collect();
            let mut texts = notes.iter().filter_map(|note| note.as_str());
            if texts.any(|note| note.contains(names)) {
                Ok(())
            } else {
                wait::not_yet(format!("{notes:?}"))
            }
        })
        .await?;
        Ok(())
    }
}
