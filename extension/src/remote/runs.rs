//! The run that each App showed when its present generation was first seen.
//!
//! kapp-controller shows it for some tens of milliseconds, which is less than a look at a cluster takes, but a watch shows every
//! state of an object as long as it is not interrupted. Without this a good package with readiness `Applied` would often wait for
//! one more run.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use kube::ResourceExt;
use sluice_core::proof::first_seen_run;
use sluice_crds::{foreign::App, run::FirstSeenRun};

/// Runs by name of the App.
#[derive(Debug, Default)]
pub(super) struct FirstSeenRuns(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// Each with the number of lists that came before it was seen last.
    runs: BTreeMap<String, (FirstSeenRun, u64)>,
    lists: u64,
}

impl FirstSeenRuns {
    /// Takes in what a watch shows.
    pub(super) fn note(&self, app: &App) {
        let mut noted = self.noted();
        let (name, lists) = (app.name_any(), noted.lists);
        let known = noted.runs.get(&name).map(|(run, _)| run);
        if let Some(run) = first_seen_run(known, Some(app)) {
            noted.runs.insert(name, (run, lists));
        }
    }

    /// Forgets an App that is gone.
    pub(super) fn forget(&self, app: &App) {
        self.noted().runs.remove(&app.name_any());
    }

    /// Every App of a list was noted. Those that it lacks are gone.
    pub(super) fn listed(&self) {
        let mut noted = self.noted();
        let lists = noted.lists;
        noted.runs.retain(|_, (_, seen)| *seen == lists);
        noted.lists += 1;
    }

    /// Forgets all.
    pub(super) fn clear(&self) {
        self.noted().runs.clear();
    }

    /// The run of an App.
    pub(super) fn get(&self, name: &str) -> Option<FirstSeenRun> {
        self.noted().runs.get(name).map(|(run, _)| run.clone())
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectMeta;
    use sluice_crds::foreign::packaging::AppStatus;

    use super::*;

    #[test]
    fn apps_that_are_listed_no_more_are_forgotten() {
        let runs = FirstSeenRuns::default();
        for list in 0..10 {
            runs.note(&app(&format!("of-list-{list}")));
            runs.note(&app("stays"));
            runs.listed();
        }
        assert!(runs.get("stays").is_some());
        assert_eq!(runs.noted().runs.len(), 2, "of ten lists");
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
