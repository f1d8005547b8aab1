//! Disturbances as they happen, and how each is taken back.

use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::bump;
use super::disturbance::Kind;
use super::judge::Withdrawal;
use super::plan::Planned;
use super::run::WORKERS;
use super::subject::{Found, Subject};
use crate::objects::{self, TKR};
use crate::observer::Revision;
use crate::requests::apply;
use crate::requests::edit;

/// Time that the replicas get to end in good order.
const GRACE: Duration = Duration::from_secs(20);

/// Keeps Cluster API from starting an upgrade while it is set.
const START_HELD: &str = "before-upgrade.hook.cluster.cluster.x-k8s.io/soak";

/// A reverted disturbance. Its times only decide how long a release was undisturbed.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Happened {
    pub(super) kind: Kind,
    /// The package that it concerns, where it is one.
    pub(super) package: Option<&'static str>,
    /// Whether the target object was missing, so that nothing happened.
    pub(super) absent: bool,
    /// Where it took proofs away.
    pub(super) withdrawals: Vec<Withdrawal>,
    pub(super) began: Timestamp,
    pub(super) ended: Timestamp,
    /// Revision by which it was taken back.
    pub(super) ended_at: Revision,
}

/// Waits for its time, disturbs, and takes it back.
pub(super) async fn perform(subject: &Subject, planned: &Planned) -> Result<Happened> {
    let Planned {
        kind,
        after,
        lasts,
        package,
    } = *planned;
    sleep(after).await;
    let alone = if kind.is_shared() {
        Some(subject.shared.lock().await)
    } else {
        None
    };
    if matches!(kind, Kind::LeaderKilled | Kind::LeaderFrozen) {
        subject.world().extension()?.leader().await?;
    }
    let began = Timestamp::now();
    let withdrawals = Box::pin(happen(subject, kind, lasts, package))
        .await
        .with_context(|| format!("disturbance {}", kind.name()))?;
    drop(alone);
    Ok(Happened {
        kind,
        package: kind.concerns(package),
        absent: withdrawals.is_none(),
        withdrawals: withdrawals.unwrap_or_default(),
        began,
        ended: Timestamp::now(),
        ended_at: subject.revision().await?,
    })
}

/// Where a disturbance took proofs away; none if the object that it disturbs was not there.
type Withdrawals = Option<Vec<Withdrawal>>;

/// Disturbs, and tells where that took proofs away.
async fn happen(
    subject: &Subject,
    kind: Kind,
    lasts: Duration,
    package: &'static str,
) -> Result<Withdrawals> {
    match kind {
        Kind::ExtensionRestart => subject.world().extension()?.restart().await.map(none),
        Kind::ExtensionDown => extension_away(subject, lasts).await.map(none),
        Kind::LeaderKilled => subject.world().extension()?.kill_leader(lasts).await.map(none),
        Kind::LeaderFrozen => {
            let ended = subject.world().extension()?.freeze_leader(lasts).await;
            ended.map(|_| none(()))
        }
        Kind::ClusterApiRestart => subject.world().stack().cluster_api().restart().await.map(none),
        Kind::WorkloadApiDown => {
            let api = subject.cluster.workload()?.api.clone();
            let away = async {
                api.kill().await?;
                sleep(lasts).await;
                api.restart().await.map(Some)
            };
            meanwhile(subject, away).await
        }
        Kind::KappControllerRestart => {
            let workload = subject.cluster.workload()?;
            let restart = subject.persist("restart of kapp-controller", || {
                workload.kubelet.restart_kapp_controller()
            });
            let restart = async { Ok(restart.await?.then_some(())) };
            Box::pin(meanwhile(subject, restart)).await
        }
        Kind::PackageInstallPaused => flag(subject, Object::PackageInstall(package), "paused", lasts).await,
        Kind::PackageInstallCanceled => {
            flag(subject, Object::PackageInstall(package), "canceled", lasts).await
        }
        Kind::AppPaused => flag(subject, Object::App(package), "paused", lasts).await,
        Kind::AppCanceled => flag(subject, Object::App(package), "canceled", lasts).await,
        Kind::ClusterBootstrapPaused => {
            let edits = [
                json!({"spec": {"paused": true}}),
                json!({"spec": {"paused": false}}),
            ];
            let edited = there_and_back(subject, &subject.bootstrap_path(), &edits, lasts).await?;
            Ok(edited.map(|_| Vec::new()))
        }
        Kind::InlineValuesEdited => {
            let values = |soak: Value| json!({"spec": {"cni": {"valuesFrom": {"inline": {"antrea": {"config": {"soak": soak}}}}}}});
            let edits = [values(json!("edited")), values(Value::Null)];
            there_and_back(subject, &subject.bootstrap_path(), &edits, lasts).await
        }
        Kind::ClusterPaused => {
            let edits = [
                json!({"spec": {"paused": true}}),
                json!({"spec": {"paused": null}}),
            ];
            let edited = there_and_back(subject, &subject.path(), &edits, lasts).await?;
            Ok(edited.map(|_| Vec::new()))
        }
        Kind::StartHeld => {
            let annotation = |value: Value| json!({"metadata": {"annotations": {START_HELD: value}}});
            let edits = [annotation(json!("")), annotation(Value::Null)];
            let edited = there_and_back(subject, &subject.path(), &edits, lasts).await?;
            Ok(edited.map(|_| Vec::new()))
        }
        Kind::ClusterBootstrapDeleted => {
            let deletion = subject.persist("deletion of the ClusterBootstrap", || async {
                edit::delete_by_force(&subject.management(), &subject.bootstrap_path()).await
            });
            meanwhile(subject, deletion).await
        }
        Kind::ValuesSecretEdited => values_secret(subject, lasts).await,
        Kind::LabelRemoved => label(subject, lasts).await.map(none),
        Kind::ManifestReapplied => subject
            .persist("manifest", || async {
                let target = subject.target();
                let (namespace, name) = (subject.namespace(), subject.cluster.name());
                let release = target.name();
                let manifest =
                    objects::cluster(namespace, name, target.kubernetes(), Some(&release), WORKERS);
                apply::apply(&subject.management(), &manifest).await
            })
            .await
            .map(|_| none(())),
        Kind::SecondBump => bump::second(subject).await.map(none),
        // Done by the bump itself.
        Kind::VersionBeforeLabel | Kind::LabelBeforeVersion => Ok(none(())),
    }
}

