//! Step 3 and 4 for the packages: build them, write them where that is allowed, and judge how far they are.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kube::runtime::reflector::{ObjectRef, Store};
use sluice_core::{
    bootstrap::Role,
    digest::Ground,
    hold::{Hold, HoldReason},
    proof::{JudgedOn, Judgement, Standing, judge, standing, unseen},
    record::{Workload, latch},
};
use sluice_crds::{
    foreign::{App, PackageInstall},
    run::{ClusterBootstrap, FirstSeenRun, UpgradeRecord},
};

use super::{
    Context, Error, apply, ask_again,
    confirm::{self, Look},
    dereference::Found,
    provider,
    record_first::closes_a_gate,
    refusal::{SILENT, refused, silent, write_refused},
    targets::{self, Plan, Planned},
    validate::Validated,
    workload,
};
use crate::remote::{Contact, Need, Remote, Served, Unread};

/// A connection that was silent for so long is opened again once the server answers.
const REOPEN_AFTER: SignedDuration = SignedDuration::from_secs(15);

/// How the workload cluster answers.
#[derive(Debug, Clone)]
pub(super) enum Reach {
    NotYet(Hold),
    Unreachable { since: Timestamp, hold: Hold },
    Reached { uid: String },
}

impl Reach {
    /// The same for the record.
    pub(super) fn seen(&self) -> Workload<'_> {
        match self {
            Self::NotYet(hold) => Workload::NotYet(hold.clone()),
            Self::Unreachable { since, hold } => Workload::Unreachable {
                since: *since,
                hold: hold.clone(),
            },
            Self::Reached { uid } => Workload::Reached { uid },
        }
    }

    fn uid(&self) -> Option<&str> {
        match self {
            Self::Reached { uid } => Some(uid),
            _ => None,
        }
    }
}

/// The packages of a cluster after a pass.
pub(super) struct Packages {
    pub(super) planned: Vec<Planned>,
    /// How far each is, in the order of `planned`.
    pub(super) judged: Vec<Judgement>,
    /// The PackageInstall of each, in the order of `planned`.
    pub(super) installs: Vec<Option<Arc<PackageInstall>>>,
    /// When to look again, if the record says that all is done, so that nothing was looked at.
    pub(super) settled: Option<Duration>,
    pub(super) reach: Reach,
    pub(super) remote: Option<Arc<Remote>>,
    pub(super) problem: Option<Hold>,
    /// Whether a PackageInstall was written by another client since it was last seen; that write is on its way.
    pub(super) conflict: bool,
    /// Whether nothing was written because a gate has to be closed before.
    pub(super) record_first: bool,
    /// UID of the workload that `planned` is for.
    workload_uid: Option<String>,
    /// Names of the PackageInstalls that were deployed from something else than was written for them.
    altered: Vec<String>,
}

