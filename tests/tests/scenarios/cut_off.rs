//! A replica that has lost the API server releases nothing.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::extension::{HookReply, Replica, Settings};
use sluice_tests::observer::Revision;
use sluice_tests::processes::relay::Relay;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS, Work};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{MidHold, metrics};
use crate::resync::{ANOTHER, is_open};

/// Time until a reconnected replica releases again.
const RECOVERY: Duration = Duration::from_mins(1);

/// Calls to the replica after the gate was closed.
const CALLS: usize = 10;

/// How soon a line is in the log.
const LOGGED: Duration = Duration::from_secs(10);

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "cut-off",
        "a replica that is cut off from the API server while the leader closes a gate releases nothing from then on, ends the connection, stays ready, and recovers",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let MidHold {
        cluster, new, before, ..
    } = MidHold::of(&scene).await?;
    // Cluster API waits at this annotation, so that the open gate can be closed again.
    cluster.patch(&annotation(&json!("wait"))).await?;
    cluster.says(ANOTHER, TIMEOUT).await?;
    cluster.delay("antrea", Delay::NONE);
    is_open(&cluster, new.kubernetes()).await?;

    let relay = Relay::start(scene.world().stack().management().port()).await?;
    let replica = standby(&scene, "cut-off", Some(relay.url())).await?;
    answers(&replica, &cluster, TIMEOUT, "to release", HookReply::is_released).await?;

    relay.freeze();
    // The gate is still open at the API server, and in the cache of the replica for all the time.
    is_not_confirmed(&replica, &cluster).await?;
    let metrics = metrics(&scene, "2.0.0");
    let pause = |paused: Value| json!({"spec": {"paused": paused}});
    cluster
        .patch_package(&metrics, Work::PackageInstall, &pause(json!(true)))
        .await?;
    is_closed(&cluster, before).await?;
    for _ in 0..CALLS {
        is_not_confirmed(&replica, &cluster).await?;
    }
    replica
        .readyz()
        .await
        .context("a replica without the API server stays ready")?;
    logged(&replica).await?;

    relay.thaw();
    let known = |answer: &HookReply| answer.reason() == "PackagesNotReady";
    let answer = answers(&replica, &cluster, RECOVERY, "to say what it waits for", known).await?;
    ensure!(!answer.closed, "the connection ends with {answer:?}");
    cluster
        .patch_package(&metrics, Work::PackageInstall, &pause(Value::Null))
        .await?;
    answers(
        &replica,
        &cluster,
        TIMEOUT,
        "to release again",
        HookReply::is_released,
    )
    .await?;
    replica.kill().await?;

    cluster.control_plane_is_untouched(before).await?;
    cluster.patch(&annotation(&Value::Null)).await?;
    cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    cluster.is_settled(TIMEOUT).await
}

/// Asks about the Cluster, whose gate is open in the cache of the replica.
async fn is_not_confirmed(replica: &Replica, cluster: &Cluster) -> Result<()> {
    let answer = ask(replica, &cluster.object().await?).await?;
    ensure!(
        answer.reason() == "ReleaseNotConfirmed" && answer.closed,
        "after the cut, the replica answered {answer:?}"
    );
    Ok(())
}

/// A third replica. It does not lead: the lease is held.
async fn standby(scene: &Scene, name: &str, api_server: Option<String>) -> Result<Replica> {
    scene.world().extension()?.leader().await?;
    let settings = Settings {
        api_server,
        ..Settings::new(format!("sluice-{name}"))
    };
    Replica::start(scene.world().stack(), settings).await
}

async fn ask(replica: &Replica, cluster: &Value) -> Result<HookReply> {
    let to = &cluster["spec"]["topology"]["version"];
    let versions = json!({
        "fromKubernetesVersion": VERSIONS[1],
        "toKubernetesVersion": to,
        "controlPlaneUpgrades": [{"version": to}],
        "workersUpgrades": [{"version": to}],
    });
    replica.ask("BeforeClusterUpgrade", cluster, &versions).await
}

/// Asks about the Cluster as it is until an answer is accepted.
pub(crate) async fn answers(
    replica: &Replica,
    cluster: &Cluster,
    deadline: Duration,
    what: &str,
    accept: impl Fn(&HookReply) -> bool,
) -> Result<HookReply> {
    let answer = wait::until(format!("the replica {what}"), deadline, || async {
        let object = cluster.object().await?;
        let answer = ask(replica, &object).await?;
        if accept(&answer) {
            Ok(answer)
        } else {
            wait::not_yet(format!("{answer:?}"))
        }
    })
    .await?;
    Ok(answer)
}

fn annotation(value: &Value) -> Value {
    json!({"metadata": {"annotations": {ANOTHER: value}}})
}

/// Waits until the leader has closed the gate.
async fn is_closed(cluster: &Cluster, before: Revision) -> Result<()> {
    let what = "BeforeClusterUpgrade to be closed".to_owned();
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let gates = &bootstrap["status"]["upgrade"]["gates"];
            let mut open = gates.as_array().into_iter().flatten();
            if open.any(|gate| gate["hook"] == "BeforeClusterUpgrade" && gate["open"] == true) {
                wait::not_yet(gates)
            } else {
                Ok(())
            }
        })
        .await?;
    cluster.control_plane_is_untouched(before).await
}

/// Waits until the log tells that reads fail.
async fn logged(replica: &Replica) -> Result<()> {
    const LINE: &str = "Failed to confirm release";
    let what = format!("{LINE:?} in {}", replica.log().display());
    wait::until(what, LOGGED, || async {
        let log = std::fs::read_to_string(replica.log())?;
        if log.contains(LINE) {
            Ok(())
        } else {
            wait::not_yet("no such line")
        }
    })
    .await?;
    Ok(())
}
