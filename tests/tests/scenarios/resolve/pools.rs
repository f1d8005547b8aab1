//! Each pool has its image, and keeps it while version and label are the same.

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use sluice_tests::extension::admission::unregister;
use sluice_tests::objects::{RESOLVE, RESOLVE_IMAGE, TKR, cluster};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::wait;

use super::{admit, apply_until_accepted, class, data, image, is_of, machines_are_of, release};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "resolve-pools",
        "machines of each pool have the selected image; an edited entry rolls none, and a label of a higher release is admitted with a warning",
        |scene| Box::pin(run(scene)),
    )
    .class(class(None))
    // Releases of others would be newer.
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let all = ["ubuntu", "photon", "flatcar"];
    let first = release(&scene, VERSIONS[1], 1, &all)?;
    scene.publish(&first).await?;
    let webhooks = admit(&scene).await?;

    let pools = json!([
        {"class": "default", "name": "ubuntu", "replicas": 1},
        {"class": "photon", "name": "photon", "replicas": 1},
        {"class": "default", "name": "flatcar", "replicas": 1, "metadata": {"annotations": {RESOLVE_IMAGE: "os-name=flatcar"}}},
    ]);
    let mut manifest = cluster(scene.namespace(), "one", "v1.35", None, 0);
    manifest["metadata"]["annotations"] = json!({RESOLVE: ""});
    let ubuntu = json!({"annotations": {RESOLVE_IMAGE: "os-name=ubuntu"}});
    manifest["spec"]["topology"]["controlPlane"]["metadata"] = ubuntu.clone();
    manifest["spec"]["topology"]["workers"] = json!({"machineDeployments": pools});
    manifest["spec"]["topology"]["workers"]["machineDeployments"][0]["metadata"] = ubuntu;
    apply_until_accepted(&scene, &manifest).await?;
    let one = scene.cluster("one").existing();
    is_of(&one.object().await?, &first, &image(&first, "ubuntu"))?;
    one.packages_proven(&first, 0, TIMEOUT).await?;
    one.is_settled(TIMEOUT).await?;
    for pool in all {
        machines_are_of(&one, pool, &image(&first, pool), 1).await?;
    }
    let overrides = overridden(&one.object().await?)?;
    ensure!(
        overrides == [false, true, true],
        "overrides of the pools, of which only the first has the image of all: {overrides:?}"
    );

    // Another release of the same Kubernetes version. Scenario same-kubernetes moves the label.
    let second = release(&scene, VERSIONS[1], 2, &all)?;
    scene.publish(&second).await?;
    let machines = machines(&one).await?;
    let topology = topology(&one).await?;
    let relabelled = json!({"metadata": {"labels": {TKR: second.name()}}});
    wait::until("a warning of the replacement of machines", TIMEOUT, || async {
        let warnings = one_warning(&one, &relabelled).await?;
        if warnings.contains(&first.name()) && warnings.contains(&second.name()) {
            Ok(())
        } else {
            wait::not_yet(format!("{warnings:?}"))
        }
    })
    .await?;

    // What machines are made of is edited, and left out.
    let bad = json!({VERSIONS[1]: {"osImageRef": {"name": "bad"}}});
    for value in [bad.clone(), json!({})] {
        let variables = json!([{"name": "TKR_DATA", "value": value}]);
        one.patch(&json!({"spec": {"topology": {"variables": variables}}}))
            .await?;
        stays(&one, &topology).await?;
        let mut edited = topology.clone();
        for pool in edited["workers"]["machineDeployments"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            pool["variables"] = json!({"overrides": variables});
        }
        one.patch(&json!({"spec": {"topology": edited}})).await?;
        stays(&one, &topology).await?;
    }
    one.patch(&json!({"spec": {"topology": {"variables": null}}}))
        .await?;
    stays(&one, &topology).await?;

    // A new pool gets the image of the others. The others have not rolled until it exists.
    let mut more = topology.clone();
    let late = json!({"class": "photon", "name": "late", "replicas": 1});
    if let Some(pools) = more["workers"]["machineDeployments"].as_array_mut() {
        pools.push(late);
    }
    one.patch(&json!({"spec": {"topology": more}})).await?;
    machines_are_of(&one, "late", &image(&first, "photon"), 1).await?;
    one.is_settled(TIMEOUT).await?;
    // Cluster API creates a Machine after the objects that it references.
    let what = "the Machine of the pool that came later";
    let after = wait::until(what, TIMEOUT, || async {
        match self::machines(&one).await {
            Ok(after) if after.len() == machines.len() + 1 => Ok(after),
            after => wait::not_yet(format!("{after:?}")),
        }
    })
    .await?;
    ensure!(
        machines.iter().all(|machine| after.contains(machine)),
        "machines were rolled: {machines:?} before, {after:?} after"
    );
    unregister(&scene.client(), &webhooks).await
}

/// Whether each pool has its own `TKR_DATA`.
fn overridden(cluster: &Value) -> Result<Vec<bool>> {
    let Some(pools) = cluster["spec"]["topology"]["workers"]["machineDeployments"].as_array() else {
        bail!("no pools: {}", cluster["spec"]["topology"]);
    };
    Ok(pools
        .iter()
        .map(|pool| data(&pool["variables"]["overrides"]).is_ok())
        .collect())
}

async fn topology(cluster: &Cluster) -> Result<Value> {
    Ok(cluster.object().await?["spec"]["topology"].clone())
}

async fn stays(cluster: &Cluster, before: &Value) -> Result<()> {
    let after = topology(cluster).await?;
    ensure!(after == *before, "the topology was {before}, and is {after}");
    Ok(())
}

/// Names of all machines.
async fn machines(cluster: &Cluster) -> Result<Vec<String>> {
    let scene = cluster.scene();
    let path = format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machines",
        scene.namespace()
    );
    let list = scene.objects().get(&path).await?.unwrap_or_default();
    let machines = list["items"].as_array().into_iter().flatten();
    Ok(machines
        .map(|machine| {
            machine["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .collect())
}

/// Warnings of the API server when this patch is merged into the Cluster with dry run.
async fn one_warning(cluster: &Cluster, patch: &Value) -> Result<String> {
    let scene = cluster.scene();
    let dry_run = format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/clusters/{}?dryRun=All",
        scene.namespace(),
        cluster.name()
    );
    let request = http::Request::patch(dry_run)
        .header("content-type", "application/merge-patch+json")
        .body(kube::client::Body::from(patch.to_string().into_bytes()))?;
    let response = scene.client().send(request).await?;
    let warnings = response.headers().get_all("warning").iter();
    Ok(warnings
        .map(|warning| String::from_utf8_lossy(warning.as_bytes()).into_owned())
        .collect())
}
