//! One run: a Cluster with a gate is created, upgraded while its delivery is disturbed, judged and deleted.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::act::{self, Happened};
use super::addon::{Addon, CHARTS, CHECKS, RUN, agent_path, gate};
use super::disturbance::Kind;
use super::plan::Plan;
use super::stage::{Stage, delivers};
use crate::observer::{Event, Milestone, Revision, Violation};
use crate::scenario::{Cluster, Scene};
use crate::stack::kubelet::Delay;
use crate::wait;

/// Timeout of each wait, and of the end of an upgrade after its disturbance. The back-off after errors of Cluster API, CAAPH and Flux has
/// to fit in.
const TIMEOUT: Duration = Duration::from_mins(4);

/// Machines of the one MachineDeployment of each Cluster.
const WORKERS: u32 = 1;

/// How a run went.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) plan: Plan,
    /// Versions that were written before the checks of the gate had proof.
    pub(super) early: Vec<Violation>,
    /// Why the upgrade did not come to its end; none if it did.
    pub(super) stuck: Option<String>,
    /// None if it was not taken back.
    pub(super) happened: Option<Happened>,
    /// Seconds from the last proof, or the end of the disturbance if that came between, to the version of the control plane.
    pub(super) lag: Option<f64>,
    /// From the change of `topology.version` to the end of the upgrade.
    pub(super) upgrade: Duration,
    pub(super) total: Duration,
    /// State of the objects after a failure.
    pub(super) evidence: Option<Value>,
}

impl Outcome {
    /// Nothing is known yet but this.
    pub(super) fn of(plan: Plan) -> Self {
        Self {
            plan,
            early: Vec::new(),
            stuck: None,
            happened: None,
            lag: None,
            upgrade: Duration::ZERO,
            total: Duration::ZERO,
            evidence: None,
        }
    }

    pub(super) fn is_good(&self) -> bool {
        self.stuck.is_none() && self.early.is_empty()
    }
}

/// Makes one run. One that stops a shared process waits until it is alone.
pub(super) async fn perform(stage: &Stage, plan: Plan) -> Outcome {
    if plan.kind.is_shared() {
        let _alone = stage.processes.write().await;
        Box::pin(made(stage, plan)).await
    } else {
        let _beside_others = stage.processes.read().await;
        Box::pin(made(stage, plan)).await
    }
}

async fn made(stage: &Stage, plan: Plan) -> Outcome {
    let began = Instant::now();
    let mut outcome = Outcome::of(plan);
    if let Err(error) = Box::pin(upgrade(stage, &mut outcome)).await {
        outcome.stuck = Some(format!("{error:#}"));
    }
    outcome.total = began.elapsed();
    outcome
}

async fn upgrade(stage: &Stage, outcome: &mut Outcome) -> Result<()> {
    let plan = outcome.plan.clone();
    let addon = Addon::of(&plan, &stage.repository);
    let cluster = Box::pin(create(stage, &plan, &addon)).await.context("creation")?;
    cluster.delay(&plan.name(), Delay::After(plan.rollout));
    let began = Instant::now();
    let since = cluster.upgrade_unmanaged(plan.to()).await?;
    let disturbed = act::perform(stage, &plan, &addon).await;
    let settled = match disturbed {
        Ok(happened) => {
            outcome.happened = Some(happened);
            settled(&cluster, plan.to()).await
        }
        Err(error) => Err(error),
    };
    outcome.upgrade = began.elapsed();
    judge(outcome, &cluster, since).await?;
    if settled.is_err() || !outcome.is_good() {
        outcome.evidence = Some(evidence(outcome, &cluster, &addon, since).await);
    }
    settled?;
    remove(stage, &plan, &addon, &cluster).await.context("deletion")
}

