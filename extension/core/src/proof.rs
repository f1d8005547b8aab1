//! Proof that a package reconciled at its target: PackageInstall and App together, clause by clause.
//!
//! kapp-controller v0.53.1 repeats the old success of the App in the PackageInstall right after a change, for up to seconds. So
//! neither object alone is a proof, and no order of observations is one either.

mod applied;
mod clauses;
mod first_run;
mod made_from;
mod status;
mod summary;
mod underway;

use sluice_crds::foreign::{App, PackageInstall};
use sluice_crds::labels::annotation;
use sluice_crds::run::{FirstSeenRun, PackageRecord, PackageState, Phase, Readiness};

pub use self::first_run::first_seen_run;
pub use self::made_from::is_made_from;
pub use self::status::{ProofStatus, proof_status};
pub use self::summary::Summary;
pub use self::underway::{is_underway, last_moved};
use crate::reasons::{Class, Hold, PackageReason};
use crate::text::lines;
use clauses::{
    CLAUSES, Clause, Evidence, InstalledBy, failure, observed_install, specifies_the_target, stopped,
    unfinished,
};
use first_run::observed_app;

/// Maximum length of a message of kapp-controller in the record, in bytes.
const LONGEST_MESSAGE: usize = 1024;

/// Number of digests that a repeatedly altered package cycles through; each leaves a Secret until the upgrade ends.
const REPAIRS: u8 = 16;

/// API server on which a package is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JudgedOn {
    /// Management cluster, for kapp-controller itself.
    Management,
    /// Workload cluster.
    Workload,
}

/// Desired state of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target<'a> {
    /// Short name, `antrea`.
    pub name: &'a str,
    /// `Package.spec.refName`.
    pub ref_name: &'a str,
    /// `Package.spec.version`.
    pub version: &'a str,
    /// Digest of values, inputs and content; see [`crate::digest`].
    pub digest: &'a str,
    /// Name of the Secret with these values; empty for a kept PackageInstall that names none.
    pub secret_name: &'a str,
    /// Whether the PackageInstall is kept as the addons-manager created it. Its judgement never releases a machine: a Secret with a
    /// fixed name does not identify the deployed values.
    pub kept: bool,
    /// Required `spec.syncPeriod` of the App if no step of the package takes values, so that nothing else in it follows the digest;
    /// see [`sync_period`](crate::packages::build::sync_period).
    pub sync_period: Option<&'a str>,
    /// API server with PackageInstall and App.
    pub judged_on: JudgedOn,
    /// Required readiness.
    pub readiness: Readiness,
    /// Step of the upgrade that needs the package.
    pub phase: Phase,
}

/// Judgement of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// Entry for the record.
    pub record: PackageRecord,
    /// Step of the upgrade that needs this package.
    pub phase: Phase,
    /// Whether it is fully reconciled, whatever the required readiness.
    pub settled: bool,
    /// Whether its PackageInstall is kept as the addons-manager created it; see [`Target::kept`].
    pub kept: bool,
    /// Whether there is a proof by complete evidence from the API servers. [`judge`] and [`judge_from_record`] know only a part of it.
    pub confirmed: bool,
}