/// Brings the packages of `bootstrap` to where they shall be, as far as that is possible now.
pub(super) async fn run(
    ctx: &Context,
    found: &Found,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    problem: Option<Hold>,
) -> Result<Packages, Error> {
    let stage = validated.progress.stage();
    let record = found.record();
    let plan = async |workload: Option<&str>| {
        let ground = Ground {
            stage,
            workload,
            ..Ground::default()
        };
        targets::plan(
            ctx,
            &found.owner,
            &bootstrap.spec,
            &found.catalogue,
            ground,
            record,
        )
        .await
    };
    let recorded = record.and_then(|record| record.workload_uid.as_deref());
    let Plan {
        planned,
        problem: mut missing,
        mut stops,
    } = plan(recorded).await?;
    let waiting = missing
        .as_ref()
        .is_some_and(|hold| hold.reason == HoldReason::ValuesNotReady);
    if waiting && validated.paused.is_none() && problem.is_none() {
        let refused = provider::label(&ctx.client, &found.owner.namespace, &bootstrap.spec).await?;
        missing = refused.or(missing);
    }
    let mut packages = Packages {
        planned,
        judged: Vec::new(),
        installs: Vec::new(),
        settled: None,
        reach: Reach::NotYet(Hold::new(
            HoldReason::ControlPlaneCreating,
            "waiting for the control plane",
        )),
        remote: None,
        problem: problem.clone().or(missing),
        conflict: false,
        record_first: false,
        workload_uid: recorded.map(str::to_owned),
        altered: Vec::new(),
    };
    packages.settled = packages.is_settled(ctx, &found.owner.uid, record);
    if packages.settled.is_some() {
        ctx.remotes.close(&found.owner.uid);
        return Ok(packages);
    }
    if stage.is_some() {
        match workload::connect(ctx, &found.owner).await? {
            Ok(remote) => {
                packages.remote = Some(remote);
                packages.reach(ctx, found).await;
            }
            Err(hold) => packages.reach = Reach::NotYet(hold),
        }
    }
    // On a workload that was never seen before, or is another one by now, everything is asked for anew.
    if let Some(uid) = packages.reach.uid().filter(|uid| Some(*uid) != recorded) {
        let there = plan(Some(uid)).await?;
        packages.workload_uid = Some(uid.to_owned());
        packages.planned = there.planned;
        packages.problem = problem.clone().or(there.problem);
        stops = there.stops;
    }
    let may_write = validated.paused.is_none()
        && problem.is_none()
        && !stops
        && !packages.leaves_edits(ctx, &found.owner.uid, record)
        && stage.is_some()
        && packages.workload_uid.is_some()
        && packages.reach.uid().is_some();
    packages.look(ctx, found, record).await;
    if may_write && packages.remote.is_some() && packages.reach.uid().is_some() {
        packages.record_first = closes_a_gate(ctx, found, validated, bootstrap, &packages);
        if packages.record_first {
            return Ok(packages);
        }
        packages.write(ctx, found).await?;
        packages.look(ctx, found, record).await;
    }
    if may_write {
        ask_again::run(ctx, &found.owner, packages.remote.as_deref(), &packages).await;
    }
    Ok(packages)
}

impl Packages {
    /// Asks whose data the workload API server serves. The connection to one that serves other data than before is closed:
    /// its stores are not theirs. The next pass opens another one, and everything is asked for again.
    async fn reach(&mut self, ctx: &Context, found: &Found) {
        let Some(remote) = &self.remote else { return };
        if remote.has_ended() {
            return self.lose(ctx, found);
        }
        if let Contact::Silent(since) = remote.contact() {
            // A watch that resumes says nothing until something changes, but it was answered.
            let silent_for = Timestamp::now().duration_since(since);
            // Where the clock was set back the time is not known.
            let silent_for = if silent_for.is_negative() {
                REOPEN_AFTER
            } else {
                silent_for
            };
            let answered = Duration::try_from(silent_for).is_ok_and(|time| remote.has_answered_within(time));
            if silent_for >= REOPEN_AFTER && answered {
                return self.lose(ctx, found);
            }
            let hold = Hold::new(HoldReason::WorkloadUnreachable, SILENT);
            self.reach = Reach::Unreachable { since, hold };
            return;
        }
        if let Some(why) = remote.given_up() {
            let message =
                format!("PackageInstalls or Apps of the workload cluster cannot be kept in memory: {why}");
            self.reach = Reach::NotYet(Hold::new(HoldReason::WorkloadUnreachable, message));
            return;
        }
        self.reach = match remote.served().await {
            Ok(Served::Same(uid)) => Reach::Reached { uid },
            Ok(Served::Replaced) => return self.lose(ctx, found),
            Err(Unread { since, source }) => {
                let hold = silent(&source);
                match since {
                    None => Reach::NotYet(hold),
                    Some(since) => Reach::Unreachable { since, hold },
                }
            }
        };
    }

    /// Closes the connection; the next pass opens another one.
    fn lose(&mut self, ctx: &Context, found: &Found) {
        ctx.remotes.close(&found.owner.uid);
        self.remote = None;
        self.reach = Reach::NotYet(Hold::new(
            HoldReason::WorkloadUnreachable,
            "opening another connection to the workload API server",
        ));
    }

