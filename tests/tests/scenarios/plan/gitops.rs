//! Flux applies a release and the upgrade to it at once.

use anyhow::Result;
use serde_json::json;
use sluice_tests::objects::{GitSource, Kustomization, cluster, upgrade};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::git::GitServer;
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use super::{DRY_RUN, admit, patch};
use crate::common::{is_completed, proven_before_written, release, shell};

/// Directory of the git repository, and name of the Kustomization.
const NAME: &str = "plan-gitops";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        NAME,
        "a release and the upgrade to it in one Kustomization of Flux are admitted in any order, and the upgrade completes",
        |scene| Box::pin(run(scene)),
    )
    // Flux is started for it, and no other release of its versions may be there.
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let old = release(&scene, VERSIONS[1], "1.0.0", Delay::NONE)?;
    let new = release(&scene, VERSIONS[2], "2.0.0", Delay::NONE)?;
    scene.publish(&old).await?;
    let one = scene.cluster("one").create_settled(&old).await?;
    let webhooks = admit(&scene).await?;
    let shell = shell(&scene, "home-plan-gitops").await?;
    let bump = upgrade(new.kubernetes(), Some(&new.name()));
    // The API server asks the webhook only some time after its registration.
    wait::until("a dry run to name the missing release", TIMEOUT, || async {
        let said = patch(&shell, &bump, DRY_RUN).await?;
        if said.succeeded && said.errors.contains("TKRNotFound") {
            Ok(())
        } else {
            wait::not_yet(format!("{said:?}"))
        }
    })
    .await?;

    // Flux orders objects by group and kind, so the Cluster precedes all objects of its release, and stops at the first refusal.
    scene.withdraws(&new);
    let mut objects = new.objects();
    objects.push(cluster(
        scene.namespace(),
        one.name(),
        new.kubernetes(),
        Some(&new.name()),
        0,
    ));
    let documents: Vec<String> = objects.iter().map(|object| format!("---\n{object}\n")).collect();
    let (path, text) = (format!("{NAME}/all.yaml"), documents.concat());
    scene.world().flux().await?;
    let git = scene.world().git().await?;
    let source = GitSource::new(NAME, git.url(), GitServer::BRANCH);
    let revision = git.commit(&[(path.as_str(), text.as_str())]).await?;
    let kustomization = Kustomization::new(NAME, &source)
        .path(&format!("./{NAME}"))
        .with("prune", json!(false));
    let before = scene.world().observer().catch_up().await?;
    scene
        .apply(&[
            source.manifest(scene.namespace()),
            kustomization.manifest(scene.namespace()),
        ])
        .await?;
    is_applied(&scene, &revision).await?;
    proven_before_written(&one, &new, before).await?;
    one.is_settled(TIMEOUT).await?;
    is_completed(&one).await?;
    scene.objects().delete(&scene.kustomization_path(NAME)).await?;
    scene.objects().delete(&webhooks).await
}

/// Waits until Flux has applied this revision.
async fn is_applied(scene: &Scene, revision: &str) -> Result<()> {
    let path = scene.kustomization_path(NAME);
    wait::until(format!("{path} to apply {revision}"), TIMEOUT, || async {
        let object = scene.objects().get(&path).await?.unwrap_or_default();
        let status = &object["status"];
        if status["lastAppliedRevision"] == revision {
            Ok(())
        } else {
            wait::not_yet(status)
        }
    })
    .await?;
    Ok(())
}
