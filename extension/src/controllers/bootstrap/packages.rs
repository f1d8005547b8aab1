//! Step 3 and 4 for the packages: build them, write them where somebody may, and judge how far they are.

use std::sync::Arc;

use jiff::Timestamp;
use kube::{
    Api,
    api::ListParams,
    runtime::reflector::{ObjectRef, Store},
};
use sluice_core::{
    bootstrap::Role,
    digest::Ground,
    hold::{Hold, HoldReason},
    proof::{JudgedOn, Judgement, judge, unseen},
    record::{Workload, latch},
};
use sluice_crds::{
    foreign::{App, PackageInstall},
    run::{ClusterBootstrap, Outcome, PackageState, UpgradeRecord},
};
use tracing::warn;

use super::{
    Context, Error, apply, ask_again, chain,
    dereference::Found,
    provider,
    targets::{self, Planned},
    validate::Validated,
    workload,
};
use crate::remote::{Contact, Remote};

/// How the workload cluster answers.
#[derive(Debug, Clone)]
pub(super) enum Reach {
    NotYet(Hold),
    Unreachable { since: Timestamp },
    Reached { uid: String },
}

impl Reach {
    /// The same for the record.
    pub(super) fn seen(&self) -> Workload<'_> {
        match self {
            Self::NotYet(hold) => Workload::NotYet(hold.clone()),
            Self::Unreachable { since } => Workload::Unreachable { since: *since },
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
    /// Whether the record says that all is done, so that nothing was looked at.
    pub(super) settled: bool,
    pub(super) reach: Reach,
    pub(super) remote: Option<Arc<Remote>>,
    pub(super) problem: Option<Hold>,
    /// UID of the workload that `planned` is for.
    workload_uid: Option<String>,
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
            installer: None,
        };
        targets::plan(ctx, &found.owner, &bootstrap.spec, &found.catalogue, ground).await
    };
    let recorded = record.and_then(|record| record.workload_uid.as_deref());
    let (planned, mut missing) = plan(recorded).await?;
    let waiting = missing
        .as_ref()
        .is_some_and(|hold| hold.reason == HoldReason::ValuesNotReady);
    if waiting && validated.paused.is_none() {
        let refused = provider::label(&ctx.client, &found.owner.namespace, &bootstrap.spec).await?;
        missing = refused.or(missing);
    }
    let mut packages = Packages {
        planned,
        judged: Vec::new(),
        installs: Vec::new(),
        settled: false,
        reach: Reach::NotYet(Hold::new(
            HoldReason::ControlPlaneCreating,
            "waiting for the control plane",
        )),
        remote: None,
        problem: problem.clone().or(missing),
        workload_uid: recorded.map(str::to_owned),
    };
    if packages.is_settled(record) {
        ctx.remotes.close(&found.owner.uid);
        packages.settled = true;
        return Ok(packages);
    }
    if stage.is_some() {
        match workload::connect(ctx, &found.owner).await? {
            Ok(remote) => {
                packages.reach = reach(&remote).await;
                packages.remote = Some(remote);
            }
            Err(hold) => packages.reach = Reach::NotYet(hold),
        }
    }
    // On a workload that was never seen before, or is another one by now, everything is asked for anew.
    if let Some(uid) = packages.reach.uid().filter(|uid| Some(*uid) != recorded) {
        let (planned, missing) = plan(Some(uid)).await?;
        packages.workload_uid = Some(uid.to_owned());
        packages.planned = planned;
        packages.problem = problem.or(missing);
    }
    let may_write = validated.paused.is_none()
        && packages.problem.is_none()
        && stage.is_some()
        && packages.workload_uid.is_some();
    if may_write && packages.remote.is_some() {
        packages.write(ctx, found).await?;
    }
    packages.look(ctx, found, record).await;
    if may_write {
        ask_again::run(ctx, &found.owner, packages.remote.as_deref(), &packages).await;
    }
    Ok(packages)
}

