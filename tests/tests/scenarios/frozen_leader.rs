//! A leader that was stopped for longer than its lease goes on where it stood.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use sluice_tests::extension::{Extension, Settings};
use sluice_tests::observer::{Event, Revision};
use sluice_tests::scenario::{Cluster, PATIENCE, Scenario, Scene};

use crate::common::{additional, held, metrics, released, releases};

/// How soon a leader that lost its lease has to end.
const END: Duration = Duration::from_secs(10);

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "frozen-leader",
        "the leader is stopped in the middle of an edit, another one proves a newer edit: the old leader goes on, reverts nothing and ends",
        |scene| Box::pin(run(scene)),
    )
    .alone()
    .long()
}

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/sluice-system/leases/sluice-leader";

fn election() -> Vec<String> {
    [
        "--leader-elect",
        "--leader-elect-lease-duration=6s",
        "--leader-elect-renew-deadline=4s",
        "--leader-elect-retry-period=1s",
    ]
    .map(str::to_owned)
    .into()
}

async fn run(scene: Scene) -> Result<()> {
    // The one that is stopped takes the lease; the one that Cluster API asks stands by and answers from its own memory.
    let standby = scene.world().extension()?;
    standby.kill().await?;
    // Another scenario may have left a lease that is held for an hour; there may be none.
    let _absent = scene.objects().delete(LEASE).await;
    let settings = Settings {
        arguments: election(),
        ..Settings::new("sluice-frozen")
    };
    let leader = Extension::start(scene.world().stack(), settings).await?;
    standby.set_arguments(election());
    standby.restart().await?;
    let outcome = frozen(&scene, &leader).await;
    leader.kill().await?;
    standby.set_arguments(Vec::new());
    standby.restart().await?;
    outcome
}

async fn frozen(scene: &Scene, leader: &Extension) -> Result<()> {
    let (old, new) = releases(scene).await?;
    let (first, second) = (metrics(scene, "2.0.1"), metrics(scene, "2.0.2"));
    scene.apply(&[first.package(), second.package()]).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let before = held(&cluster, &new).await?;

    refer(&cluster, first.name()).await?;
    leader.freeze().await?;
    refer(&cluster, second.name()).await?;
    let proven = cluster
        .milestone("metrics 2.0.2 to be proven", PATIENCE, before, |event| {
            matches!(event, Event::PackageProven { ref_name, version }
                if ref_name.starts_with("metrics.") && version == "2.0.2")
        })
        .await?
        .revision;
    let status = leader.thaw(END).await?;
    ensure!(
        !status.success(),
        "a leader that lost its lease ended with {status}"
    );
    is_not_reverted(scene, &cluster, proven).await?;
    released(&cluster, &new, before).await?;
    is_not_reverted(scene, &cluster, proven).await
}

async fn refer(cluster: &Cluster, name: String) -> Result<()> {
    let patch = additional(cluster, |package| package["refName"] = json!(name)).await?;
    cluster.patch_bootstrap(&patch).await?;
    Ok(())
}

async fn is_not_reverted(scene: &Scene, cluster: &Cluster, proven: Revision) -> Result<()> {
    scene.world().observer().catch_up().await?;
    let reverted = cluster.milestones().into_iter().find(|milestone| {
        milestone.revision > proven
            && matches!(&milestone.event, Event::PackageWorking { ref_name, version } if ref_name.starts_with("metrics.") && version != "2.0.2")
    });
    ensure!(
        reverted.is_none(),
        "after metrics 2.0.2 was proven at {proven}: {reverted:?}"
    );
    Ok(())
}
