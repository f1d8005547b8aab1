//! Determines the run of kapp-controller to which the step blocks of an App belong.
//!
//! kapp-controller v0.53.1 first sets the observed generation, and then replaces the step blocks one by one as the steps of that run
//! end (`pkg/app/app_reconcile.go`). Until then they are those of the previous run. They may resemble a run that waits, because a
//! process that ends during a wait leaves them unchanged. Sluice therefore records the blocks of the first observation of a
//! generation, and only later blocks count.

use jiff::Timestamp;
use sluice_crds::foreign::App;
use sluice_crds::run::FirstSeenRun;

/// Updates the earliest run that was seen at this UID and generation of an App with one more observation. An App that kapp-controller
/// has not observed changes nothing.
#[must_use]
pub fn first_seen_run(known: Option<&FirstSeenRun>, app: Option<&App>) -> Option<FirstSeenRun> {
    match app.and_then(shown) {
        Some(shown) => Some(earliest(known, shown)),
        None => known.cloned(),
    }
}

/// Whether the App shows steps of a run that began after the first observation of its current generation.
pub(super) fn is_later_run(first: Option<&FirstSeenRun>, app: &App) -> bool {
    let (Some(first), Some(shown)) = (first, shown(app)) else {
        return false;
    };
    // Both, because the clock of another kapp-controller process may be behind: its fetch alone may fall between two steps of the
    // interrupted run.
    is_same_generation(first, &shown)
        && fetched(first) < fetched(&shown)
        && deployed(first) < deployed(&shown)
}

/// Whether kapp-controller has observed the latest generation of the App.
pub(super) fn observed_app(app: &App) -> bool {
    let observed = app.status.as_ref().and_then(|status| status.observed_generation);
    observed.is_some() && observed == app.metadata.generation
}

fn shown(app: &App) -> Option<FirstSeenRun> {
    if !observed_app(app) {
        return None;
    }
    let status = app.status.as_ref()?;
    let fetch = status.fetch.as_ref();
    let deploy = status.deploy.as_ref();
    Some(FirstSeenRun {
        app_uid: app.metadata.uid.clone()?,
        app_generation: app.metadata.generation?,
        fetch_started_at: fetch.and_then(|step| step.started_at.clone()),
        deploy_started_at: deploy.and_then(|step| step.started_at.clone()),
    })
}

/// Returns the earlier of two observations of the same generation, else the second one.
pub(super) fn earliest(known: Option<&FirstSeenRun>, shown: FirstSeenRun) -> FirstSeenRun {
    let at = |run: &FirstSeenRun| (fetched(run), deployed(run));
    known
        .filter(|known| is_same_generation(known, &shown) && at(known) <= at(&shown))
        .cloned()
        .unwrap_or(shown)
}

fn is_same_generation(one: &FirstSeenRun, other: &FirstSeenRun) -> bool {
    (&one.app_uid, one.app_generation) == (&other.app_uid, other.app_generation)
}

fn fetched(run: &FirstSeenRun) -> Option<Timestamp> {
    run.fetch_started_at.as_ref().map(|time| time.0)
}

fn deployed(run: &FirstSeenRun) -> Option<Timestamp> {
    run.deploy_started_at.as_ref().map(|time| time.0)
}
