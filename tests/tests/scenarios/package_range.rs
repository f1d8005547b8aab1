//! A Package that excludes the Kubernetes version of an upgrade.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sluice_tests::install::Shell;
use sluice_tests::objects::Release;
use sluice_tests::objects::packages::TestPackage;
use sluice_tests::observer::Revision;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS, Work};
use sluice_tests::stack::{SYSTEM_NAMESPACE, kubelet::Delay};
use sluice_tests::wait;

use crate::common::{is_completed, metrics, proven_before_workers, proven_before_written, release, shell};
use crate::missing_things::holds;
use crate::plan::planned;

const REASON: &str = "PackageExcludesKubernetes";

/// Annotation of a PackageInstall by which kapp-controller installs a Package on any Kubernetes version.
const IGNORES: &str = "packaging.carvel.dev/ignore-kubernetes-version-selection";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "package-range",
        "a Package that excludes the new Kubernetes version holds the upgrade before its first write; a PackageInstall that ignores the range releases one Cluster, a wider range the other one",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let old = release(&scene, VERSIONS[1], "1.0.0", Delay::NONE)?;
    let limited = metrics(&scene, "2.0.0").for_kubernetes(">=1.34.0 <1.36.0");
    let new = scene
        .release(VERSIONS[2], "2.0.0", Delay::NONE)?
        .additional(limited.clone());
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let (one, two) = tokio::try_join!(
        scene.cluster("one").workers(1).create_settled(&old),
        scene.cluster("two").create_settled(&old),
    )?;
    let (before_one, before_two) = tokio::try_join!(
        held(&one, &new, &limited, ">=1.34.0 <1.36.0"),
        held(&two, &new, &limited, ">=1.34.0 <1.36.0"),
    )?;

    let installs = one.installs().await?;
    let shell = shell(&scene, "home-package-range").await?;
    // Once the control plane has the version, no plan names the range.
    two.delay("antrea", Delay::Never);
    plan_says(&two, &shell, &limited, true).await?;
    let ignores = json!({"metadata": {"annotations": {IGNORES: ""}}});
    two.patch_package(&limited, Work::PackageInstall, &ignores)
        .await?;
    plan_says(&two, &shell, &limited, false).await?;
    two.control_plane_is_untouched(before_two).await?;
    two.delay("antrea", Delay::NONE);
    proven_before_written(&two, &new, before_two).await?;
    two.is_settled(TIMEOUT).await?;
    is_completed(&two).await?;

    // The range still holds the other Cluster.
    holds(&one, REASON, &limited.name()).await?;
    one.control_plane_is_untouched(before_one).await?;
    ensure!(
        one.installs().await? == installs,
        "packages were written while the upgrade was held"
    );
    scene
        .apply(&[limited.for_kubernetes(">=1.34.0 <1.37.0").package()])
        .await?;
    proven_before_written(&one, &new, before_one).await?;
    proven_before_workers(&one, &new, before_one).await?;
    one.is_settled(TIMEOUT).await?;
    is_completed(&one).await
}

/// Upgrades, and returns the revision from before once the first gate is held. Fails if anything was written, and says what became of an
/// upgrade that was not held.
async fn held(cluster: &Cluster, new: &Release, limited: &TestPackage, range: &str) -> Result<Revision> {
    let before = Written::of(cluster, limited).await?;
    let since = cluster.upgrade(new).await?;
    tokio::select! {
        held = holds(cluster, REASON, range) => held?,
        written = cluster.control_plane_written(new.kubernetes(), since, TIMEOUT) => {
            written?;
            bail!("{}", stuck(cluster, new, limited).await?);
        }
    }
    cluster.control_plane_is_untouched(since).await?;
    let after = Written::of(cluster, limited).await?;
    ensure!(before == after, "{after:?}, before {before:?}");
    Ok(since)
}

/// Checks whether the plan of the upgrade under way is blocked by the range of a Package.
async fn plan_says(cluster: &Cluster, shell: &Shell, limited: &TestPackage, is_blocked: bool) -> Result<()> {
    let arguments = format!("{} --workload", cluster.name());
    let (code, plan) = planned(shell, cluster.scene(), &arguments).await?;
    let mut findings = plan["findings"].as_array().into_iter().flatten();
    let by_range = findings.any(|finding| {
        let message = finding["message"].as_str().unwrap_or_default();
        finding["effect"] == "blocks" && finding["reason"] == REASON && message.contains(&limited.name())
    });
    let is_planned = plan["hops"].as_array().is_some_and(|hops| !hops.is_empty());
    ensure!(
        matches!(code, Some(0 | 3)) && is_planned && by_range == is_blocked,
        "blocked by the range ({is_blocked}), but exit code {code:?}: {plan}"
    );
    Ok(())
}

/// What Sluice writes for an upgrade.
#[derive(Debug, PartialEq)]
struct Written {
    bootstrap: Value,
    /// PackageInstalls and Apps with UID and generation.
    installs: String,
    /// Copy of the limited Package in the workload cluster.
    package: Option<Value>,
}

impl Written {
    async fn of(cluster: &Cluster, limited: &TestPackage) -> Result<Self> {
        let path = format!(
            "/apis/data.packaging.carvel.dev/v1alpha1/namespaces/{SYSTEM_NAMESPACE}/packages/{}",
            limited.name()
        );
        Ok(Self {
            bootstrap: cluster.bootstrap().await?["spec"].take(),
            installs: format!("{:?}", cluster.installs().await?),
            package: cluster.in_workload(&path).await?,
        })
    }
}

/// Describes the end of an upgrade whose control plane moved to a version that a package excludes.
async fn stuck(cluster: &Cluster, new: &Release, limited: &TestPackage) -> Result<String> {
    let version = new.kubernetes();
    let failed = wait::until("the PackageInstall to fail", TIMEOUT, || async {
        let install = cluster.work(limited, Work::PackageInstall).await?;
        let mut conditions = install["status"]["conditions"].as_array().into_iter().flatten();
        if conditions.any(|condition| condition["type"] == "ReconcileFailed") {
            Ok(install["status"]["friendlyDescription"].clone())
        } else {
            wait::not_yet(&install["status"])
        }
    })
    .await
    .with_context(|| format!("the control plane moved to {version}"))?;
    let what = "the gate before the workers to name the package".to_owned();
    let held = cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let gates = &bootstrap["status"]["upgrade"]["gates"];
            let mut gates_of_hook = gates.as_array().into_iter().flatten();
            let gate = gates_of_hook.find(|gate| gate["hook"] == "AfterControlPlaneUpgrade");
            let message = gate.and_then(|gate| gate["message"].as_str()).unwrap_or_default();
            match gate {
                Some(gate) if gate["open"] != true && message.contains(limited.short()) => {
                    Ok(format!("{}: {message}", gate["reason"]))
                }
                _ => wait::not_yet(gates),
            }
        })
        .await?;
    Ok(format!(
        "the control plane moved to {version}, and the workers wait: PackageInstall {failed}; gate AfterControlPlaneUpgrade {held}"
    ))
}