impl Judgement {
    /// Whether the package has its proof.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.record.state == PackageState::Ready
    }

    /// Withdraws the proof, because the App [is not made from](is_made_from) its Package. A package without a proof keeps its reason.
    #[must_use]
    pub fn withdrawn_for_app(self, package: &str) -> Self {
        let message = format!("waiting for an App made from the current content of Package {package}");
        self.withdrawn(PackageReason::AppTemplateMismatch, message)
    }

    /// Withdraws the proof, because the spec of the PackageInstall is incomplete. A package without a proof keeps its reason.
    #[must_use]
    pub fn withdrawn_for_install(self) -> Self {
        let message = "waiting for the PackageInstall to have the desired spec";
        self.withdrawn(PackageReason::PackageInstallMismatch, message)
    }

    fn withdrawn(self, reason: PackageReason, message: impl Into<String>) -> Self {
        if !self.ready() && !self.settled {
            return self;
        }
        self.without_proof(PackageState::Reconciling, Hold::new(reason, message))
    }

    /// Sets the number of times that the copy of the Package or the values Secret was found altered: `so_far`, plus one if
    /// `once_more`. In the latter case the altered object may have been deployed, so the proof needs another digest.
    #[must_use]
    pub fn with_repairs(mut self, so_far: u8, once_more: bool) -> Self {
        self.record.repairs = so_far;
        if once_more {
            let message = "the copy of the Package or the values Secret was altered; Sluice deploys it again";
            self = self.without_proof(
                PackageState::Pending,
                Hold::new(PackageReason::PackageInstallPending, message),
            );
            self.record.repairs = (so_far + 1) % REPAIRS;
        }
        self
    }

    fn without_proof(self, state: PackageState, hold: Hold<PackageReason>) -> Self {
        let record = PackageRecord {
            state,
            reason: hold.reason.as_str().to_owned(),
            message: shortened(hold.message),
            app_uid: None,
            app_generation: None,
            proven_readiness: None,
            ..self.record
        };
        Self {
            record,
            settled: false,
            confirmed: false,
            ..self
        }
    }

    /// Adds to the message of a judgement by the API server that `source` differed, if `cached`, the judgement by that source, has a proof.
    /// The message of a failure stays, because it is that of kapp-controller, and so does one about inputs, which a watch cannot show.
    #[must_use]
    pub fn unlike(mut self, cached: &Self, source: &str) -> Self {
        let record = &mut self.record;
        let inputs = [
            PackageReason::AppTemplateMismatch,
            PackageReason::PackageInstallPending,
        ]
        .map(PackageReason::as_str);
        let is_of_inputs = inputs.contains(&record.reason.as_str());
        if cached.ready()
            && !is_of_inputs
            && !matches!(record.state, PackageState::Ready | PackageState::Failed)
        {
            let message = &record.message;
            record.message = shortened(format!("{message} ({source} differed from the API server)"));
        }
        self
    }

    /// Replaces the first seen run with `noted`, which a watch reported, if that is earlier. A judgement may depend on it only after it
    /// is recorded.
    #[must_use]
    pub fn noting(mut self, noted: Option<&FirstSeenRun>) -> Self {
        let record = &mut self.record;
        record.first_seen_run = record
            .first_seen_run
            .take()
            .map(|seen| first_run::earliest(noted, seen));
        self
    }
}

/// Judges a package by its PackageInstall and App, read from the API server on which it is judged.
///
/// `latch` is the recorded entry, read from the API server; a judgement that is not recorded yet never serves as one. A proof holds
/// while kapp-controller resyncs the same App at the same generation, which it does every sync period. A failure stays until the
/// package succeeds. Readiness `Applied` depends on the run with which the App was first seen.
#[must_use]
pub fn judge(
    target: &Target<'_>,
    install: Option<&PackageInstall>,
    app: Option<&App>,
    latch: Option<&PackageRecord>,
) -> Judgement {
    judge_by(CLAUSES, target, install, app, latch)
}

/// Judges a package whose PackageInstall belongs to another client, at the version that kapp-controller has selected: version constraint
/// and values are those of that client.
///
/// A recorded proof also holds while kapp-controller fails to resync the same App at the same generation, because the deployed objects
/// are still those of the version.
#[must_use]
pub fn judge_of_others(
    target: &Target<'_>,
    install: Option<&PackageInstall>,
    app: Option<&App>,
    latch: Option<&PackageRecord>,
) -> Judgement {
    judge_installed_by(InstalledBy::Others, CLAUSES, target, (install, app), latch)
}