/// A Cluster at the version before with the chart of that version, and a gate that is in force.
async fn create(stage: &Stage, plan: &Plan, addon: &Addon) -> Result<Cluster> {
    let scene = &stage.scene;
    let name = plan.name();
    let cluster = scene
        .cluster(&name)
        .unmanaged(plan.from())
        .labelled(RUN, name.as_str())
        .labelled(delivers(&name), "true")
        .workers(WORKERS)
        .create()
        .await?;
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    let goes_to_other = plan.kind == Kind::OtherClusterBroken;
    if goes_to_other {
        stage.deliver_to_other(&name, true).await?;
    }
    addon.apply(scene).await?;
    addon.delivered(&cluster, TIMEOUT).await?;
    if goes_to_other {
        addon.delivered(stage.other()?, TIMEOUT).await?;
    }
    cluster.rolled_out(&name, CHARTS[0].1, TIMEOUT).await?;
    scene.gate(&gate(plan, addon)).await?;
    scene.gate_is_in_force(&name).await?;
    Ok(cluster)
}

/// Waits until the Cluster reaches the version and the ClusterUpgrade shows it.
async fn settled(cluster: &Cluster, version: &str) -> Result<()> {
    let began = Instant::now();
    if let Err(error) = cluster.is_settled_at(version, TIMEOUT).await {
        let record = cluster.cluster_upgrade().await.ok().flatten().unwrap_or_default();
        let status = &record["status"];
        let held = format!(
            "held by {}, reason {}, message {}",
            status["heldBy"], status["reason"], status["message"]
        );
        return Err(error.context(held));
    }
    let what = format!("the ClusterUpgrade of {} to be completed", cluster.name());
    let left = TIMEOUT.saturating_sub(began.elapsed());
    cluster
        .cluster_upgrade_until(what, left, |record| {
            let (status, upgrade) = (&record["status"], &record["status"]["upgrade"]);
            let is_over = upgrade["outcome"] == "Completed" && upgrade["to"] == version;
            if is_over && status["heldBy"].is_null() {
                Ok(())
            } else {
                wait::not_yet(status)
            }
        })
        .await
}

async fn judge(outcome: &mut Outcome, cluster: &Cluster, since: Revision) -> Result<()> {
    let scene = cluster.scene();
    let observer = scene.world().observer();
    observer.catch_up().await?;
    // No run takes a proof away once it is complete, so every complaint counts.
    let violations = observer.violations(scene.namespace()).into_iter();
    outcome.early = violations
        .filter(|violation| violation.cluster == cluster.name())
        .collect();
    outcome.lag = lag(&outcome.plan, outcome.happened, &after(cluster, since));
    Ok(())
}

fn after(cluster: &Cluster, since: Revision) -> Vec<Milestone> {
    let all = cluster.milestones().into_iter();
    all.filter(|milestone| milestone.revision > since).collect()
}

/// See [`Outcome::lag`]; none if the control plane did not get the version, or a proof is missing.
fn lag(plan: &Plan, happened: Option<Happened>, milestones: &[Milestone]) -> Option<f64> {
    let written = milestones.iter().find(|milestone| {
        matches!(&milestone.event, Event::ControlPlaneWritten { version } if version == plan.to())
    })?;
    let [_, wanted] = plan.minors();
    let mut good: Option<Timestamp> = None;
    for name in CHECKS {
        let proven = milestones.iter().rfind(|milestone| {
            milestone.revision < written.revision
                && matches!(&milestone.event, Event::CheckProven { check, minor, .. }
                    if check == name && minor == wanted)
        })?;
        good = good.max(Some(proven.seen));
    }
    let ended = happened.map(|happened| happened.ended);
    let good = good.max(ended.filter(|ended| *ended <= written.seen))?;
    Some(written.seen.duration_since(good).as_secs_f64())
}

