//! The run that each App showed when its present generation was first seen.
//!
//! kapp-controller shows it for some tens of milliseconds, which is less than a look at a cluster takes, but a watch shows every
//! state of an object as long as it is not interrupted. Without this a good package with readiness `Applied` would often wait for
//! one more run.

use std::collections::BTreeMap;

use kube::ResourceExt;
use sluice_crds::{foreign::App, run::FirstSeenRun};

use crate::proof::first_seen_run;

/// Runs by name of the App.
#[derive(Debug, Default)]
pub struct FirstSeenRuns {
    runs: BTreeMap<String, FirstSeenRun>,
}

impl FirstSeenRuns {
    /// Takes in what a list or a watch shows.
    pub fn note(&mut self, app: &App) {
        let name = app.name_any();
        if let Some(run) = first_seen_run(self.get(&name), Some(app)) {
            self.runs.insert(name, run);
        }
    }

    /// Forgets an App that is gone.
    pub fn forget(&mut self, app: &App) {
        self.runs.remove(&app.name_any());
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.runs.clear();
    }

    /// The run of an App.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&FirstSeenRun> {
        self.runs.get(name)
    }
}