    /// Stage 0, then the others. kapp-controller is what gives the proof of all others, so nothing of a hop is written to
    /// the workload before it is proven itself.
    async fn write(&mut self, ctx: &Context, found: &Found) -> Result<(), Error> {
        let Some(remote) = self.remote.clone() else {
            return Ok(());
        };
        for planned in self
            .planned
            .iter()
            .filter(|planned| planned.role == Role::KappController)
        {
            let need = need(found.record(), planned);
            let written = apply::on_management(ctx, &found.owner, &remote, planned, need).await;
            if matches!(written, Ok(true)) {
                self.altered.push(planned.install_name.clone());
            }
            if let Err(error) = written {
                let Error::Management(kube::Error::Api(status)) = &error else {
                    return Err(error);
                };
                // What was seen is not what is there, or the server asks for patience.
                if matches!(status.code, 404 | 409 | 429 | 503 | 504) {
                    return Err(error);
                }
                self.problem = Some(write_refused(planned, "management", status));
                return Ok(());
            }
        }
        if !self.kapp_controller_is_proven(ctx, found) {
            return Ok(());
        }
        for planned in self
            .planned
            .iter()
            .filter(|planned| planned.role != Role::KappController)
        {
            let need = need(found.record(), planned);
            match apply::on_workload(ctx, &found.owner, &remote, planned, need).await {
                Ok(false) => {}
                Ok(true) => self.altered.push(planned.install_name.clone()),
                Err(error) if error.is_conflict() => self.conflict = true,
                Err(error) => {
                    if error.is_not_found() {
                        // Its namespace or its kind is gone, and maybe more.
                        remote.forget_ensured();
                    }
                    let Error::Management(answer) = &error else {
                        return Err(error);
                    };
                    self.problem = Some(refused(planned, answer));
                    break;
                }
            }
        }
        Ok(())
    }

    fn kapp_controller_is_proven(&self, ctx: &Context, found: &Found) -> bool {
        self.planned
            .iter()
            .filter(|planned| planned.role == Role::KappController)
            .all(|planned| {
                let target = planned.target();
                let record = found.record();
                let latch = record
                    .and_then(|record| record.workload_uid.as_deref())
                    .and_then(|uid| latch(record, uid, target.name));
                let (install, app) = on_management(ctx, found, planned);
                judge(&target, install.as_deref(), app.as_deref(), latch).ready()
            })
    }

    /// Judges every package from the watches.
    async fn look(&mut self, ctx: &Context, found: &Found, record: Option<&UpgradeRecord>) {
        self.reach(ctx, found).await;
        self.judged.clear();
        self.installs.clear();
        let uid = self.reach.uid().map(str::to_owned);
        for planned in &self.planned {
            let target = planned.target();
            // Proof given by another API server is none on this one; one that is silent is asked about its last word.
            let last = record.and_then(|record| record.workload_uid.as_deref());
            let latch = uid
                .as_deref()
                .or(last)
                .and_then(|uid| latch(record, uid, target.name));
            let (install, app) = match (planned.judged_on(), &self.remote) {
                (JudgedOn::Management, _) => on_management(ctx, found, planned),
                (JudgedOn::Workload, Some(remote)) => {
                    let key = (&planned.install_name, ctx.settings.system_namespace.as_str());
                    (get(&remote.installs, key), get(&remote.apps, key))
                }
                (JudgedOn::Workload, None) => (None, None),
            };
            let noted = self.noted(planned);
            // A store that lost its server is old: what was proven stays so until the record lets go of it.
            let judged = if self.sees(planned) {
                judge(&target, install.as_deref(), app.as_deref(), latch).noting(noted.as_ref())
            } else {
                unseen(&target, latch)
            };
            let altered = self.altered.contains(&planned.install_name);
            self.judged.push(judged.with_repairs(planned.repairs, altered));
            self.installs.push(install);
        }
    }

    /// Whether the server that says how far a package is was reached in this pass.
    pub(super) fn sees(&self, planned: &Planned) -> bool {
        planned.judged_on() == JudgedOn::Management || self.reach.uid().is_some()
    }

    /// Whether a package of which no PackageInstall is known has none.
    pub(super) fn shows(&self, planned: &Planned) -> bool {
        let is_filled = || self.remote.as_ref().is_some_and(|remote| remote.is_filled());
        self.sees(planned) && (planned.judged_on() == JudgedOn::Management || is_filled())
    }

