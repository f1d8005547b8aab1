//! `spec.upgradePolicy.deadline`: Sluice reports an exceeded deadline, and releases nothing.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT};
use sluice_tests::wait;

use crate::common::{MidHold, released};

const DEADLINE: i64 = 8;

/// A reconcile, the five seconds that the write of progress may wait, and the delay of a busy machine.
const LATE: i64 = 12;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "deadline",
        "a gate that is held for longer than its policy allows is reported by condition, event and metric and stays held; an unreadable deadline is refused",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let MidHold {
        cluster, new, before, ..
    } = MidHold::of(&scene).await?;
    for unreadable in [
        "soon", "45", "1.5h", "-5m", "5 m", "1d", "", "1h1h1h1h", "1234567h",
    ] {
        let refused = cluster.patch_bootstrap(&policy(unreadable)).await;
        let error = refused
            .err()
            .with_context(|| format!("deadline {unreadable:?} is taken"))?;
        let said = format!("{error:#}");
        ensure!(
            said.contains("spec.upgradePolicy.deadline"),
            "{unreadable:?}: {said}"
        );
    }
    ensure!(
        condition(&cluster.bootstrap().await?).is_none(),
        "there is no deadline yet"
    );

    let extension = scene.world().extension()?;
    let past = "sluice_deadline_exceeded_clusters";
    let was_past = extension.metric(past).await?;
    cluster.patch_bootstrap(&policy(&format!("{DEADLINE}s"))).await?;
    let said = cluster
        .bootstrap_until(
            "condition DeadlineExceeded".to_owned(),
            TIMEOUT,
            |bootstrap| match condition(bootstrap) {
                Some(found) if found["status"] == "True" => Ok(bootstrap.clone()),
                _ => wait::not_yet(&bootstrap["status"]),
            },
        )
        .await?;
    let held = &said["status"]["held"];
    ensure!(held["hook"] == "BeforeClusterUpgrade", "held is {held}");
    cluster
        .has_event("DeadlineExceeded", "BeforeClusterUpgrade", TIMEOUT)
        .await?;
    let series = r#"sluice_gate_longest_hold_seconds{hook="BeforeClusterUpgrade"}"#;
    wait::until("the metrics to say so".to_owned(), TIMEOUT, || async {
        let (past, held) = (extension.metric(past).await?, extension.metric(series).await?);
        let replicas = f64::from(u32::try_from(extension.replicas().len())?);
        if past >= was_past + replicas && held >= 8.0 * replicas {
            Ok(())
        } else {
            wait::not_yet(format!("{past} Clusters, held for {held} s"))
        }
    })
    .await?;
    cluster.control_plane_is_untouched(before).await?;

    // Another deadline is one that has not passed; it is said as late as that one asks for.
    cluster.patch_bootstrap(&policy("1h")).await?;
    is_gone(&cluster).await?;
    let (second, lasted) = passes_again(&cluster).await?;
    ensure!(
        (second..=second + LATE).contains(&lasted),
        "it was said after {lasted} s, and the deadline was {second} s"
    );
    cluster.control_plane_is_untouched(before).await?;
    released(&cluster, &new, before).await?;
    is_gone(&cluster).await
}

/// Sets a deadline that has not passed yet, and returns it and how long the gate was held when its passing was said.
async fn passes_again(cluster: &Cluster) -> Result<(i64, i64)> {
    let bootstrap = cluster.bootstrap().await?;
    let since: jiff::Timestamp = time(&bootstrap["status"]["held"]["since"])?;
    let so_far = jiff::Timestamp::now().duration_since(since).as_secs();
    let deadline = so_far + DEADLINE;
    cluster.patch_bootstrap(&policy(&format!("{deadline}s"))).await?;
    let what = "condition DeadlineExceeded again".to_owned();
    let said = cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| match condition(bootstrap) {
            Some(found) => Ok(found.clone()),
            None => wait::not_yet(&bootstrap["status"]),
        })
        .await?;
    let said = time(&said["lastTransitionTime"])?;
    Ok((deadline, said.duration_since(since).as_secs()))
}

fn policy(deadline: &str) -> Value {
    json!({"spec": {"upgradePolicy": {"deadline": deadline}}})
}

fn condition(bootstrap: &Value) -> Option<&Value> {
    let mut conditions = bootstrap["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == "DeadlineExceeded")
}

fn time(text: &Value) -> Result<jiff::Timestamp> {
    let text = text.as_str().with_context(|| format!("no time: {text}"))?;
    Ok(text.parse()?)
}

async fn is_gone(cluster: &Cluster) -> Result<()> {
    let what = "condition DeadlineExceeded to be gone".to_owned();
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| match condition(bootstrap) {
            None => Ok(()),
            Some(found) => wait::not_yet(found),
        })
        .await
}
