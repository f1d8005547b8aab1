//! Clauses of a proof.

use sluice_crds::foreign::condition::{Condition, find};
use sluice_crds::foreign::packaging::TemplateTool;
use sluice_crds::foreign::{App, PackageInstall};
use sluice_crds::labels::annotation;
use sluice_crds::run::{FirstSeenRun, Readiness};

use super::applied::all_changes_applied;
use super::first_run::{is_later_run, observed_app};
use super::{Target, app_version};
use crate::proof::Summary;
use crate::reasons::{Hold, PackageReason};

/// Client that a PackageInstall belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstalledBy {
    /// Sluice: version and values are those of the target.
    Sluice,
    /// Another client, which chooses version constraint and values. A failed resync withdraws nothing.
    Others,
}

/// Evidence about a package.
#[derive(Clone, Copy)]
pub(super) struct Evidence<'a> {
    pub(super) by: InstalledBy,
    pub(super) target: &'a Target<'a>,
    pub(super) install: &'a PackageInstall,
    pub(super) app: Option<&'a App>,
    pub(super) readiness: Readiness,
    /// Readiness that was proven at the current generation of the App.
    pub(super) latched: bool,
    /// Recorded run with which the App was first seen.
    pub(super) first: Option<&'a FirstSeenRun>,
}