    /// The run that the watch of the workload's Apps showed first.
    fn noted(&self, planned: &Planned) -> Option<FirstSeenRun> {
        let remote = self.remote.as_ref()?;
        remote
            .first_seen_run(&planned.install_name)
            .filter(|_| planned.judged_on() == JudgedOn::Workload)
    }

    /// Judges every package from the servers themselves: what a watch shows may be old. What was judged from the watch is not
    /// recorded yet, so it is no latch.
    pub(super) async fn confirm(
        &mut self,
        ctx: &Context,
        found: &Found,
        validated: &Validated,
        bootstrap: &ClusterBootstrap,
    ) -> Result<(), Error> {
        let Some(remote) = self.remote.clone() else {
            return Ok(());
        };
        let namespace = &ctx.settings.system_namespace;
        let mut fresh = match confirm::read_workload(&remote, namespace, &self.planned).await {
            Ok(fresh) => fresh,
            Err(error) => {
                self.reach = Reach::NotYet(silent(&error));
                return Ok(());
            }
        };
        if self.workload_uid.as_deref() != Some(fresh.uid.as_str()) {
            self.lose(ctx, found);
            return Ok(());
        }
        confirm::read_management(&ctx.client, &found.owner.namespace, &self.planned, &mut fresh).await?;
        let looks = confirm::look(ctx, &found.owner, &remote, &bootstrap.spec, &self.planned, &fresh).await?;
        let record = found.record();
        let judged = self.planned.iter().zip(&looks).map(|(planned, look)| {
            let target = planned.target();
            let latch = latch(record, &fresh.uid, target.name);
            let (install, app) = fresh
                .of(planned)
                .map_or((None, None), |pair| (pair.install.as_ref(), pair.app.as_ref()));
            let judged = judge(&target, install, app, latch).noting(self.noted(planned).as_ref());
            let judged = match look {
                Look::NotMade => judged.not_made_from(&planned.package_name),
                _ => judged,
            };
            let altered = self.altered.contains(&planned.install_name) || *look == Look::Altered;
            judged.with_repairs(planned.repairs, altered)
        });
        self.judged = judged.collect();
        self.reach = Reach::Reached { uid: fresh.uid };
        let mut looks = self.planned.iter().zip(looks);
        if let Some((changed, _)) = looks.find(|(_, look)| matches!(look, Look::Changed | Look::Altered)) {
            // Whatever was altered is looked for, and put right, in the next pass.
            remote.forget_ensured();
            let package = &changed.package_name;
            let message = format!("package {package} was changed while its proof was looked at");
            let changed = Hold::new(HoldReason::PackagesUnknown, message);
            self.problem.get_or_insert(changed);
        }
        if let Ok(release) = &validated.release
            && !confirm::is_template_current(ctx, release).await?
        {
            let message = format!("the template of {release} was changed while its packages were looked at");
            let changed = Hold::new(HoldReason::PackagesUnknown, message);
            self.problem.get_or_insert(changed);
        }
        Ok(())
    }
}

/// What the things are needed for that a package is deployed from.
fn need(record: Option<&UpgradeRecord>, planned: &Planned) -> Need {
    let rests =
        |record: &UpgradeRecord| record.outcome.is_none() && record.gates.iter().any(|gate| gate.open);
    if !is_recorded(record, planned) {
        Need::Proof
    } else if record.is_some_and(rests) {
        Need::OpenGate
    } else {
        Need::Nothing
    }
}

/// Whether the record has the proof of exactly this package.
fn is_recorded(record: Option<&UpgradeRecord>, planned: &Planned) -> bool {
    record.is_some_and(|record| {
        record.packages.iter().any(|record| {
            standing(std::slice::from_ref(record), std::iter::once(planned.target())) == Standing::Proven
        })
    })
}

fn on_management(
    ctx: &Context,
    found: &Found,
    planned: &Planned,
) -> (Option<Arc<PackageInstall>>, Option<Arc<App>>) {
    let key = (&planned.install_name, found.owner.namespace.as_str());
    (get(&ctx.stores.installs, key), get(&ctx.stores.apps, key))
}

fn get<K>(store: &Store<K>, (name, namespace): (&String, &str)) -> Option<Arc<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    store.get(&ObjectRef::new(name).within(namespace))
}
