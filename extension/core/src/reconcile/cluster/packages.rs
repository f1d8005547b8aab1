//! Packages of a Cluster: planned, written where allowed, and judged.

use std::{sync::Arc, time::Duration};

use sluice_crds::{
    foreign::{App, PackageInstall},
    run::{ClusterBootstrap, SupervisorAnswer, UpgradeRecord},
};

use super::{
    Context, Interrupt, ReadPhase, Server, Step, WITH_PROBLEM, Watched,
    at_rest::AtRest,
    drift_check::{DriftCheck, check_drift},
    effects::Effects,
    evidence::{Evidence, Inputs, judge},
    failure::{refused, silent, write_refused},
    install::install,
    interrupt::{in_order, together},
    local_state::Need,
    management::{self, Ownership},
    opening::need_of_proven,
    overrides,
    plan::{Plan, Planned, plan},
    preserved,
    read::{Read, ReadPoint},
    supervisor::{self, OnSupervisor},
    validate::Validated,
    workload::{LastConnection, Reach, connect, is_current, reach, still_open},
};
use crate::events::Event;
use crate::{
    digest::DigestInputs,
    packages::bootstrap::Role,
    proof::{JudgedOn, Judgement, ProofStatus, proof_status},
    protocol::LastDriftCheck,
    reasons::{Hold, add_problem, graver},
    schedule::spread_back,
    upgrade::record::may_keep,
};

/// Minimum delay before Sluice requests a drift check again.
const SHORTEST: Duration = Duration::from_secs(10);

/// Returns the delay of a drift check without a permit, unless the Cluster gets one before. Thousands of Clusters may request one, and each of
/// them reads values first.
fn without_permit(last: LastDriftCheck, period: Duration) -> Duration {
    match last {
        LastDriftCheck::Answered => (period / 10).max(SHORTEST),
        LastDriftCheck::Unanswered => (period / 4).max(WITH_PROBLEM),
    }
}

/// PackageInstall and App of one package.
type InstallAndApp = (Option<Arc<PackageInstall>>, Option<Arc<App>>);

/// Result of the drift check of a settled Cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DriftCheckResult {
    /// No drift check ran, or it found a difference.
    Not,
    /// The drift check observed the packages, and they need no writes.
    Seen,
    /// The drift check did not reach the workload, as all others in this time.
    Unseen(Duration),
}

/// Packages of a Cluster in one reconcile.
pub(super) struct Packages {
    pub(super) planned: Vec<Planned>,
    /// Judgement of each package, in the order of `planned`.
    pub(super) judged: Vec<Judgement>,
    /// The PackageInstall of each, in the order of `planned`.
    pub(super) installs: Vec<Option<Arc<PackageInstall>>>,
    /// Delay to the next drift check, if no work is left.
    pub(super) next_drift_check: Option<Duration>,
    pub(super) drift_check: DriftCheckResult,
    pub(super) reach: Reach,
    /// Whether there is a connection to the workload.
    pub(super) connected: bool,
    pub(super) problem: Option<Hold>,
    /// Whether another client wrote a PackageInstall since its last observation; the watch will show that write.
    pub(super) conflict: bool,
    /// Whether writes wait because a gate must be closed first, or an answer recorded.
    pub(super) record_first: bool,
    /// Answer about the Supervisor of the Cluster that this reconcile has found.
    pub(super) supervisor: Option<SupervisorAnswer>,
    /// Point of the reconcile at which the contact to the workload is read. Each point has its own read.
    point: ReadPoint,
    /// UID of the workload cluster that `planned` applies to.
    pub(super) workload_uid: Option<String>,
    /// Digest of the kubeconfig of the connection, once there is one.
    pub(super) kubeconfig: Option<String>,
    /// Names of PackageInstalls whose inputs differ from those that Sluice wrote.
    pub(super) altered: Vec<String>,
    /// Installer of kapp-controller.
    pub(super) ownership: Ownership,
    /// Overrides of gates.
    pub(super) overrides: overrides::Known,
    /// Purpose of the objects that a package with a recorded proof is deployed from.
    need_of_proven: Need,
}