/// No proof is taken away.
#[expect(clippy::unnecessary_wraps, reason = "something has happened")]
fn none((): ()) -> Withdrawals {
    Some(Vec::new())
}

/// Proofs are taken away at some time while `disturbance` runs, if it finds its object.
async fn meanwhile(
    subject: &Subject,
    disturbance: impl Future<Output = Result<Option<()>>>,
) -> Result<Withdrawals> {
    let first = subject.revision().await?;
    let found = disturbance.await?;
    let last = subject.revision().await?;
    Ok(found.map(|()| vec![Withdrawal::between(first, last)]))
}

/// An object whose name depends on a package.
#[derive(Clone, Copy)]
enum Object {
    PackageInstall(&'static str),
    App(&'static str),
}

impl Object {
    async fn find(self, subject: &Subject) -> Result<Option<Found>> {
        match self {
            Self::PackageInstall(package) => subject.package_install(package).await,
            Self::App(package) => subject.app(package).await,
        }
    }
}

/// Sets a field of the spec, and removes it again. Each takes a proof away: the second one has kapp-controller work once more.
async fn flag(subject: &Subject, object: Object, field: &str, lasts: Duration) -> Result<Withdrawals> {
    let set = async |value: Value| {
        subject
            .persist(&format!("{field}: {value}"), || async {
                match object.find(subject).await? {
                    Some(found) => {
                        let patch = json!({"spec": {field: value}});
                        written(edit::merge(&found.client, &found.path, &patch).await?.as_ref())
                    }
                    None => Ok(None),
                }
            })
            .await
    };
    let Some(there) = set(json!(true)).await? else {
        return Ok(None);
    };
    sleep(lasts).await;
    let back = set(Value::Null).await?;
    Ok(Some([there].into_iter().chain(back).collect()))
}

/// The write of an object, where there was one.
fn written(object: Option<&Value>) -> Result<Option<Withdrawal>> {
    let revision = object.map(edit::revision).transpose()?;
    Ok(revision.map(Withdrawal::at))
}

/// Merges one patch, waits, and merges the other. Returns both writes.
async fn there_and_back(
    subject: &Subject,
    path: &str,
    edits: &[Value; 2],
    lasts: Duration,
) -> Result<Withdrawals> {
    let [there, back] = edits;
    let merge = async |patch: &Value| {
        subject
            .persist(&patch.to_string(), || async {
                written(edit::merge(&subject.management(), path, patch).await?.as_ref())
            })
            .await
    };
    let Some(there) = merge(there).await? else {
        return Ok(None);
    };
    sleep(lasts).await;
    let back = merge(back).await?;
    Ok(Some([there].into_iter().chain(back).collect()))
}

async fn extension_away(subject: &Subject, lasts: Duration) -> Result<()> {
    let extension = subject.world().extension()?;
    extension.terminate(GRACE).await?;
    sleep(lasts).await;
    extension.restart().await
}

async fn label(subject: &Subject, lasts: Duration) -> Result<()> {
    let set = async |label: fn(&Subject) -> Value| {
        subject
            .persist("label", || async {
                let patch = json!({"metadata": {"labels": {TKR: label(subject)}}});
                edit::merge(&subject.management(), &subject.path(), &patch).await
            })
            .await
    };
    set(|_| Value::Null).await?;
    sleep(lasts).await;
    set(|subject| json!(subject.target().name())).await.map(drop)
}

/// The values of the package that has them in a Secret. Sluice sees that when it reads the Secret again: before a gate opens, or some
/// seconds later.
async fn values_secret(subject: &Subject, lasts: Duration) -> Result<Withdrawals> {
    let secret = subject
        .persist("look for a Secret with values", || async {
            let bootstrap = edit::get(&subject.management(), &subject.bootstrap_path())
                .await?
                .context("no ClusterBootstrap")?;
            let packages = bootstrap["spec"]["additionalPackages"].as_array().cloned();
            packages
                .into_iter()
                .flatten()
                .find_map(|package| package["valuesFrom"]["secretRef"].as_str().map(str::to_owned))
                .context("no values in a Secret")
        })
        .await?;
    let path = format!("/api/v1/namespaces/{}/secrets/{secret}", subject.namespace());
    let values = |replicas: u32| {
        let document = super::values(replicas).to_string();
        json!({"data": {"values.yaml": BASE64_STANDARD.encode(document)}})
    };
    let edits = there_and_back(subject, &path, &[values(2), values(1)], lasts).await?;
    let unwatched = |edit: Withdrawal| Withdrawal {
        unwatched: true,
        ..edit
    };
    Ok(edits.map(|edits| edits.into_iter().map(unwatched).collect()))
}
