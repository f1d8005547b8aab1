//! What happens to the packages of a settled cluster is seen within a sync period.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use sluice_tests::extension::{Replica, Settings};
use sluice_tests::objects::packages::{NAMESPACE, TestPackage};
use sluice_tests::requests::apply::apply_all;
use sluice_tests::scenario::{Cluster, Objects, PATIENCE, Scenario, Scene, Work};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::wait;

use crate::common::{REFUSED, Refusal, is_completed, metrics, record_says, releases};

/// Each change is seen in this time, and what kapp-controller takes for its part.
const PERIOD: &str = "20s";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "drift",
        "on a settled cluster a PackageInstall is deleted, values are edited, a package fails later: each is seen within a sync period and healed",
        |scene| Box::pin(run(scene)),
    )
    .alone()
    .long()
}

async fn run(scene: Scene) -> Result<()> {
    let (old, _) = releases(&scene).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    is_completed(&cluster).await?;
    let world = scene.world();
    world.extension()?.kill().await?;
    let hasty = Settings {
        sync_period: PERIOD.to_owned(),
        ..Settings::new("drift")
    };
    let hasty = Replica::start(world.stack(), hasty).await?;
    let drifting = Drifting {
        cluster: &cluster,
        objects: Objects::of(cluster.workload()?.api.admin_client()),
        package: metrics(&scene, "1.0.0"),
    };
    drifting.follows_the_period().await?;
    drifting.deleted().await?;
    drifting.values_edited().await?;
    drifting.fails_later().await?;
    hasty.kill().await?;
    world.extension()?.restart().await
}

/// A settled cluster, and the package that is disturbed.
struct Drifting<'a> {
    cluster: &'a Cluster,
    objects: Objects,
    package: TestPackage,
}

impl Drifting<'_> {
    /// The look of a leader that starts with another sync period brings it to the packages, which is a change of theirs.
    async fn follows_the_period(&self) -> Result<()> {
        let what = "the App of metrics to be looked at in the new period".to_owned();
        self.cluster
            .app_until(&self.package, what, PATIENCE, |app| {
                let period = app["spec"]["syncPeriod"].as_str().unwrap_or_default();
                if period.starts_with(PERIOD.trim_end_matches('s')) {
                    Ok(())
                } else {
                    wait::not_yet(app)
                }
            })
            .await?;
        self.is_healthy().await
    }

    async fn deleted(&self) -> Result<()> {
        let uid = |install: &Value| install["metadata"]["uid"].clone();
        let before = uid(&self.cluster.work(&self.package, Work::PackageInstall).await?);
        let path = format!(
            "/apis/packaging.carvel.dev/v1alpha1/namespaces/{SYSTEM_NAMESPACE}/packageinstalls/{}-metrics",
            self.cluster.name()
        );
        self.objects.delete(&path).await?;
        wait::until("a PackageInstall that was deleted", PATIENCE, || async {
            match self.objects.get(&path).await? {
                Some(install) if uid(&install) != before => Ok(()),
                found => wait::not_yet(format!("{found:?}")),
            }
        })
        .await?;
        self.is_healthy().await
    }

    async fn values_edited(&self) -> Result<()> {
        let name = self.cluster.values_secret(&self.package).await?;
        let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/{name}");
        let edited = BASE64_STANDARD.encode("edited: by hand\n");
        self.objects
            .merge(&path, &json!({"data": {"values.yaml": edited}}))
            .await?;
        let what = "metrics to be installed with its own values again";
        wait::until(what, PATIENCE, || async {
            let name = self.cluster.values_secret(&self.package).await?;
            let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/{name}");
            let secret = self.objects.get(&path).await?;
            match secret {
                Some(secret) if secret["data"]["values.yaml"] != edited => Ok(()),
                found => wait::not_yet(format!("{found:?}")),
            }
        })
        .await?;
        self.is_healthy().await?;
        let echoed = self.cluster.echoed(&self.package).await?;
        let values = echoed["values"].as_str().context("no values")?;
        ensure!(!values.contains("by hand"), "metrics is installed with {values}");
        Ok(())
    }

    /// What it has deployed is deleted, and may not be made again: the next run fails, at an unchanged generation.
    async fn fails_later(&self) -> Result<()> {
        let refusal = Refusal {
            name: "no-config-maps",
            operation: "CREATE",
            resources: &[("", "configmaps")],
        };
        let workload = self.cluster.workload()?.api.admin_client();
        apply_all(&workload, &refusal.objects()).await?;
        let configs = Api::<ConfigMap>::namespaced(workload, NAMESPACE);
        let probe = serde_json::from_value(json!({"metadata": {"name": "probe"}}))?;
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        wait::until("ConfigMaps to be refused", PATIENCE, || async {
            match configs.create(&dry_run, &probe).await {
                Ok(_) => wait::not_yet("allowed"),
                Err(kube::Error::Api(refused)) if refused.message.contains(REFUSED) => Ok(()),
                Err(other) => Err(other.into()),
            }
        })
        .await?;
        configs.delete("metrics-values", &DeleteParams::default()).await?;
        record_says(self.cluster, "metrics", "Failed").await?;
        let what = "a condition that says that metrics failed".to_owned();
        let says = |bootstrap: &Value| {
            let conditions = bootstrap["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let failed = conditions.find(|condition| {
                let kind = condition["type"].as_str().unwrap_or_default();
                kind.starts_with("Metrics")
                    && kind.ends_with("ReconcileFailed")
                    && condition["status"] == "True"
            });
            failed.map_or_else(|| wait::not_yet(&bootstrap["status"]["conditions"]), |_| Ok(()))
        };
        self.cluster.bootstrap_until(what, PATIENCE, says).await?;
        self.objects.delete(&refusal.binding()).await?;
        self.is_healthy().await
    }

    /// The package has its proof, and the upgrade is as completed as before.
    async fn is_healthy(&self) -> Result<()> {
        record_says(self.cluster, "metrics", "Ready").await?;
        is_completed(self.cluster).await
    }
}
