//! Flux applies a release, or the correction of one, and the upgrade to it at once.

use anyhow::Result;
use serde_json::{Value, json};
use sluice_tests::install::Shell;
use sluice_tests::objects::{GitSource, Kustomization, Release, cluster, upgrade};
use sluice_tests::observer::Revision;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::git::GitServer;
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use super::{DRY_RUN, EXEMPTION, admit, patch};
use crate::common::{is_completed, metrics, proven_before_written, release, shell};

/// Directory of the git repository, and name of the Kustomization.
const NAME: &str = "plan-gitops";

/// Reason of a Package that excludes the version.
const EXCLUDES: &str = "PackageExcludesKubernetes";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        NAME,
        "a release and the upgrade to it in one Kustomization of Flux are admitted in any order; a wider range of a Package that exists is refused with the upgrade that it allows, until the Cluster has an exemption; both upgrades complete",
        |scene| Box::pin(run(scene)),
    )
    // Flux is started for it, and no other release of its versions may be there.
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let old = release(&scene, VERSIONS[0], "1.0.0", Delay::NONE)?;
    let new = release(&scene, VERSIONS[1], "2.0.0", Delay::NONE)?;
    scene.publish(&old).await?;
    let one = scene.cluster("one").create_settled(&old).await?;
    let webhooks = admit(&scene).await?;
    let shell = shell(&scene, "home-plan-gitops").await?;
    // The API server asks the webhook only some time after its registration.
    dry_run_says(&shell, &new, "TKRNotFound", false).await?;

    // Flux orders objects by group and kind, so the Cluster precedes all objects of its release, and stops at the first refusal.
    scene.withdraws(&new);
    scene.world().flux().await?;
    let source = GitSource::new(NAME, scene.world().git().await?.url(), GitServer::BRANCH);
    let kustomization = Kustomization::new(NAME, &source)
        .path(&format!("./{NAME}"))
        .with("prune", json!(false));
    let before = scene.world().observer().catch_up().await?;
    let revision = commit(&scene, &new, None).await?;
    scene
        .apply(&[
            source.manifest(scene.namespace()),
            kustomization.manifest(scene.namespace()),
        ])
        .await?;
    is_applied(&scene, &revision).await?;
    is_upgraded(&one, &new, before).await?;

    // Flux applies nothing of a Kustomization if the dry run of one object is refused.
    let next = scene.release(VERSIONS[2], "3.0.0", Delay::NONE)?;
    let limited = metrics(&scene, "3.0.0").for_kubernetes(">=1.34.0 <1.36.0");
    scene.publish(&next.clone().additional(limited.clone())).await?;
    dry_run_says(&shell, &next, EXCLUDES, true).await?;
    let next = next.additional(limited.for_kubernetes(">=1.34.0 <1.37.0"));
    let before = scene.world().observer().catch_up().await?;
    commit(&scene, &next, None).await?;
    status_until(&scene, &format!("name {EXCLUDES}"), |status| {
        status["conditions"].to_string().contains(EXCLUDES)
    })
    .await?;
    let revision = commit(&scene, &next, Some(next.kubernetes())).await?;
    is_applied(&scene, &revision).await?;
    is_upgraded(&one, &next, before).await?;
    scene.objects().delete(&scene.kustomization_path(NAME)).await?;
    scene.objects().delete(&webhooks).await
}

/// Waits until a dry run of the upgrade is refused, or not, with this reason in its messages.
async fn dry_run_says(shell: &Shell, to: &Release, reason: &str, is_refused: bool) -> Result<()> {
    let bump = upgrade(to.kubernetes(), Some(&to.name()));
    wait::until(format!("a dry run to name {reason}"), TIMEOUT, || async {
        let said = patch(shell, &bump, DRY_RUN).await?;
        if said.succeeded != is_refused && said.errors.contains(reason) {
            Ok(())
        } else {
            wait::not_yet(format!("{said:?}"))
        }
    })
    .await?;
    Ok(())
}

/// Commits a release and the Cluster at it, with an exemption for a version. Returns the revision.
async fn commit(scene: &Scene, to: &Release, exempt: Option<&str>) -> Result<String> {
    let mut one = cluster(scene.namespace(), "one", to.kubernetes(), Some(&to.name()), 0);
    if let Some(version) = exempt {
        one["metadata"]["annotations"] = json!({EXEMPTION: version});
    }
    let objects = to.objects().into_iter().chain([one]);
    let documents: Vec<String> = objects.map(|object| format!("---\n{object}\n")).collect();
    let (path, text) = (format!("{NAME}/all.yaml"), documents.concat());
    let git = scene.world().git().await?;
    git.commit(&[(path.as_str(), text.as_str())]).await
}

/// Waits until Flux has applied this revision.
async fn is_applied(scene: &Scene, revision: &str) -> Result<()> {
    let what = format!("apply {revision}");
    status_until(scene, &what, |status| status["lastAppliedRevision"] == revision).await
}

/// Waits until the status of the Kustomization satisfies `probe`.
async fn status_until(scene: &Scene, what: &str, probe: impl Fn(&Value) -> bool) -> Result<()> {
    let path = scene.kustomization_path(NAME);
    wait::until(format!("{path} to {what}"), TIMEOUT, || async {
        let object = scene.objects().get(&path).await?.unwrap_or_default();
        let status = &object["status"];
        if probe(status) {
            Ok(())
        } else {
            wait::not_yet(status)
        }
    })
    .await?;
    Ok(())
}

async fn is_upgraded(cluster: &Cluster, to: &Release, since: Revision) -> Result<()> {
    proven_before_written(cluster, to, since).await?;
    cluster.is_settled(TIMEOUT).await?;
    is_completed(cluster).await
}