/// Plans and judges the packages of `bootstrap`. Returns them and whether writes are allowed.
pub(super) fn packages(
    context: &Context<'_>,
    effects: &mut Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    problem: Option<&Hold>,
    refused: Option<Hold>,
) -> Step<(Packages, bool)> {
    let record = context.facts.record();
    let stage = validated.progress.stage();
    let plan = |workload: Option<&str>, is_on_supervisor: bool| {
        let inputs = DigestInputs {
            stage,
            workload,
            ..DigestInputs::default()
        };
        let on = is_on_supervisor.then(|| OnSupervisor::of(context.facts, validated));
        plan(context, &bootstrap.spec, inputs, on.as_ref())
    };
    let is_on_supervisor = supervisor::recorded(context.facts);
    let recorded = record.and_then(|record| record.workload_uid.as_deref());
    let Plan {
        planned,
        problem: plan_problem,
        mut forbids_writes,
        ownership,
    } = plan(recorded, is_on_supervisor == Some(true))?;
    let mut packages = Packages::of(planned, recorded);
    effects.local.cache_values(&packages.planned);
    packages.ownership = ownership;
    if recorded.is_some() {
        management::report(context, effects, ownership);
    }
    // The hold of a package whose provider cannot be read takes precedence over that of the plan.
    let given = problem.cloned().or(refused);
    packages.problem = graver(given.clone(), plan_problem);
    packages.overrides = overrides::Known::of(context);
    packages.need_of_proven = need_of_proven(record, validated.steps(context.facts));
    let mut may_keep = may_keep(
        record,
        &validated.progress,
        &context.facts.cluster(),
        &context.facts.workers,
        &validated.swap,
    );
    preserved::by_record(record, may_keep, &mut packages.planned);
    match packages.at_rest(context, effects, record) {
        AtRest::For(left) => packages.next_drift_check = Some(left),
        AtRest::DriftCheckDue => packages.run_drift_check(context, effects, validated, bootstrap)?,
        AtRest::No => {}
    }
    if packages.next_drift_check.is_some() || packages.drift_check != DriftCheckResult::Not {
        effects.local.forget_observations();
        effects.disconnect = true;
        return Ok((packages, false));
    }
    if stage.is_some() && context.facts.may_be_reached() {
        packages.open(context, effects)?;
    }
    let unknown = packages.ask_supervisor(context, is_on_supervisor)?;
    let is_found = packages.supervisor.as_ref().map(|answer| answer.found);
    // A new workload, or a replaced one, needs another plan for its UID, and so does an answer.
    let needs_plan = |uid: &&str| Some(*uid) != recorded || is_found == Some(true);
    if let Some(uid) = packages.reach.uid().filter(needs_plan) {
        let there = plan(Some(uid), is_found.or(is_on_supervisor) == Some(true))?;
        // A PackageInstall of the addons-manager does not show on which workload cluster its package was deployed.
        may_keep &= recorded.is_none_or(|recorded| recorded == uid);
        packages.workload_uid = Some(uid.to_owned());
        packages.planned = there.planned;
        effects.local.cache_values(&packages.planned);
        packages.ownership = there.ownership;
        management::report(context, effects, there.ownership);
        packages.problem = graver(given, there.problem);
        forbids_writes = there.forbids_writes;
    }
    if let Some(hold) = unknown {
        add_problem(&mut packages.problem, hold);
        forbids_writes = true;
    }
    if let Err(stop) =
        preserved::compare_servers(context, may_keep, packages.connected, &mut packages.planned)
    {
        let failure = stop.failed()?;
        if failure.server == Server::Management {
            return Err(Interrupt::Failed(failure));
        }
        // A PackageInstall that cannot be compared is not written.
        add_problem(&mut packages.problem, silent(&failure));
        forbids_writes = true;
    }
    packages.record_first = packages.supervisor.is_some();
    let may_write = validated.paused.is_none()
        && problem.is_none()
        && !forbids_writes
        && !packages.record_first
        && !packages.leaves_edits(context, effects, record)
        && stage.is_some()
        && packages.workload_uid.is_some()
        && packages.reach.uid().is_some();
    packages.judge(context, effects)?;
    Ok((packages, may_write))
}

impl Packages {
    /// Returns packages that are planned, and neither written nor judged.
    pub(super) fn of(planned: Vec<Planned>, workload_uid: Option<&str>) -> Self {
        Self {
            planned,
            judged: Vec::new(),
            installs: Vec::new(),
            next_drift_check: None,
            drift_check: DriftCheckResult::Not,
            reach: Reach::creating(),
            connected: false,
            problem: None,
            conflict: false,
            record_first: false,
            supervisor: None,
            point: ReadPoint::BeforeWrites,
            workload_uid: workload_uid.map(str::to_owned),
            kubeconfig: None,
            altered: Vec::new(),
            ownership: Ownership::Managed,
            overrides: overrides::Known::default(),
            need_of_proven: Need::Nothing,
        }
    }

