//! A replica that has lost the API server.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::extension::{HookReply, Replica, Settings};
use sluice_tests::objects;
use sluice_tests::observer::Revision;
use sluice_tests::processes::relay::Relay;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS, Work};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;
use tokio::time::{Instant, sleep};

use crate::common::{MidHold, metrics};
use crate::resync::{ANOTHER, is_open};

/// Highest age of a synced cache, and the delay of a busy machine.
const HELD_AFTER: Duration = Duration::from_secs(45 + 5);

/// Time until a reconnected replica responds from its cache again.
const RECOVERY: Duration = Duration::from_mins(1);

/// Time between two hook calls to an idle replica.
const ASKED_EVERY: Duration = Duration::from_secs(1);

/// How soon a line is in the log.
const LOGGED: Duration = Duration::from_secs(10);

pub(crate) fn cut_off() -> Scenario {
    Scenario::new(
        "cut-off",
        "a replica that is cut off from the API server when the leader closes a gate holds within 50 s, ends the connection, stays ready, and recovers",
        |scene| Box::pin(run_cut_off(scene)),
    )
}

async fn run_cut_off(scene: Scene) -> Result<()> {
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
    let frozen = Instant::now();
    let metrics = metrics(&scene, "2.0.0");
    let pause = |paused: Value| json!({"spec": {"paused": paused}});
    cluster
        .patch_package(&metrics, Work::PackageInstall, &pause(json!(true)))
        .await?;
    is_closed(&cluster, before).await?;
    let left = HELD_AFTER.saturating_sub(frozen.elapsed());
    let stale = |answer: &HookReply| answer.reason() == "ReplicaStale";
    let answer = answers(&replica, &cluster, left, "to hold for its age", stale).await?;
    ensure!(answer.closed, "the connection outlives {answer:?}");
    replica.readyz().await.context("a stale replica stays ready")?;
    let mut unmanaged = objects::cluster(scene.namespace(), "unmanaged", VERSIONS[2], None, 0);
    unmanaged["metadata"]["uid"] = json!("unmanaged");
    unmanaged["metadata"]["generation"] = json!(1);
    let unmanaged = ask(&replica, &unmanaged).await?;
    ensure!(
        stale(&unmanaged),
        "an unmanaged Cluster was answered {unmanaged:?}"
    );

    // Staleness is logged once a second at most, so a replica that recovers sooner logs nothing.
    logged(&replica, (1, 0)).await?;

    relay.thaw();
    let known = |answer: &HookReply| answer.reason() == "PackagesNotReady";
    let answer = answers(&replica, &cluster, RECOVERY, "to say what it waits for", known).await?;
    ensure!(!answer.closed, "the connection ends with {answer:?}");
    logged(&replica, (1, 1)).await?;
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

pub(crate) fn idle() -> Scenario {
    Scenario::new(
        "idle",
        "100 s in which nothing changes for one Cluster: a replica never considers its cache stale",
        |scene| Box::pin(run_idle(scene, Duration::from_secs(100))),
    )
}

pub(crate) fn idle_for_long() -> Scenario {
    Scenario::new(
        "five-idle-minutes",
        "five minutes in which nothing changes: a replica never considers its cache stale",
        |scene| Box::pin(run_idle(scene, Duration::from_mins(5))),
    )
    .own_stack()
    .nightly()
}

async fn run_idle(scene: Scene, time: Duration) -> Result<()> {
    let replica = standby(&scene, &format!("idle-{}", time.as_secs()), None).await?;
    // Cluster API does nothing for it, so nothing changes.
    let mut paused = objects::cluster(scene.namespace(), "paused", VERSIONS[1], None, 0);
    paused["spec"]["paused"] = json!(true);
    scene.apply(&[paused]).await?;
    let cluster = scene.cluster("paused").existing();
    let what = "to release an unmanaged Cluster that it has seen";
    answers(&replica, &cluster, TIMEOUT, what, HookReply::is_released).await?;

    let idle = releases_for(&replica, &cluster.object().await?, time).await;
    // A paused Cluster is not deleted.
    cluster.patch(&json!({"spec": {"paused": null}})).await?;
    idle?;
    ensure!(changes(&replica)? == (0, 0), "the replica was stale in between");
    replica.kill().await
}

/// The time itself is under test: there is no event to wait for.
async fn releases_for(replica: &Replica, unmanaged: &Value, time: Duration) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < time {
        let answer = ask(replica, unmanaged).await?;
        let after = began.elapsed();
        ensure!(
            answer.is_released(),
            "after {after:?} an unmanaged Cluster was answered {answer:?}"
        );
        sleep(ASKED_EVERY).await;
    }
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

/// Waits until the log has this number of lines for becoming stale and for becoming current again.
async fn logged(replica: &Replica, lines: (usize, usize)) -> Result<()> {
    let what = format!("{lines:?} lines for each change in {}", replica.log().display());
    wait::until(what, LOGGED, || async {
        match changes(replica)? {
            found if found == lines => Ok(()),
            found => wait::not_yet(format!("{found:?}")),
        }
    })
    .await?;
    Ok(())
}

/// How often the replica logs that it is stale, and current again.
fn changes(replica: &Replica) -> Result<(usize, usize)> {
    let log = std::fs::read_to_string(replica.log())?;
    let count = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    Ok((count("\"Stale: "), count("\"Current again: ")))
}
