//! The disturbance of a run as it happens, and how it is taken back. Each also changes the version of the chart.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::sleep;

use super::addon::{Addon, gate, old_gate};
use super::disturbance::{Delivery, Kind};
use super::plan::Plan;
use super::stage::Stage;
use crate::objects::Chart;
use crate::scenario::World;
use crate::stack::flux::FluxController;
use crate::wait;

/// How soon a HelmRelease is rolled back that cannot be upgraded.
const ROLLED_BACK: Duration = Duration::from_mins(2);

/// Values that are broken for no Cluster.
const FOR_NONE: &str = "none";

/// When a disturbance began, and when all of it was taken back.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(super) struct Happened {
    pub(super) began: Timestamp,
    pub(super) ended: Timestamp,
}

/// Changes the version of the chart, disturbs, and takes the disturbance back. Begins with the change of `topology.version`.
pub(super) async fn perform(stage: &Stage, plan: &Plan, addon: &Addon) -> Result<Happened> {
    let begins = match plan.kind {
        Kind::ControllerKilled => plan.later + plan.after,
        _ => plan.after,
    };
    let began = async {
        sleep(begins).await;
        Timestamp::now()
    };
    let happened = Box::pin(happen(stage, plan, addon));
    let (began, happened) = tokio::join!(began, happened);
    happened.with_context(|| format!("disturbance {}", plan.kind.name()))?;
    Ok(Happened {
        began,
        ended: Timestamp::now(),
    })
}

async fn happen(stage: &Stage, plan: &Plan, addon: &Addon) -> Result<()> {
    match plan.kind {
        Kind::ReleaseSuspended => suspended(stage, plan, addon).await,
        Kind::ControllerFrozen => frozen(stage, plan, addon).await,
        Kind::OtherClusterBroken => broken_for_other(stage, plan, addon).await,
        Kind::RolledBack => rolled_back(stage, plan, addon).await,
        Kind::ControllerKilled => killed(stage, plan, addon).await,
        Kind::OldGateApplied => old_gate_applied(stage, plan, addon).await,
        Kind::LeaderKilled => {
            let away = async {
                sleep(plan.after).await;
                stage.scene.world().extension()?.kill_leader(plan.lasts).await
            };
            // Both to their ends: the leader has to come back.
            let (away, bumped) = tokio::join!(away, bumped(stage, plan.later, addon));
            away.and(bumped)
        }
    }
}

/// Changes the version of the chart after some time.
async fn bumped(stage: &Stage, later: Duration, addon: &Addon) -> Result<()> {
    sleep(later).await;
    addon.bumped().apply(&stage.scene).await
}

/// helm-controller observes the generation of a suspended HelmRelease, whose `Ready` stays that of the chart before.
async fn suspended(stage: &Stage, plan: &Plan, addon: &Addon) -> Result<()> {
    let Addon::Release(release) = addon.bumped() else {
        bail!("only a HelmRelease can be suspended");
    };
    sleep(plan.later).await;
    let suspended = Addon::Release(release.clone().suspended(true));
    suspended.apply(&stage.scene).await?;
    sleep(plan.lasts).await;
    Addon::Release(release.suspended(false)).apply(&stage.scene).await
}

/// The HelmReleaseProxy stays `Ready` at the version before while the HelmChartProxy has the one after.
async fn frozen(stage: &Stage, plan: &Plan, addon: &Addon) -> Result<()> {
    let caaph = stage.scene.world().caaph().await?;
    sleep(plan.later).await;
    caaph.freeze().await?;
    let edited = addon.bumped().apply(&stage.scene).await;
    sleep(plan.lasts).await;
    // Also after a failed edit: other runs need it.
    caaph.thaw().await?;
    edited
}

/// CAAPH stops at the first Cluster whose values it cannot render. Which one that is depends on their order.
async fn broken_for_other(stage: &Stage, plan: &Plan, addon: &Addon) -> Result<()> {
    let with = |cluster: &str| addon.bumped().values(&Chart::broken_for(cluster));
    sleep(plan.later).await;
    with(stage.other()?.name()).apply(&stage.scene).await?;
    sleep(plan.lasts).await;
    with(FOR_NONE).apply(&stage.scene).await
}

/// The rollback succeeds at the chart before, while the HelmRelease asks for the one after.
async fn rolled_back(stage: &Stage, plan: &Plan, addon: &Addon) -> Result<()> {
    let sound = addon.bumped();
    sleep(plan.later).await;
    let rejected = sound.clone().values(Chart::REJECTED);
    rejected.apply(&stage.scene).await?;
    let path = sound.path(&stage.scene);
    wait::until(format!("{path} to be rolled back"), ROLLED_BACK, || async {
        let release = stage.scene.objects().get(&path).await?.unwrap_or_default();
        if is_remediated(&release) {
            Ok(())
        } else {
            wait::not_yet(&release["status"])
        }
    })
    .await?;
    sleep(plan.lasts).await;
    sound.apply(&stage.scene).await
}

fn is_remediated(release: &Value) -> bool {
    let conditions = release["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Remediated" && condition["status"] == "True")
}

/// Helm's own record of the release stays at a pending upgrade until the controller is back.
async fn killed(stage: &Stage, plan: &Plan, addon: &Addon) -> Result<()> {
    bumped(stage, plan.later, addon).await?;
    sleep(plan.after).await;
    let world = stage.scene.world();
    kill(world, plan.delivery).await?;
    sleep(plan.lasts).await;
    match plan.delivery {
        Delivery::Caaph => world.caaph().await?.restart().await,
        Delivery::Flux => world.flux().await?.restart(FluxController::Helm).await,
    }
}

async fn kill(world: &World, delivery: Delivery) -> Result<()> {
    match delivery {
        Delivery::Caaph => world.caaph().await?.kill().await,
        Delivery::Flux => world.flux().await?.kill(FluxController::Helm).await,
    }
}

/// The chart may be deployed before the row of the new version is back.
async fn old_gate_applied(stage: &Stage, plan: &Plan, addon: &Addon) -> Result<()> {
    sleep(plan.after).await;
    stage.scene.gate(&old_gate(plan, addon)).await?;
    let mended = async {
        sleep(plan.lasts).await;
        stage.scene.gate(&gate(plan, addon)).await
    };
    let left = plan.later.saturating_sub(plan.after);
    tokio::try_join!(mended, bumped(stage, left, addon)).map(drop)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollback_is_a_condition_that_is_true() {
        let release = |kind: &str, status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": kind, "status": status}]}});
        assert!(is_remediated(&release("Remediated", "True")));
        assert!(!is_remediated(&release("Remediated", "False")));
        assert!(!is_remediated(&release("Released", "True")));
        assert!(!is_remediated(&Value::Null));
    }
}
