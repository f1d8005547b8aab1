//! A leader that was stopped for longer than its lease goes on where it stood, and a write that it had sent arrives late.

use anyhow::{Result, ensure};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use sluice_crds::foreign::PackageInstall;
use sluice_tests::observer::{Event, Revision};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT};
use sluice_tests::stack::SYSTEM_NAMESPACE;

use crate::common::{additional, held, metrics, released, releases};
use crate::on_its_way::{Admission, OnItsWay, Question};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "frozen-leader",
        "the leader is stopped with a write on its way, another one proves a newer edit, then the write arrives: nothing is reverted, and the old leader ends",
        |scene| Box::pin(frozen(scene)),
    )
    .own_stack()
}

async fn frozen(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let (first, second) = (metrics(&scene, "2.0.1"), metrics(&scene, "2.0.2"));
    scene.apply(&[first.package(), second.package()]).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let before = held(&cluster, &new).await?;

    let admission = admission_of_version(&cluster, "2.0.1").await?;
    refer(&cluster, first.name()).await?;
    let on_its_way = admission.holds_one().await?;
    let extension = scene.world().extension()?;
    let leader = extension.leader().await?;
    leader.freeze().await?;
    let proven = overtaken(&cluster, second.name(), before, on_its_way).await;
    let ended = extension.thaw(leader).await?;
    let proven = proven?;
    ensure!(
        ended.is_some_and(|status| !status.success()),
        "a leader that lost its lease ended with {ended:?}"
    );
    is_not_reverted(&scene, &cluster, proven).await?;
    released(&cluster, &new, before).await?;
    is_not_reverted(&scene, &cluster, proven).await
}

/// Returns once another leader has proven `newer` while the write is on its way.
async fn overtaken(
    cluster: &Cluster,
    newer: String,
    before: Revision,
    on_its_way: OnItsWay,
) -> Result<Revision> {
    refer(cluster, newer).await?;
    let proven = cluster
        .milestone("metrics 2.0.2 to be proven", TIMEOUT, before, |event| {
            matches!(event, Event::PackageProven { ref_name, version }
                if ref_name.starts_with("metrics.") && version == "2.0.2")
        })
        .await?
        .revision;
    on_its_way.goes_on()?;
    Ok(proven)
}

/// The webhook that the API server of a workload asks about PackageInstalls of one version.
async fn admission_of_version(cluster: &Cluster, version: &str) -> Result<Admission> {
    let workload = cluster.workload()?;
    let condition = format!("object.spec.packageRef.versionSelection.constraints == '{version}'");
    let question = Question {
        group: "packaging.carvel.dev",
        resource: "packageinstalls",
        condition: &condition,
    };
    let install = json!({
        "metadata": {"name": "tried"},
        "spec": {"packageRef": {"refName": "tried", "versionSelection": {"constraints": version}}},
    });
    let install: PackageInstall = serde_json::from_value(install)?;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let installs: Api<PackageInstall> = Api::namespaced(workload.api.admin_client(), SYSTEM_NAMESPACE);
    Admission::of(&workload.api, &question, || async {
        let tried = installs.create(&params, &install).await;
        format!("{tried:?}")
    })
    .await
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