    /// Runs the drift check of a settled Cluster and keeps its observations. After a difference, the packages are written and judged
    /// like those of any other Cluster.
    fn run_drift_check(
        &mut self,
        context: &Context<'_>,
        effects: &mut Effects,
        validated: &Validated,
        bootstrap: &ClusterBootstrap,
    ) -> Step<()> {
        let now = context.began.instant;
        // Drift checks of other Clusters hold all permits.
        let last = effects.local.last_drift_check();
        if !context.may_check_drift(last)? {
            let (uid, period) = (
                &context.facts.owner.uid,
                context.facts.settings.sync_period.length,
            );
            let wait = spread_back(uid, without_permit(last, period));
            effects.local.drift_check_made(wait, now);
            self.next_drift_check = Some(wait);
            return Ok(());
        }
        match check_drift(context, validated, bootstrap, self)? {
            DriftCheck::AsRecorded => {
                effects.local.seen();
                let next = self.after_drift_check(context, effects);
                effects.local.drift_check_made(next, now);
                self.next_drift_check = Some(next);
            }
            DriftCheck::ToRecord => effects.local.seen(),
            DriftCheck::Differs(what) => {
                effects.local.seen();
                // Earlier checks over this connection are outdated.
                effects.local.forget_checks();
                self.drift_check = DriftCheckResult::Not;
                let event = what.map(|what| Event::Said("DriftFound", what));
                effects.events.extend(event);
            }
            DriftCheck::Unseen(hold) => {
                self.drift_check = DriftCheckResult::Unseen(effects.local.unseen(now));
                self.reach = Reach::NotYet(hold);
                self.judge(context, effects)?;
            }
        }
        Ok(())
    }

    /// Returns the delay to the next drift check after one that observed the packages.
    pub(super) fn after_drift_check(&self, context: &Context<'_>, effects: &mut Effects) -> Duration {
        let facts = context.facts;
        let proven = self.judged.iter().all(Judgement::ready);
        let (uid, period) = (&facts.owner.uid, facts.settings.sync_period);
        effects
            .local
            .next_drift_check(uid, proven, period, context.began.instant)
    }

    /// Writes the packages as far as possible now, and judges them again.
    pub(super) fn install(&mut self, context: &Context<'_>, effects: &mut Effects) -> Step<()> {
        self.write(context, effects)?;
        // The connection may be lost since the first read.
        self.point = ReadPoint::BeforeJudging;
        self.reach(context, effects)?;
        self.judge(context, effects)
    }

    /// Opens the connection to the workload, and reads the identity of its API server.
    fn open(&mut self, context: &Context<'_>, effects: &mut Effects) -> Step<()> {
        if let Err(stop) = self.contact(context, effects) {
            self.reach = Reach::NotYet(stop.held()?);
            effects.disconnect = true;
            self.connected = false;
        }
        let refused = match self.reach.uid() {
            Some(uid) => management::refused(context, uid)?,
            None => None,
        };
        let recorded = context
            .facts
            .record()
            .and_then(|record| record.workload_uid.as_deref());
        let is_another = recorded.is_some() && recorded != self.reach.uid();
        if let Some(hold) = refused {
            // Its watches show objects that belong to others.
            effects.disconnect = true;
            self.connected = false;
            // Silence keeps some gates open, but this server responds, and is another one.
            if is_another {
                self.problem = Some(hold.clone());
            }
            self.reach = Reach::NotYet(hold);
        }
        Ok(())
    }

    /// Reads the contact to the workload over the open connection, or over a new one.
    ///
    /// # Errors
    /// Returns a [`Hold`] for a kubeconfig that an operator must correct first.
    fn contact(&mut self, context: &Context<'_>, effects: &mut Effects) -> Step<()> {
        let open = still_open(context, self.kubeconfig.as_deref())?;
        let connected = match &open {
            Some(open) => open.clone(),
            None => connect(context, &context.facts.owner, Read::Connection)?,
        };
        effects.local.use_connection(connected.number);
        self.connected = true;
        self.reach(context, effects)?;
        // Credentials or address may have changed: an unread kubeconfig is no explanation for a server that does not serve.
        let is_doubtful = self.reach.uid().is_none() || context.is_refused_by_workload();
        if open.is_some() && is_doubtful && !is_current(context, &connected.digest, ReadPhase::Plan)? {
            self.lose(effects);
            return Ok(());
        }
        let read_at = match &context.local.connection {
            Some(last) if open.is_some() && !is_doubtful => last.read_at,
            _ => context.began.instant,
        };
        self.kubeconfig = Some(connected.digest.clone());
        effects.local.connection = Some(LastConnection { connected, read_at });
        Ok(())
    }

