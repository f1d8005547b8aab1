//! First observed run of each App generation.
//!
//! kapp-controller reports that run for some tens of milliseconds, less than a drift check takes. An uninterrupted watch delivers every
//! state of an object. Without this record a healthy package with readiness `Applied` would often wait for another run.

use std::collections::BTreeMap;

use kube::ResourceExt;
use sluice_crds::{foreign::App, run::FirstSeenRun};

use crate::proof::first_seen_run;

/// First observed runs, by name of the App.
#[derive(Debug, Default)]
pub struct FirstSeenRuns {
    runs: BTreeMap<String, FirstSeenRun>,
}

impl FirstSeenRuns {
    /// Observes an App of a list or watch.
    pub fn note(&mut self, app: &App) {
        let name = app.name_any();
        if let Some(run) = first_seen_run(self.get(&name), Some(app)) {
            self.runs.insert(name, run);
        }
    }

    /// Drops a deleted App.
    pub fn forget(&mut self, app: &App) {
        self.runs.remove(&app.name_any());
    }

    /// Drops all runs.
    pub fn clear(&mut self) {
        self.runs.clear();
    }

    /// Returns the run of an App.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&FirstSeenRun> {
        self.runs.get(name)
    }
}