/// Condition of a proof.
#[derive(Clone, Copy)]
pub(super) struct Clause {
    /// Whether the clause is met. Without an App all clauses but one are met.
    pub(super) met: fn(&Evidence<'_>) -> bool,
    /// Reason for the missing proof if the clause is not met.
    pub(super) objection: fn(&Evidence<'_>) -> Hold<PackageReason>,
}

macro_rules! clause {
    ($met:expr, $reason:ident, $message:literal) => {
        Clause {
            met: $met,
            objection: |_| Hold::new(PackageReason::$reason, $message),
        }
    };
}

/// All clauses of a proof.
pub(super) const CLAUSES: &[Clause] = &[
    clause!(
        |seen| seen.install.metadata.deletion_timestamp.is_none(),
        PackageInstallDeleting,
        "the PackageInstall is being deleted"
    ),
    clause!(
        |seen| !seen.install.spec.paused,
        PackageInstallPaused,
        "the PackageInstall is paused"
    ),
    clause!(
        |seen| !seen.install.spec.canceled,
        PackageInstallCanceled,
        "the PackageInstall is canceled"
    ),
    clause!(
        specifies_the_package,
        PackageInstallMismatch,
        "the PackageInstall specifies another package"
    ),
    clause!(
        specifies_the_version,
        PackageInstallMismatch,
        "the PackageInstall specifies another version"
    ),
    clause!(
        specifies_the_values,
        PackageInstallMismatch,
        "the PackageInstall specifies other values"
    ),
    clause!(
        observed_install,
        PackageInstallNotObserved,
        "waiting for kapp-controller to observe the PackageInstall"
    ),
    clause!(
        chose_the_version,
        PackageInstallVersionMismatch,
        "waiting for kapp-controller to select the version"
    ),
    Clause {
        met: |seen| succeeded(seen, Summary::of_install(seen.install)),
        objection: install_unfinished,
    },
    clause!(
        |seen| seen.app.is_some(),
        AppNotFound,
        "waiting for kapp-controller to create the App"
    ),
    clause!(
        |seen| seen.app.is_none_or(|app| belongs_to(app, seen.install)),
        AppOwnerMismatch,
        "the App belongs to another PackageInstall"
    ),
    clause!(
        |seen| seen
            .app
            .is_none_or(|app| app.metadata.deletion_timestamp.is_none()),
        AppDeleting,
        "the App is being deleted"
    ),
    clause!(
        |seen| seen.app.is_none_or(|app| !app.spec.paused),
        AppPaused,
        "the App is paused"
    ),
    clause!(
        |seen| seen.app.is_none_or(|app| !app.spec.canceled),
        AppCanceled,
        "the App is canceled"
    ),
    clause!(
        |seen| seen.app.is_none_or(|app| !manually_controlled(app)),
        AppManuallyControlled,
        "an annotation detaches the App from its PackageInstall"
    ),
    clause!(
        |seen| seen
            .app
            .is_none_or(|app| app_version(app) == Some(seen.target.version)),
        AppVersionMismatch,
        "waiting for the App to have the version"
    ),
    clause!(
        |seen| seen.app.is_none_or(|app| uses_the_values(app, seen.target)),
        AppValuesMismatch,
        "waiting for the App to use the values"
    ),
    clause!(
        |seen| seen.app.is_none_or(|app| has_the_sync_period(app, seen.target)),
        AppValuesMismatch,
        "waiting for the App to have the sync period that identifies the values"
    ),
    clause!(
        |seen| seen.app.is_none_or(observed_app),
        AppNotObserved,
        "waiting for kapp-controller to observe the App"
    ),
    Clause {
        met: app_finished,
        objection: app_unfinished,
    },
];

/// Whether the PackageInstall specifies package, version and values of the target.
pub(super) fn specifies_the_target(seen: &Evidence<'_>) -> bool {
    specifies_the_package(seen) && specifies_the_version(seen) && specifies_the_values(seen)
}

fn specifies_the_package(seen: &Evidence<'_>) -> bool {
    seen.install
        .spec
        .package_ref
        .as_ref()
        .is_some_and(|package| package.ref_name == seen.target.ref_name)
}

fn specifies_the_version(seen: &Evidence<'_>) -> bool {
    if seen.by == InstalledBy::Others {
        return true;
    }
    let selection = seen
        .install
        .spec
        .package_ref
        .as_ref()
        .and_then(|package| package.version_selection.as_ref());
    selection.and_then(|selection| selection.constraints.as_deref()) == Some(seen.target.version)
}

fn specifies_the_values(seen: &Evidence<'_>) -> bool {
    if seen.by == InstalledBy::Others {
        return true;
    }
    let mut secrets = seen
        .install
        .spec
        .values
        .iter()
        .map(|values| values.secret_ref.as_ref());
    if seen.target.secret_name.is_empty() {
        return secrets.next().is_none();
    }
    let first = secrets.next().flatten();
    // The digest does not cover a second source.
    first.is_some_and(|secret| secret.name == seen.target.secret_name) && secrets.next().is_none()
}

pub(super) fn observed_install(seen: &Evidence<'_>) -> bool {
    let observed = seen
        .install
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    observed.is_some() && observed == seen.install.metadata.generation
}

fn chose_the_version(seen: &Evidence<'_>) -> bool {
    let version = seen
        .install
        .status
        .as_ref()
        .and_then(|status| status.version.as_deref());
    version == Some(seen.target.version)
}

/// Whether kapp-controller finished, or only resyncs a proven App, or the required readiness needs no finished run.
fn succeeded(seen: &Evidence<'_>, summary: Option<Summary>) -> bool {
    match summary {
        Some(Summary::ReconcileSucceeded) => true,
        Some(Summary::Reconciling) => seen.latched || seen.readiness == Readiness::Applied,
        Some(Summary::ReconcileFailed) => seen.latched && seen.by == InstalledBy::Others,
        _ => false,
    }
}

fn app_finished(seen: &Evidence<'_>) -> bool {
    let Some(app) = seen.app else { return true };
    let summary = Summary::of_app(app);
    let only_applied = summary == Some(Summary::Reconciling) && !seen.latched;
    succeeded(seen, summary) && (!only_applied || is_later_run(seen.first, app) && all_changes_applied(app))
}

fn belongs_to(app: &App, install: &PackageInstall) -> bool {
    let owners = app.metadata.owner_references.iter().flatten();
    install
        .metadata
        .uid
        .as_ref()
        .is_some_and(|uid| owners.into_iter().any(|owner| owner.uid == *uid))
}

fn manually_controlled(app: &App) -> bool {
    app.metadata
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(annotation::MANUALLY_CONTROLLED))
}

/// Whether the App reads the values Secret, if the package has a step that can. Without this clause, a PackageInstall that is
/// observed before its App would prove new values by the old success of the App: only the name of the Secret differs.
fn uses_the_values(app: &App, target: &Target<'_>) -> bool {
    let mut secrets = app.spec.template_tools().flat_map(TemplateTool::secrets);
    target.sync_period.is_some()
        || target.secret_name.is_empty()
        || secrets.any(|secret| secret == target.secret_name)
}

/// Whether an App that reads no values has the sync period of the target: nothing else differs there.
fn has_the_sync_period(app: &App, target: &Target<'_>) -> bool {
    target.sync_period.is_none() || app.spec.sync_period.as_deref() == target.sync_period
}

/// Whether a user has paused or canceled the package.
pub(super) fn stopped(seen: &Evidence<'_>) -> bool {
    let spec = &seen.install.spec;
    let app_stopped = |app: &App| app.spec.paused || app.spec.canceled || manually_controlled(app);
    spec.paused || spec.canceled || seen.app.is_some_and(app_stopped)
}

/// Returns the hold of an unproven package without any other defect.
pub(super) fn unfinished() -> Hold<PackageReason> {
    Hold::new(
        PackageReason::PackageInstallReconciling,
        "waiting for kapp-controller to finish",
    )
}

/// Returns the failure of a package: the message of the App, else that of the PackageInstall.
pub(super) fn failure(seen: &Evidence<'_>) -> Hold<PackageReason> {
    let failed_app = seen
        .app
        .filter(|app| Summary::of_app(app) == Some(Summary::ReconcileFailed));
    if let Some(status) = failed_app.and_then(|app| app.status.as_ref()) {
        let message = failure_message(status.useful_error_message.as_deref(), &status.conditions);
        return Hold::new(PackageReason::AppFailed, message);
    }
    let status = seen.install.status.as_ref();
    let useful = status.and_then(|status| status.useful_error_message.as_deref());
    let conditions = status
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default();
    Hold::new(
        PackageReason::PackageInstallFailed,
        failure_message(useful, conditions),
    )
}

fn install_unfinished(seen: &Evidence<'_>) -> Hold<PackageReason> {
    if Summary::of_install(seen.install) == Some(Summary::ReconcileFailed) {
        failure(seen)
    } else {
        unfinished()
    }
}

fn app_unfinished(seen: &Evidence<'_>) -> Hold<PackageReason> {
    if seen.app.and_then(Summary::of_app) == Some(Summary::ReconcileFailed) {
        failure(seen)
    } else {
        Hold::new(
            PackageReason::AppReconciling,
            "waiting for kapp-controller to finish",
        )
    }
}

fn failure_message(useful: Option<&str>, conditions: &[Condition]) -> String {
    let of_condition =
        || find(conditions, Summary::ReconcileFailed.as_str()).map(|condition| condition.message.as_str());
    useful
        .filter(|text| !text.is_empty())
        .or_else(of_condition)
        .unwrap_or_default()
        .to_owned()
}