    /// Asks whether the Cluster is on a Supervisor, without a `recorded` answer, once the workload responds: then its machines exist.
    /// Returns the hold without a definite answer.
    fn ask_supervisor(&mut self, context: &Context<'_>, recorded: Option<bool>) -> Step<Option<Hold>> {
        if recorded.is_some() || self.reach.uid().is_none() {
            return Ok(None);
        }
        match supervisor::ask(context) {
            Ok(answer) => {
                self.supervisor = Some(answer);
                Ok(None)
            }
            Err(stop) => stop.held().map(Some),
        }
    }

    /// Reads the contact to the workload.
    fn reach(&mut self, context: &Context<'_>, effects: &mut Effects) -> Step<()> {
        if self.connected {
            self.reach = reach(context, self.point)?;
            if matches!(self.reach, Reach::Lost(_)) {
                self.lose(effects);
            }
        }
        Ok(())
    }

    /// Closes the connection; the next reconcile opens another one.
    pub(super) fn lose(&mut self, effects: &mut Effects) {
        effects.disconnect = true;
        self.connected = false;
        self.reach = Reach::lost();
    }

    /// Returns the purpose of the objects that a package is deployed from.
    fn need(&self, record: Option<&UpgradeRecord>, planned: &Planned) -> Need {
        if is_recorded(record, planned) {
            self.need_of_proven
        } else {
            Need::Proof
        }
    }

    /// Writes stage 0, then the others. kapp-controller gives the proof of all others, so nothing of a hop is written to the workload
    /// before kapp-controller itself is proven.
    fn write(&mut self, context: &Context<'_>, effects: &mut Effects) -> Step<()> {
        let is_first = |planned: &&Planned| planned.role == Role::KappController;
        let record = context.facts.record();
        for planned in self.planned.iter().filter(is_first) {
            let mut altered = false;
            let need = self.need(record, planned);
            let written = install(context, &mut effects.local, planned, need, &mut altered);
            if altered {
                self.altered.push(planned.install_name.clone());
            }
            match written {
                Ok(()) => {}
                Err(Interrupt::Failed(failure))
                    // After 404 and 409 the cache is behind; with 429, 503 and 504, or without a code, the server cannot respond now. A
                    // later reconcile retries these.
                    if failure
                        .code
                        .is_some_and(|code| !matches!(code, 404 | 409 | 429 | 503 | 504)) =>
                {
                    self.problem = Some(write_refused(&planned.package_name, "management", &failure));
                    return Ok(());
                }
                Err(stop) => return Err(stop),
            }
        }
        if !self.kapp_controller_is_proven(context, effects)? {
            return Ok(());
        }
        let others: Vec<&Planned> = self.planned.iter().filter(|planned| !is_first(planned)).collect();
        let mut altered = Vec::new();
        let outcomes = together(others.iter().map(|planned| {
            let need = self.need(record, planned);
            // Before the first list the need for a write is unknown. A package without a recorded proof is written anyway: the API server
            // refuses a write computed from an outdated store with 409.
            if need != Need::Proof && self.stores_are_filling(context, effects, planned)? {
                return Ok(());
            }
            let mut is_altered = false;
            let outcome = install(context, &mut effects.local, planned, need, &mut is_altered);
            if is_altered {
                altered.push(planned.install_name.clone());
            }
            outcome
        }))?;
        // Record all alterations, also if the write of another package fails: a repaired object is not found altered again.
        self.altered.extend(altered);
        let (conflict, ownership) = (&mut self.conflict, self.ownership);
        let written = in_order(others.into_iter().zip(outcomes).map(|(planned, outcome)| {
            let failure = match outcome {
                Err(Interrupt::Failed(failure)) => failure,
                outcome => return outcome,
            };
            if failure.is_conflict() {
                *conflict = true;
                return Ok(());
            }
            if failure.is_not_found() {
                // Its namespace or its kind is gone, and possibly more objects.
                effects.local.forget_checks();
            }
            let missing = management::not_installed(ownership, &failure);
            Err(missing
                .unwrap_or_else(|| refused(&planned.package_name, &failure))
                .into())
        }));
        if let Err(stop) = written {
            self.problem = Some(stop.held()?);
        }
        Ok(())
    }

