//! Sluice dies at each of its writes, before and after, while a Cluster is created, upgraded and deleted.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::{Class, Infrastructure};
use sluice_tests::scenario::deaths::Deaths;
use sluice_tests::scenario::{Cluster, Scenario, Scene, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{antrea_config, release};

/// Timeout of each wait. Without deaths a wait ends quickly, but each death takes some seconds.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Requests of the ServiceAccount of Sluice.
const ON_MANAGEMENT: &str = "request.userInfo.username.startsWith('system:serviceaccount:sluice-system:')";

/// Requests with the kubeconfig of the Cluster by the name under which Sluice writes, and deletions.
const ON_WORKLOAD: &str = "request.userInfo.username == 'admin' && (request.operation == 'DELETE' || \
     (has(request.options.fieldManager) && request.options.fieldManager.startsWith('sluice')))";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "deaths",
        "Sluice dies before and after each of its writes while a Cluster is created, upgraded and deleted: it ends as an undisturbed one",
        |scene| Box::pin(run(scene)),
    )
    .class(Class {
        infrastructure: Infrastructure::Docker,
        ..Class::default()
    })
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let with_config = |kubernetes, version| {
        let release = release(&scene, kubernetes, version, Delay::NONE)?;
        anyhow::Ok(release.values("antrea", antrea_config()))
    };
    let old = with_config(VERSIONS[1], "1.0.0")?;
    let new = with_config(VERSIONS[2], "2.0.0")?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let undisturbed = scene.cluster("calm").create_settled(&old).await?;
    let before = undisturbed.upgrade(&new).await?;
    undisturbed
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    undisturbed.is_settled(TIMEOUT).await?;

    let mut deaths = Deaths::new(scene.world(), "torn");
    deaths
        .at(scene.world().stack().management(), ON_MANAGEMENT)
        .await?;
    let cluster = scene.cluster("torn").at(&old).create().await?;
    let workload = wait::until("the Cluster to have an API server", TIMEOUT, || async {
        match cluster.workload() {
            Ok(workload) => Ok(workload),
            Err(error) => wait::not_yet(error),
        }
    });
    deaths.at(&workload.await?.api, ON_WORKLOAD).await?;
    cluster.packages_proven(&old, 0, TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    dies(
        &deaths,
        "its creation",
        &[
            "CREATE antreaconfigs",
            "CREATE clusterbootstraps",
            "CREATE packageinstalls",
        ],
    )
    .await?;

    let before = cluster.upgrade(&new).await?;
    cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    let proven = cluster.packages_proven(&new, before, TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    let written = cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    ensure!(
        proven.revision < written.revision,
        "released at {} before {}",
        written.revision,
        proven.revision
    );
    dies(
        &deaths,
        "its upgrade",
        &[
            "UPDATE antreaconfigs",
            "UPDATE clusterbootstraps",
            "UPDATE clusterbootstraps/status",
            "UPDATE packageinstalls",
            "CREATE secrets",
        ],
    )
    .await?;
    is_like(&cluster, &undisturbed).await?;

    cluster.begin_to_delete(&json!({})).await?;
    wait::until("the Cluster to be gone", TIMEOUT, || async {
        match cluster.object().await {
            Ok(_) => wait::not_yet("it is there"),
            Err(_) => Ok(()),
        }
    })
    .await?;
    dies(&deaths, "its deletion", &["DELETE packageinstalls"]).await
}

/// Fails unless Sluice has died at writes of each of these kinds.
async fn dies(deaths: &Deaths, during: &str, kinds: &[&str]) -> Result<()> {
    let writes = deaths.at_which().await?;
    sluice_tests::processes::notice(format!(
        "{} deaths up to the end of {during}, at {writes:?}",
        deaths.count()
    ));
    for kind in kinds {
        ensure!(
            writes.iter().any(|write| write.ends_with(kind)),
            "{during} had no death at {kind}, only at {writes:?}"
        );
    }
    Ok(())
}

/// Final state of a Cluster: spec of its ClusterBootstrap, its gates, its packages and their PackageInstalls.
async fn end(cluster: &Cluster) -> Result<Value> {
    let bootstrap = cluster.bootstrap().await?;
    let record = &bootstrap["status"]["upgrade"];
    let gates = record["gates"].as_array().context("a record without gates")?;
    let gates: Vec<_> = gates
        .iter()
        .map(|gate| json!([gate["hook"], gate["open"]]))
        .collect();
    let packages = record["packages"]
        .as_array()
        .context("a record without packages")?;
    let packages: Vec<_> = packages
        .iter()
        .map(|package| json!([package["name"], package["version"], package["state"]]))
        .collect();
    let name = cluster.name();
    let installs: Vec<String> = cluster
        .installs()
        .await?
        .into_keys()
        .map(|install| install.replace(name, "<name>"))
        .collect();
    let spec: Value = serde_json::from_str(&bootstrap["spec"].to_string().replace(name, "<name>"))?;
    Ok(
        json!({"spec": spec, "outcome": record["outcome"], "gates": gates, "packages": packages, "installs": installs}),
    )
}

async fn is_like(cluster: &Cluster, undisturbed: &Cluster) -> Result<()> {
    wait::until("the Cluster to end as the undisturbed one", TIMEOUT, || async {
        let (end, calm) = (end(cluster).await?, end(undisturbed).await?);
        if end == calm {
            return Ok(());
        }
        wait::not_yet(format!("{end} is not {calm}"))
    })
    .await?;
    Ok(())
}