/// Everything that helps to find out why.
async fn evidence(outcome: &Outcome, cluster: &Cluster, addon: &Addon, since: Revision) -> Value {
    let scene = cluster.scene();
    let management = async |path: String| scene.objects().get(&path).await.ok().flatten();
    let name = outcome.plan.name();
    let releases = format!(
        "/apis/addons.cluster.x-k8s.io/v1alpha1/namespaces/{}/helmreleaseproxies",
        scene.namespace()
    );
    let releases = management(releases).await;
    let stored_gate = management(scene.gate_path(&name)).await;
    let delivery = management(addon.path(scene)).await;
    let object = cluster.object().await.ok();
    let record = cluster.cluster_upgrade().await.ok().flatten();
    let daemon_set = cluster.in_workload(&agent_path(&name)).await.ok().flatten();
    let answers = cluster.hook_answers().unwrap_or_default();
    json!({
        "plan": outcome.plan.to_string(),
        "happened": outcome.happened,
        "violations": outcome.early.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "cluster": object,
        "clusterUpgrade": record,
        "gate": stored_gate,
        "delivery": delivery,
        "helmReleaseProxies": releases,
        "daemonSet": daemon_set,
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

/// Deletes all that belongs to the run: first the delivery, which uninstalls its release while the workload cluster is there.
async fn remove(stage: &Stage, plan: &Plan, addon: &Addon, cluster: &Cluster) -> Result<()> {
    let scene = &stage.scene;
    let name = plan.name();
    is_deleted(scene, &addon.path(scene)).await?;
    if plan.kind == Kind::OtherClusterBroken {
        stage.deliver_to_other(&name, false).await?;
    }
    cluster.delete().await?;
    is_deleted(scene, &scene.gate_path(&name)).await
}

/// Deletes an object and waits until it is gone. A deletion that is refused is tried again: a gate may still count the Cluster as held.
async fn is_deleted(scene: &Scene, path: &str) -> Result<()> {
    wait::until(format!("{path} to be gone"), TIMEOUT, || async {
        match scene.objects().get(path).await? {
            None => Ok(()),
            Some(object) if object["metadata"]["deletionTimestamp"].is_null() => {
                scene.objects().delete(path).await?;
                wait::not_yet("it has just been deleted")
            }
            Some(object) => wait::not_yet(&object["status"]),
        }
    })
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    /// Revisions are seconds.
    fn milestone(seconds: i64, event: Event) -> Milestone {
        Milestone {
            revision: seconds,
            seen: at(seconds),
            namespace: "soak".to_owned(),
            cluster: "r7-0".to_owned(),
            event,
        }
    }

    fn proven(seconds: i64, check: &str, minor: &str) -> Milestone {
        let event = Event::CheckProven {
            gate: "r7-0".to_owned(),
            check: check.to_owned(),
            minor: minor.to_owned(),
        };
        milestone(seconds, event)
    }

    fn lag_of(ended: i64, milestones: &[Milestone]) -> Option<f64> {
        let plan = Plan::of(7, 0);
        let happened = Happened {
            began: at(0),
            ended: at(ended),
        };
        let written = Event::ControlPlaneWritten {
            version: plan.to().to_owned(),
        };
        let mut all = milestones.to_vec();
        all.push(milestone(20, written));
        lag(&plan, Some(happened), &all)
    }

    #[test]
    fn the_lag_is_from_the_last_proof_or_the_end_of_the_disturbance() {
        let plan = Plan::of(7, 0);
        let [old, new] = plan.minors();
        let both = [proven(3, "chart", new), proven(8, "agent", new)];
        let is = |lag: Option<f64>, seconds: f64| lag.is_some_and(|lag| (lag - seconds).abs() < 1e-6);
        assert!(is(lag_of(5, &both), 12.0));
        assert!(is(lag_of(15, &both), 5.0));
        // Under way at the write.
        assert!(is(lag_of(25, &both), 12.0));
        assert_eq!(lag_of(5, &both[..1]), None);
        assert_eq!(
            lag_of(5, &[proven(3, "chart", new), proven(8, "agent", old)]),
            None
        );
    }
}