impl Packages {
    /// Whether the record already says that exactly these packages are proven and all is done.
    fn is_settled(&self, record: Option<&UpgradeRecord>) -> bool {
        let Some(record) =
            record.filter(|record| record.outcome == Some(Outcome::Completed) && self.problem.is_none())
        else {
            return false;
        };
        record.packages.len() == self.planned.len()
            && record
                .packages
                .iter()
                .zip(&self.planned)
                .all(|(record, planned)| {
                    let target = planned.target();
                    record.state == PackageState::Ready
                        && (
                            record.name.as_str(),
                            record.version.as_str(),
                            record.values_digest.as_str(),
                        ) == (target.name, target.version, target.digest)
                })
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
            apply::on_management(ctx, &found.owner, planned).await?;
        }
        if !self.kapp_controller_is_proven(ctx, found) {
            return Ok(());
        }
        for planned in self
            .planned
            .iter()
            .filter(|planned| planned.role != Role::KappController)
        {
            if let Err(error) = apply::on_workload(ctx, &found.owner, &remote, planned).await {
                self.problem = Some(refused(planned, &error));
                break;
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
        if let Some(remote) = &self.remote {
            self.reach = reach(remote).await;
        }
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
            // A store that lost its server is old: what was proven stays so until the record lets go of it.
            let silent = planned.judged_on() == JudgedOn::Workload && uid.is_none();
            self.judged.push(if silent {
                unseen(&target, latch)
            } else {
                judge(&target, install.as_deref(), app.as_deref(), latch)
            });
            self.installs.push(install);
        }
    }

    /// Judges every package from the servers themselves: what a watch shows may be old.
    pub(super) async fn confirm(&mut self, ctx: &Context, found: &Found) -> Result<(), Error> {
        let Some(remote) = self.remote.clone() else {
            return Ok(());
        };
        let namespace = &ctx.settings.system_namespace;
        let fresh = async {
            let uid = remote.read_uid().await?;
            let everything = ListParams::default();
            let installs = Api::<PackageInstall>::namespaced(remote.client.clone(), namespace)
                .list(&everything)
                .await?;
            let apps = Api::<App>::namespaced(remote.client.clone(), namespace)
                .list(&everything)
                .await?;
            Ok::<_, kube::Error>((uid, installs.items, apps.items))
        };
        let (uid, installs, apps) = match fresh.await {
            Ok(fresh) => fresh,
            Err(error) => {
                self.reach = Reach::NotYet(silent(&error));
                return Ok(());
            }
        };
        if self.workload_uid.as_deref() != Some(uid.as_str()) {
            self.reach = Reach::NotYet(Hold::new(
                HoldReason::WorkloadUnreachable,
                "another workload API server answers than a moment ago",
            ));
            return Ok(());
        }
        self.reach = Reach::Reached { uid };
        let beside_cluster = &found.owner.namespace;
        let own_installs = Api::<PackageInstall>::namespaced(ctx.client.clone(), beside_cluster);
        let own_apps = Api::<App>::namespaced(ctx.client.clone(), beside_cluster);
        for (planned, judged) in self.planned.iter().zip(&mut self.judged) {
            let name = &planned.install_name;
            let (install, app) = if planned.judged_on() == JudgedOn::Management {
                (own_installs.get_opt(name).await?, own_apps.get_opt(name).await?)
            } else {
                let named = |metadata: &kube::core::ObjectMeta| metadata.name.as_ref() == Some(name);
                (
                    installs.iter().find(|install| named(&install.metadata)).cloned(),
                    apps.iter().find(|app| named(&app.metadata)).cloned(),
                )
            };
            *judged = judge(
                &planned.target(),
                install.as_ref(),
                app.as_ref(),
                Some(&judged.record),
            );
        }
        Ok(())
    }
}

async fn reach(remote: &Remote) -> Reach {
    if let Contact::Silent(since) = remote.contact() {
        return Reach::Unreachable { since };
    }
    match remote.uid().await {
        Ok(uid) => Reach::Reached { uid: uid.to_owned() },
        Err(error) => Reach::NotYet(silent(&error)),
    }
}

fn silent(error: &kube::Error) -> Hold {
    // What went wrong in detail changes from try to try, and the message of a hold must not.
    warn!(error = %chain(error), "Reaching a workload API server");
    Hold::new(
        HoldReason::WorkloadUnreachable,
        "the workload API server does not answer",
    )
}

fn refused(planned: &Planned, error: &Error) -> Hold {
    let Error::Management(error) = error;
    let package = &planned.package_name;
    match error {
        // The package API is served by the kapp-controller that has just been installed or restarted.
        kube::Error::Api(status) if matches!(status.code, 404 | 503) => Hold::new(
            HoldReason::KappControllerRestarting,
            "waiting for kapp-controller to serve the package API",
        ),
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 413 | 422) => Hold::new(
            HoldReason::WriteRefused,
            format!(
                "the workload API server refuses package {package}: {}",
                status.message
            ),
        ),
        error => silent(error),
    }
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