/// Judges a package while its API server does not respond: by its recorded entry, if that is for the same target and, for a proof, the
/// required readiness.
#[must_use]
pub fn judge_from_record(target: &Target<'_>, latch: Option<&PackageRecord>) -> Judgement {
    let still_holds = |latch: &&PackageRecord| {
        latch.state != PackageState::Ready || covers(latch.proven_readiness, target.readiness)
    };
    let record = latch
        .filter(|latch| is_for(latch, target))
        .filter(still_holds)
        .cloned();
    let settled = record.as_ref().is_some_and(|record| {
        record.state == PackageState::Ready && covers(record.proven_readiness, Readiness::Reconciled)
    });
    let record = record.unwrap_or_else(|| {
        let hold = Hold::new(
            PackageReason::WorkloadUnreachable,
            "waiting for the workload cluster to answer",
        );
        PackageRecord {
            first_seen_run: run_to_keep(target, None, latch),
            ..record_of(target, PackageState::Pending, Some(hold))
        }
    });
    Judgement {
        record,
        phase: target.phase,
        settled,
        kept: target.kept,
        confirmed: false,
    }
}

fn judge_by(
    clauses: &[Clause],
    target: &Target<'_>,
    install: Option<&PackageInstall>,
    app: Option<&App>,
    latch: Option<&PackageRecord>,
) -> Judgement {
    judge_installed_by(InstalledBy::Sluice, clauses, target, (install, app), latch)
}

fn judge_installed_by(
    by: InstalledBy,
    clauses: &[Clause],
    target: &Target<'_>,
    (install, app): (Option<&PackageInstall>, Option<&App>),
    latch: Option<&PackageRecord>,
) -> Judgement {
    let (record, settled) = if let Some(install) = install {
        weigh(by, clauses, target, (install, app), latch)
    } else {
        let hold = Hold::new(
            PackageReason::PackageInstallPending,
            "waiting for the PackageInstall to be written",
        );
        (record_of(target, PackageState::Pending, Some(hold)), false)
    };
    Judgement {
        record: PackageRecord {
            first_seen_run: run_to_keep(target, app, latch),
            ..record
        },
        phase: target.phase,
        settled,
        kept: target.kept,
        confirmed: false,
    }
}

/// Returns the entry for the record, and whether the package is settled.
fn weigh(
    by: InstalledBy,
    clauses: &[Clause],
    target: &Target<'_>,
    (install, app): (&PackageInstall, Option<&App>),
    latch: Option<&PackageRecord>,
) -> (PackageRecord, bool) {
    let first = latch.and_then(|latch| latch.first_seen_run.as_ref());
    let latch = latch.filter(|latch| is_for(latch, target));
    let latched = latched(by, latch, app);
    let asked = |readiness| Evidence {
        by,
        target,
        install,
        app,
        readiness,
        latched: covers(latched, readiness),
        first,
    };
    let evidence = asked(target.readiness);
    let settled = objection(clauses, &asked(Readiness::Reconciled)).is_none();
    let record = match objection(clauses, &evidence) {
        None => PackageRecord {
            app_uid: app.and_then(|app| app.metadata.uid.clone()),
            app_generation: app.and_then(|app| app.metadata.generation),
            proven_readiness: Some(if settled {
                Readiness::Reconciled
            } else {
                target.readiness
            }),
            ..record_of(target, PackageState::Ready, None)
        },
        Some(hold) => unproven(&evidence, hold, latch),
    };
    (record, settled)
}

fn objection(clauses: &[Clause], evidence: &Evidence<'_>) -> Option<Hold<PackageReason>> {
    let clause = clauses.iter().find(|clause| !(clause.met)(evidence))?;
    Some((clause.objection)(evidence))
}

fn is_for(latch: &PackageRecord, target: &Target<'_>) -> bool {
    latch.name == target.name && latch.version == target.version && latch.values_digest == target.digest
}

/// Whether a proof of readiness `proven` suffices for readiness `asked`.
fn covers(proven: Option<Readiness>, asked: Readiness) -> bool {
    proven == Some(Readiness::Reconciled) || proven == Some(asked)
}

