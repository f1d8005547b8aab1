//! One run: a Cluster is created, upgraded while it is disturbed, judged and deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::act::{self, Happened};
use super::bump;
use super::figures::{Lag, Part, Released};
use super::judge::Verdict;
use super::plan::Plan;
use super::subject::Subject;
use super::undisturbed::Weighed;
use crate::objects::Release;
use crate::observer::{Milestone, Revision, Violation};
use crate::requests::edit;
use crate::scenario::{Cluster, HookAnswer, Records, Scene};
use crate::wait;

/// Timeout of an upgrade after all disturbances have ended. Cluster API's own back-off after errors has to fit in.
const TIMEOUT: Duration = Duration::from_mins(4);

/// Machines of the one MachineDeployment of each Cluster.
pub(super) const WORKERS: u32 = 1;

/// What runs share.
pub(super) struct Stage {
    pub(super) scene: Scene,
    pub(super) releases: Arc<Vec<Release>>,
    pub(super) shared: Arc<tokio::sync::Mutex<()>>,
}

/// How a run went.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) plan: Plan,
    pub(super) verdict: Verdict,
    /// Why the upgrade did not come to its end; none if it did.
    pub(super) stuck: Option<String>,
    pub(super) happened: Vec<Happened>,
    pub(super) lag: Option<Lag>,
    /// Writes of the version, of those that had their proof before.
    pub(super) released: Vec<Released>,
    /// The same, once it is known what all runs of the stack have done.
    pub(super) weighed: Vec<Weighed>,
    /// Hook answers of the extension about the Cluster.
    pub(super) answers: Vec<HookAnswer>,
    /// From the change of version to the end of the upgrade.
    pub(super) upgrade: Duration,
    pub(super) total: Duration,
    /// State of the objects after a failure.
    pub(super) evidence: Option<Value>,
}

impl Outcome {
    /// Nothing is known yet but this.
    pub(super) fn of(plan: Plan, happened: Vec<Happened>) -> Self {
        Self {
            plan,
            verdict: Verdict::default(),
            stuck: None,
            happened,
            lag: None,
            released: Vec::new(),
            weighed: Vec::new(),
            answers: Vec::new(),
            upgrade: Duration::ZERO,
            total: Duration::ZERO,
            evidence: None,
        }
    }

    pub(super) fn is_good(&self) -> bool {
        self.stuck.is_none() && self.verdict.early.is_empty()
    }
}

/// Makes one run.
pub(super) async fn perform(stage: &Stage, plan: Plan) -> Outcome {
    let began = Instant::now();
    let mut outcome = Outcome::of(plan, Vec::new());
    if let Err(error) = upgrade(stage, &mut outcome).await {
        outcome.stuck = Some(format!("{error:#}"));
    }
    outcome.total = began.elapsed();
    outcome
}

async fn upgrade(stage: &Stage, outcome: &mut Outcome) -> Result<()> {
    let Stage {
        scene,
        releases,
        shared,
    } = stage;
    let plan = outcome.plan.clone();
    let old = &releases[plan.from];
    let cluster = scene
        .cluster(&format!("r{}-{}", plan.seed, plan.index))
        .workers(WORKERS)
        .at(old)
        .create()
        .await?;
    cluster
        .packages_proven(old, 0, TIMEOUT)
        .await
        .context("creation")?;
    cluster.is_settled(TIMEOUT).await.context("creation")?;
    for (name, delay) in plan.delays() {
        cluster.delay(name, delay);
    }

    let since = scene.world().observer().catch_up().await?;
    let history = cluster.history().await?;
    let subject = Subject::new(cluster, releases.clone(), plan.from + 1, shared.clone());
    let began = Instant::now();
    let disturbed = try_join_all(
        plan.disturbances
            .iter()
            .map(|planned| act::perform(&subject, planned)),
    );
    let bumped = async {
        bump::first(&subject, plan.bump()).await?;
        anyhow::Ok((Timestamp::now(), subject.revision().await?))
    };
    let (bumped, happened) = tokio::join!(bumped, disturbed);
    let disturbed = happened.map(|happened| outcome.happened = happened);
    let bumped = bumped.map(|asked| asked_for(&mut outcome.happened, asked));
    let settled = match bumped.and(disturbed) {
        Ok(()) => settled(&subject).await,
        Err(error) => Err(error),
    };
    outcome.upgrade = began.elapsed();
    judge(outcome, &subject, since, &history.records().await?).await?;
    if settled.is_err() || !outcome.is_good() {
        outcome.evidence = Some(evidence(&subject, outcome, since).await);
    }
    settled?;
    subject.cluster.delete().await.context("deletion")
}