    fn kapp_controller_is_proven(&self, context: &Context<'_>, effects: &mut Effects) -> Step<bool> {
        let is_first = |planned: &&Planned| planned.role == Role::KappController;
        let mut first = self.planned.iter().filter(is_first);
        first.try_fold(true, |all, planned| {
            let (judged, _) = self.judge_one(context, effects, planned)?;
            Ok(all && judged.ready())
        })
    }

    /// Judges each package from the watches.
    pub(super) fn judge(&mut self, context: &Context<'_>, effects: &mut Effects) -> Step<()> {
        let each = self
            .planned
            .iter()
            .map(|planned| self.judge_one(context, effects, planned));
        let each: Vec<_> = together(each)?.into_iter().collect::<Step<_>>()?;
        (self.judged, self.installs) = each.into_iter().unzip();
        Ok(())
    }

    /// Judges a package from the watches. Returns its PackageInstall as well.
    fn judge_one(
        &self,
        context: &Context<'_>,
        effects: &mut Effects,
        planned: &Planned,
    ) -> Step<(Judgement, Option<Arc<PackageInstall>>)> {
        let watched = self.watched(context, planned)?;
        let (install, app) = watched.map_or((None, None), |watched| {
            (watched.install.as_ref(), watched.app.as_deref())
        });
        // Unfilled stores may miss objects.
        let answers = self.server_answered(planned) && !self.stores_are_filling(context, effects, planned)?;
        let evidence = Evidence {
            objects: answers.then_some((install.map(AsRef::as_ref), app)),
            first_seen_run: watched.and_then(|watched| watched.first_seen.as_ref()),
            // Secrets and copies have no watch, and the cached App lacks the steps to compare.
            inputs: Inputs::UNKNOWN,
            altered: self.altered.contains(&planned.install_name),
        };
        let judged = judge(context.facts, self.reach.uid(), planned, &evidence);
        Ok((judged, install.cloned()))
    }

    /// Returns the hold of drift checks that do not reach the workload, if more than one failed.
    pub(super) fn unseen(&self) -> Option<&Hold> {
        match (&self.drift_check, &self.reach) {
            (DriftCheckResult::Unseen(time), Reach::NotYet(hold)) => Some(hold).filter(|_| !time.is_zero()),
            _ => None,
        }
    }

    /// Whether this reconcile reached the server that a package is judged on.
    fn server_answered(&self, planned: &Planned) -> bool {
        planned.judged_on() == JudgedOn::Management || self.reach.uid().is_some()
    }

    /// Whether the connection that a package is judged on is new, and its stores are not filled yet.
    fn stores_are_filling(
        &self,
        context: &Context<'_>,
        effects: &mut Effects,
        planned: &Planned,
    ) -> Step<bool> {
        if planned.server() == Server::Management || !self.connected {
            return Ok(false);
        }
        let filled = context.watched(planned.server(), &planned.install_name)?.filled;
        Ok(effects.local.awaits_first_lists(!filled, context.began.instant))
    }

    /// Whether a package without a known PackageInstall certainly has none.
    pub(super) fn absence_is_known(&self, context: &Context<'_>, planned: &Planned) -> Step<bool> {
        if self.drift_check == DriftCheckResult::Seen {
            return Ok(true);
        }
        if !self.server_answered(planned) {
            return Ok(false);
        }
        let watched = context.watched(planned.server(), &planned.install_name)?;
        Ok(watched.filled)
    }

    /// Returns the cached objects of a package; `None` for a package of the workload without a connection.
    pub(super) fn watched<'c>(
        &self,
        context: &'c Context<'_>,
        planned: &Planned,
    ) -> Step<Option<&'c Watched>> {
        match planned.server() {
            Server::Workload if !self.connected => Ok(None),
            server => context.watched(server, &planned.install_name).map(Some),
        }
    }
}

/// Whether the record holds the proof of exactly this package.
fn is_recorded(record: Option<&UpgradeRecord>, planned: &Planned) -> bool {
    record.is_some_and(|record| {
        record.packages.iter().any(|record| {
            proof_status(std::slice::from_ref(record), std::iter::once(planned.target()))
                == ProofStatus::Proven
        })
    })
}

/// Returns PackageInstall and App of a package from the watches.
pub(super) fn watched(context: &Context<'_>, planned: &Planned) -> Step<InstallAndApp> {
    let watched = context.watched(planned.server(), &planned.install_name)?;
    Ok((watched.install.clone(), watched.app.clone()))
}
