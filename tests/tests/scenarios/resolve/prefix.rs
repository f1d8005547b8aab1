//! A prefix becomes the newest release, once.

use anyhow::{Result, ensure};
use serde_json::json;
use sluice_tests::extension::admission::unregister;
use sluice_tests::objects::{RESOLVE, cluster};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::wait;

use super::{admit, apply_until_accepted, class, image, is_of, machines_are_of, release};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "resolve-prefix",
        "a Cluster of version v1.35 gets the newest release and its image; applied again after a newer one has appeared it stays; v1.36 upgrades it",
        |scene| Box::pin(run(scene)),
    )
    .class(class(None))
    // Releases of others would be newer.
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let older = release(&scene, VERSIONS[1], 1, &["ubuntu"])?;
    let newest = release(&scene, VERSIONS[1], 2, &["ubuntu"])?;
    let next = release(&scene, VERSIONS[2], 3, &["ubuntu"])?;
    for release in [&older, &newest, &next] {
        scene.publish(release).await?;
    }
    let webhooks = admit(&scene).await?;

    let mut manifest = cluster(scene.namespace(), "one", "v1.35", None, 1);
    manifest["metadata"]["annotations"] = json!({RESOLVE: ""});
    apply_until_accepted(&scene, &manifest).await?;
    let one = scene.cluster("one").existing();
    let ubuntu = image(&newest, "ubuntu");
    is_of(&one.object().await?, &newest, &ubuntu)?;
    one.packages_proven(&newest, 0, TIMEOUT).await?;
    one.is_available(TIMEOUT).await?;
    one.is_settled(TIMEOUT).await?;
    machines_are_of(&one, "md", &ubuntu, 1).await?;

    // The same manifest after a newer release of the same beginning.
    let newer = release(&scene, VERSIONS[1], 4, &["ubuntu"])?;
    scene.publish(&newer).await?;
    let what = "a new Cluster to be of the newer release";
    wait::until(what, TIMEOUT, || async {
        let mut another = manifest.clone();
        another["metadata"]["name"] = json!("another");
        let path = format!(
            "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/clusters?dryRun=All",
            scene.namespace()
        );
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(another.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        let written = scene.client().request(request).await?;
        match is_of(&written, &newer, &image(&newer, "ubuntu")) {
            Ok(()) => Ok(()),
            Err(why) => wait::not_yet(why),
        }
    })
    .await?;
    let before = one.object().await?;
    scene.apply(std::slice::from_ref(&manifest)).await?;
    let after = one.object().await?;
    is_of(&after, &newest, &ubuntu)?;
    ensure!(
        before["spec"] == after["spec"]
            && before["metadata"]["generation"] == after["metadata"]["generation"],
        "the same manifest changed the Cluster: {} to {}",
        before["spec"],
        after["spec"]
    );

    // Another beginning is an upgrade, and waits for its packages.
    let since = one
        .patch(&json!({"spec": {"topology": {"version": "v1.36"}}}))
        .await?;
    let upgraded = one.object().await?;
    is_of(&upgraded, &next, &image(&next, "ubuntu"))?;
    let data = super::data(&upgraded["spec"]["topology"]["variables"])?;
    ensure!(
        data[VERSIONS[1]]["osImageRef"]["name"] == *ubuntu,
        "the entry of the version before was changed: {data}"
    );
    one.control_plane_written(next.kubernetes(), since, TIMEOUT * 2)
        .await?;
    one.is_settled(TIMEOUT * 2).await?;
    machines_are_of(&one, "md", &image(&next, "ubuntu"), 1).await?;
    unregister(&scene.client(), &webhooks).await
}