/// A disturbance that is a way to begin the upgrade ends when both label and version are there.
fn asked_for(happened: &mut [Happened], (ended, ended_at): (Timestamp, Revision)) {
    for bump in happened.iter_mut().filter(|happened| happened.kind.is_bump()) {
        (bump.ended, bump.ended_at) = (ended, ended_at);
    }
}

/// Waits until the Cluster reaches its target and the record shows it.
async fn settled(subject: &Subject) -> Result<()> {
    let Subject { cluster, .. } = subject;
    let began = Instant::now();
    let left = || TIMEOUT.saturating_sub(began.elapsed());
    let version = subject.target().kubernetes();
    wait::until(format!("the control plane to run {version}"), left(), || async {
        let running = cluster.workload()?.api.version();
        if running == version {
            return Ok(());
        }
        let cluster = cluster.object().await?;
        let conditions = &cluster["status"]["conditions"];
        let reconciled = conditions
            .as_array()
            .and_then(|all| all.iter().find(|each| each["type"] == "TopologyReconciled"));
        wait::not_yet(format!("{running}, {}", reconciled.unwrap_or(&Value::Null)))
    })
    .await?;
    cluster.is_settled(left()).await?;
    let what = format!("the record of Cluster {} to be completed", cluster.name());
    cluster
        .bootstrap_until(what, left(), |bootstrap| {
            let record = &bootstrap["status"]["upgrade"];
            if record["outcome"] == "Completed" && record["to"] == version {
                Ok(())
            } else {
                wait::not_yet(record)
            }
        })
        .await
}

async fn judge(outcome: &mut Outcome, subject: &Subject, since: Revision, records: &Records) -> Result<()> {
    let cluster = &subject.cluster;
    let observer = cluster.scene().world().observer();
    observer.catch_up().await?;
    let violations: Vec<Violation> = observer
        .violations(subject.namespace())
        .into_iter()
        .filter(|violation| violation.cluster == cluster.name())
        .collect();
    let milestones = after(cluster, since);
    outcome.verdict = Verdict::of(violations, &milestones, records, &outcome.happened);
    let target = &subject.releases[outcome.plan.from + 1];
    outcome.released = Released::all(target, &milestones);
    let control_plane = outcome
        .released
        .iter()
        .find(|released| released.part == Part::ControlPlane);
    outcome.lag = control_plane.map(|released| Lag::of(released, &outcome.happened));
    outcome.answers = cluster.hook_answers()?;
    Ok(())
}

fn after(cluster: &Cluster, since: Revision) -> Vec<Milestone> {
    let all = cluster.milestones().into_iter();
    all.filter(|milestone| milestone.revision > since).collect()
}

/// Everything that helps to find out why.
async fn evidence(subject: &Subject, outcome: &Outcome, since: Revision) -> Value {
    let cluster = &subject.cluster;
    let mut packages = BTreeMap::new();
    for package in super::plan::PACKAGES {
        let install = subject.package_install(package).await.ok().flatten();
        let app = subject.app(package).await.ok().flatten();
        let objects = [install, app].map(|found| found.map(|found| found.object));
        packages.insert(package, objects);
    }
    let answers = cluster.hook_answers().unwrap_or_default();
    let object = edit::get(&subject.management(), &subject.path()).await;
    let bootstrap = edit::get(&subject.management(), &subject.bootstrap_path()).await;
    json!({
        "plan": outcome.plan.to_string(),
        "happened": outcome.happened,
        "violations": outcome.verdict.early.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "cluster": object.ok(),
        "bootstrap": bootstrap.ok(),
        "packages": packages,
        "answers": answers
            .iter()
            .map(|answer| format!("{} {} {} {}", answer.timestamp, answer.hook, answer.answer, answer.reason))
            .collect::<Vec<_>>(),
        "milestones": after(cluster, since)
            .iter()
            .map(|milestone| format!("{} {} {:?}", milestone.revision, milestone.seen, milestone.event))
            .collect::<Vec<_>>(),
    })
}
