//! The run that each App showed when its present generation was first seen.
//!
//! kapp-controller shows it for some tens of milliseconds, which is less than a look at a cluster takes, but a watch shows every
//! state of an object as long as it is not interrupted. Without this a good package with readiness `Applied` would often wait for
//! one more run.

use std::collections::BTreeMap;

use kube::ResourceExt;
use sluice_crds::{foreign::App, run::FirstSeenRun};

use crate::proof::first_seen_run;

/// Runs by name of the App, each with the number of lists that came before it was seen last.
#[derive(Debug, Default)]
pub struct FirstSeenRuns {
    runs: BTreeMap<String, (FirstSeenRun, u64)>,
    lists: u64,
}

impl FirstSeenRuns {
    /// Takes in what a watch shows.
    pub fn note(&mut self, app: &App) {
        let name = app.name_any();
        if let Some(run) = first_seen_run(self.get(&name), Some(app)) {
            self.runs.insert(name, (run, self.lists));
        }
    }

    /// Forgets an App that is gone.
    pub fn forget(&mut self, app: &App) {
        self.runs.remove(&app.name_any());
    }

    /// Every App of a list was noted. Those that it lacks are gone.
    pub fn listed(&mut self) {
        self.runs.retain(|_, (_, seen)| *seen == self.lists);
        self.lists += 1;
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.runs.clear();
    }

    /// The run of an App.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&FirstSeenRun> {
        self.runs.get(name).map(|(run, _)| run)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectMeta;
    use sluice_crds::foreign::packaging::AppStatus;

    use super::*;

    #[test]
    fn apps_that_are_listed_no_more_are_forgotten() {
        let mut runs = FirstSeenRuns::default();
        for list in 0..10 {
            runs.note(&app(&format!("of-list-{list}")));
            runs.note(&app("stays"));
            runs.listed();
        }
        assert!(runs.get("stays").is_some());
        assert_eq!(runs.runs.len(), 2, "of ten lists");
    }

    fn app(name: &str) -> App {
        App {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                uid: Some("uid".to_owned()),
                generation: Some(1),
                ..ObjectMeta::default()
            },
            status: Some(AppStatus {
                observed_generation: Some(1),
                ..AppStatus::default()
            }),
            ..App::default()
        }
    }
}