/// Returns the readiness that was proven at this very App and generation, unless a run has failed since. After the start of another
/// run, only `consecutiveReconcileFailures` shows the failure; a successful run resets it to 0 (`setReconcileCompleted` of v0.53.1).
fn latched(by: InstalledBy, latch: Option<&PackageRecord>, app: Option<&App>) -> Option<Readiness> {
    let (latch, app) = (latch?, app?);
    let failures = app
        .status
        .as_ref()
        .and_then(|status| status.consecutive_reconcile_failures);
    if by == InstalledBy::Sluice && failures.is_some_and(|failures| failures > 0) {
        return None;
    }
    let is_this_app = latch.state == PackageState::Ready
        && latch.app_uid.is_some()
        && latch.app_uid == app.metadata.uid
        && latch.app_generation.is_some()
        && latch.app_generation == app.metadata.generation;
    latch.proven_readiness.filter(|_| is_this_app)
}

/// Returns the first seen run of the App for the record.
fn run_to_keep(
    target: &Target<'_>,
    app: Option<&App>,
    latch: Option<&PackageRecord>,
) -> Option<FirstSeenRun> {
    let known = latch.and_then(|latch| latch.first_seen_run.as_ref());
    first_seen_run(known, app).filter(|_| target.readiness == Readiness::Applied)
}

fn unproven(
    evidence: &Evidence<'_>,
    hold: Hold<PackageReason>,
    latch: Option<&PackageRecord>,
) -> PackageRecord {
    let target = evidence.target;
    let state = state(evidence);
    let hold = match (state, hold.reason.class()) {
        (PackageState::Failed, _) => failure(evidence),
        // Right after a change the PackageInstall repeats an old failure, as it repeats an old success.
        (_, Class::Retries) => unfinished(),
        _ => hold,
    };
    // With every attempt kapp-controller changes the state from failed to reconciling and back.
    if state == PackageState::Reconciling
        && let Some(failed) = latch.filter(|latch| latch.state == PackageState::Failed)
    {
        return failed.clone();
    }
    record_of(target, state, Some(hold))
}

/// Returns the state of a package without a proof.
fn state(evidence: &Evidence<'_>) -> PackageState {
    if !specifies_the_target(evidence) || evidence.install.metadata.deletion_timestamp.is_some() {
        return PackageState::Pending;
    }
    if stopped(evidence) || !observed_install(evidence) {
        return PackageState::Applied;
    }
    let install_failed = Summary::of_install(evidence.install) == Some(Summary::ReconcileFailed);
    let at_target = evidence
        .app
        .filter(|app| app_version(app) == Some(evidence.target.version));
    match at_target {
        // A failure of the PackageInstall is its own only while no App has the target.
        None if install_failed => PackageState::Failed,
        None => PackageState::Applied,
        Some(app) if !observed_app(app) => PackageState::Applied,
        Some(app) if Summary::of_app(app) == Some(Summary::ReconcileFailed) => PackageState::Failed,
        Some(_) => PackageState::Reconciling,
    }
}

fn app_version(app: &App) -> Option<&str> {
    app.metadata
        .annotations
        .as_ref()?
        .get(annotation::PACKAGE_VERSION)
        .map(String::as_str)
}

fn record_of(target: &Target<'_>, state: PackageState, hold: Option<Hold<PackageReason>>) -> PackageRecord {
    let (reason, message) = hold.map_or_else(Default::default, |hold| {
        (hold.reason.as_str().to_owned(), shortened(hold.message))
    });
    PackageRecord {
        name: target.name.to_owned(),
        version: target.version.to_owned(),
        values_digest: target.digest.to_owned(),
        state,
        reason,
        message,
        app_uid: None,
        app_generation: None,
        proven_readiness: None,
        first_seen_run: None,
        repairs: 0,
    }
}

/// Bounds a message for the record and escapes terminal control characters.
fn shortened(message: impl AsRef<str>) -> String {
    let mut message = lines(message.as_ref(), LONGEST_MESSAGE);
    let mut end = message.len().min(LONGEST_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.truncate(end);
    message
}

#[cfg(test)]
mod tests;
