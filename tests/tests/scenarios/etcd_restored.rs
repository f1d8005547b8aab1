//! The etcd of the management cluster is restored to an older state, and its revisions come a second time.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice_tests::extension::{ELECTION, Extension, HookReply, PATIENT_ELECTION, Replica};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{is_completed, is_held, released, releases};
use crate::cut_off::answers;

/// Beginning of the warning about revisions that the API server has given out before.
const WARNING: &str = "API server rolled back";

/// How often a replica has observed that.
const ROLLBACKS: &str = "sluice_api_server_rollbacks_total";

/// Held calls of a replica.
const HOLDS: &str = "sluice_hook_holds_total";

/// How many more calls a replica has to hold before the hold counts as lasting.
const CALLS: f64 = 5.0;

/// Time to end in good order: the lease is given back then, so the next leader need not wait for its end.
const GRACE: Duration = Duration::from_secs(20);

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "etcd-restored",
        "the management etcd is restored to a state minutes old while both replicas run, then the standby leads: a second bump to the same version is held until it is proven again",
        |scene| Box::pin(run(scene)),
    )
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let extension = scene.world().extension()?;
    // Otherwise the leader would end while the API server is away, and both replicas have to live through the restore.
    let outcome = match extension.restart_with(PATIENT_ELECTION).await {
        Ok(()) => restored(&scene, extension).await,
        Err(error) => Err(error),
    };
    // Other scenarios need it, however this one goes on.
    let restarted = extension.restart_with(ELECTION).await;
    outcome.and(restarted)
}

async fn restored(scene: &Scene, extension: &Extension) -> Result<()> {
    let (old, new) = releases(scene).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    is_completed(&cluster).await?;
    let backup = scene.world().back_up().await?;

    let before = cluster.upgrade(&new).await?;
    released(&cluster, &new, before).await?;
    is_completed(&cluster).await?;
    let replicas: Vec<&Replica> = extension.replicas().iter().collect();
    for replica in &replicas {
        let what = "to have the open gate in its cache";
        answers(replica, &cluster, TIMEOUT, what, HookReply::is_released).await?;
    }
    // The verdict up to here: this observer cannot follow etcd back.
    scene.in_order().await?;
    let warned = warnings(&replicas)?;
    let (leader, standby) = (extension.leader().await?, extension.standby().await?);
    scene.world().restore(backup).await?;

    cluster.delay("antrea", Delay::Never);
    let before = cluster.upgrade(&new).await?;
    is_held(&cluster, &new, before).await?;
    hold_more(&replicas).await?;
    cluster.control_plane_is_untouched(before).await?;

    let leads = extension.leader().await?;
    ensure!(
        std::ptr::eq(leads, leader),
        "the leader has changed with the restore"
    );
    let seen_by_leader = leader.metric(ROLLBACKS).await?;
    let ended = leader.terminate(GRACE).await?;
    ensure!(ended.success(), "the leader failed on SIGTERM: {ended}");
    let leads = extension.leader().await?;
    ensure!(std::ptr::eq(leads, standby), "the standby does not lead");
    is_held(&cluster, &new, before).await?;
    // It alone answers.
    hold_more(&[standby]).await?;
    cluster.control_plane_is_untouched(before).await?;

    leader.restart().await?;
    released(&cluster, &new, before).await?;

    let now = warnings(&replicas)?;
    ensure!(
        warned.iter().zip(&now).all(|(before, after)| before < after),
        "not every replica logged {WARNING:?}: {warned:?} lines before the restore, {now:?} in the end"
    );
    let seen = [seen_by_leader, standby.metric(ROLLBACKS).await?];
    ensure!(
        seen.iter().all(|seen| seen.is_some_and(|seen| seen >= 1.0)),
        "{ROLLBACKS} of leader and standby is {seen:?}"
    );
    Ok(())
}

/// Waits until each of these replicas has held some more calls.
async fn hold_more(replicas: &[&Replica]) -> Result<()> {
    for replica in replicas {
        let before = holds(replica).await?;
        let what = format!(
            "the replica of {} to hold {CALLS} more calls",
            replica.log().display()
        );
        wait::until(what, TIMEOUT, || async {
            let more = holds(replica).await? - before;
            if more >= CALLS {
                Ok(())
            } else {
                wait::not_yet(format!("{more} calls"))
            }
        })
        .await?;
    }
    Ok(())
}

async fn holds(replica: &Replica) -> Result<f64> {
    Ok(replica.metric(HOLDS).await?.unwrap_or_default())
}

/// How many lines with the warning the log of each replica has.
fn warnings(replicas: &[&Replica]) -> Result<Vec<usize>> {
    let count = |replica: &&Replica| -> Result<usize> {
        let path = replica.log();
        let log = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(log.lines().filter(|line| line.contains(WARNING)).count())
    };
    replicas.iter().map(count).collect()
}
