//! The run that each App showed when its present generation was first seen.
//!
//! kapp-controller shows it for some tens of milliseconds, which is less than a look at a cluster takes, but a watch shows every
//! state of an object as long as it is not interrupted. Without this a good package with readiness `Applied` would often wait for
//! one more run.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use kube::ResourceExt;
use sluice_core::proof::first_seen_run;
use sluice_crds::{foreign::App, run::FirstSeenRun};

/// Runs by name of the App.
#[derive(Debug, Default)]
pub(super) struct FirstSeenRuns(Mutex<BTreeMap<String, FirstSeenRun>>);

impl FirstSeenRuns {
    /// Takes in what a watch shows.
    pub(super) fn note(&self, app: &App) {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = app.name_any();
        if let Some(run) = first_seen_run(runs.get(&name), Some(app)) {
            runs.insert(name, run);
        }
    }

    /// Forgets an App that is gone.
    pub(super) fn forget(&self, app: &App) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&app.name_any());
    }

    /// The run of an App.
    pub(super) fn get(&self, name: &str) -> Option<FirstSeenRun> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }
}
