//! Sluice detects drift of the packages of a settled cluster within a sync period.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use sluice_tests::extension::{Replica, Settings};
use sluice_tests::objects::packages::{NAMESPACE, TestPackage};
use sluice_tests::observer::{Event, Revision};
use sluice_tests::requests::apply::apply_all;
use sluice_tests::scenario::{Cluster, Objects, Scenario, Scene, TIMEOUT, Work};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::wait;

use crate::common::{REFUSED, Refusal, is_completed, is_deployed, metrics, record_says, releases};
use crate::package_edited::{marker, proven};

/// `--sync-period`; kapp-controller takes none that is shorter.
const PERIOD: &str = "30s";

/// Time to observe a change: a period, another one where a drift check found kapp-controller at work, and the delay of a busy machine.
const SEEN: Duration = Duration::from_secs(75);

/// A Secret that is none of Sluice.
const BY_HAND: &str = "by-hand";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "drift",
        "on a settled cluster a Package is edited in place, a PackageInstall is deleted, values are edited, a package fails later: each is detected within a sync period, and deployed or repaired",
        |scene| Box::pin(run(scene)),
    )
    .own_stack()
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
    let workload = cluster.workload()?.api.admin_client();
    let drifting = Drifting {
        cluster: &cluster,
        objects: Objects::of(workload.clone()),
        secrets: Api::namespaced(workload, SYSTEM_NAMESPACE),
        package: metrics(&scene, "1.0.0"),
        began: world.observer().catch_up().await?,
    };
    drifting.follows_the_period().await?;
    drifting.package_edited().await?;
    drifting.deleted().await?;
    drifting.values_replaced().await?;
    drifting.values_of_another_secret().await?;
    drifting.fails_later().await?;
    drifting.is_undisturbed()?;
    hasty.kill().await?;
    world.extension()?.restart().await
}

/// A settled cluster, and the package that is disturbed.
struct Drifting<'a> {
    cluster: &'a Cluster,
    objects: Objects,
    secrets: Api<Secret>,
    package: TestPackage,
    began: Revision,
}

impl Drifting<'_> {
    /// A leader that starts with another sync period writes it to the packages in its first drift check, which changes them.
    async fn follows_the_period(&self) -> Result<()> {
        let what = "the App of metrics to have the new period".to_owned();
        self.cluster
            .app_until(&self.package, what, TIMEOUT, |app| {
                if app["spec"]["syncPeriod"] == PERIOD {
                    Ok(())
                } else {
                    wait::not_yet(app)
                }
            })
            .await?;
        self.is_healthy().await
    }

    /// The content of the Package changes at the same version.
    async fn package_edited(&self) -> Result<()> {
        let since = self.now().await?;
        let edited = self.package.clone().object(marker());
        self.cluster.scene().apply(&[edited.package()]).await?;
        let workload = self.cluster.workload()?.api.admin_client();
        let configs = Api::<ConfigMap>::namespaced(workload, NAMESPACE);
        wait::until("the edited Package to be deployed", SEEN, || async {
            configs.get("edited").await.map(drop).map_err(Into::into)
        })
        .await?;
        proven(self.cluster, "1.0.0", since).await?;
        self.is_healthy().await
    }

    async fn deleted(&self) -> Result<()> {
        let uid = |install: &Value| install["metadata"]["uid"].clone();
        let before = uid(&self.install().await?);
        let since = self.now().await?;
        let path = format!(
            "/apis/packaging.carvel.dev/v1alpha1/namespaces/{SYSTEM_NAMESPACE}/packageinstalls/{}-metrics",
            self.cluster.name()
        );
        self.objects.delete(&path).await?;
        let what = "kapp-controller to have uninstalled metrics";
        wait::until(what, TIMEOUT, || async {
            match self.objects.get(&path).await? {
                Some(install) if uid(&install) == before => wait::not_yet(install),
                _ => Ok(()),
            }
        })
        .await?;
        wait::until("the PackageInstall of metrics", SEEN, || async {
            let found = self.objects.get(&path).await?;
            found.map_or_else(|| wait::not_yet("none"), |_| Ok(()))
        })
        .await?;
        self.is_said(since, "package metrics").await?;
        self.is_healthy().await
    }

    /// Replaces the Secret that the PackageInstall references; the API server rejects edits of that Secret.
    async fn values_replaced(&self) -> Result<()> {
        let name = self.cluster.values_secret(&self.package).await?;
        let since = self.now().await?;
        let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/{name}");
        let edited = json!({"data": edited()});
        let refused = self.objects.merge(&path, &edited).await;
        ensure!(refused.is_err(), "Secret {name} was edited in place");
        self.secrets.delete(&name, &DeleteParams::default()).await?;
        self.make_by_hand(&name).await?;
        let what = "metrics to be installed with another Secret";
        wait::until(what, SEEN, || async {
            let found = self.cluster.values_secret(&self.package).await?;
            if found == name {
                wait::not_yet(found)
            } else {
                Ok(())
            }
        })
        .await?;
        self.is_said(since, "values of package metrics").await?;
        self.is_healthy().await
    }

    async fn values_of_another_secret(&self) -> Result<()> {
        let name = self.cluster.values_secret(&self.package).await?;
        let since = self.now().await?;
        self.make_by_hand(BY_HAND).await?;
        let pointed = json!({"spec": {"values": [{"secretRef": {"name": BY_HAND}}]}});
        self.cluster
            .patch_package(&self.package, Work::PackageInstall, &pointed)
            .await?;
        let what = format!("metrics to be installed with Secret {name} again");
        wait::until(what, SEEN, || async {
            let found = self.cluster.values_secret(&self.package).await?;
            if found == name {
                Ok(())
            } else {
                wait::not_yet(found)
            }
        })
        .await?;
        self.is_said(since, "package metrics").await?;
        self.is_healthy().await
    }

    async fn make_by_hand(&self, name: &str) -> Result<()> {
        let secret = serde_json::from_value(json!({"metadata": {"name": name}, "data": edited()}))?;
        self.secrets.create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    /// A deployed object is deleted and cannot be created again: the next run fails, at an unchanged generation.
    async fn fails_later(&self) -> Result<()> {
        let since = self.now().await?;
        let refusal = Refusal {
            name: "no-config-maps",
            operation: "CREATE",
            users: "",
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
        wait::until("ConfigMaps to be refused", TIMEOUT, || async {
            match configs.create(&dry_run, &probe).await {
                Ok(_) => wait::not_yet("allowed"),
                Err(kube::Error::Api(refused)) if refused.message.contains(REFUSED) => Ok(()),
                Err(other) => Err(other.into()),
            }
        })
        .await?;
        configs.delete("metrics-values", &DeleteParams::default()).await?;
        self.app_has("ReconcileFailed").await?;
        self.condition_has("ReconcileFailed").await?;
        record_says(self.cluster, "metrics", "Failed").await?;
        self.cluster
            .has_event_after(since, "PackageFailed", "metrics", TIMEOUT)
            .await?;

        self.objects.delete(&refusal.binding()).await?;
        self.app_has("ReconcileSucceeded").await?;
        self.condition_has("ReconcileSucceeded").await?;
        self.is_healthy().await
    }

    async fn app_has(&self, condition: &str) -> Result<()> {
        let what = format!("the App of metrics to have condition {condition}");
        self.cluster
            .app_until(&self.package, what, TIMEOUT, |app| {
                let conditions = &app["status"]["conditions"];
                if is_true(conditions, |kind| kind == condition) {
                    Ok(())
                } else {
                    wait::not_yet(conditions)
                }
            })
            .await
    }

    /// Waits until the ClusterBootstrap has this condition of the package.
    async fn condition_has(&self, condition: &str) -> Result<()> {
        let what = format!("a condition {condition} of metrics");
        let says = |bootstrap: &Value| {
            let conditions = &bootstrap["status"]["conditions"];
            let is_of_metrics = |kind: &str| kind.starts_with("Metrics") && kind.ends_with(condition);
            if is_true(conditions, is_of_metrics) {
                Ok(())
            } else {
                wait::not_yet(conditions)
            }
        };
        self.cluster.bootstrap_until(what, SEEN, says).await
    }

    /// Waits for an Event that reports this change.
    async fn is_said(&self, since: Revision, names: &str) -> Result<()> {
        self.cluster
            .has_event_after(since, "DriftFound", names, TIMEOUT)
            .await
    }

    /// The package is deployed with its own values, has its proof, and the upgrade is as completed as before.
    async fn is_healthy(&self) -> Result<()> {
        let wanted = self.cluster.values_secret(&self.package).await?;
        let owner = self.install().await?["metadata"]["uid"].take();
        let what = format!("metrics to be deployed with Secret {wanted}");
        self.cluster
            .app_until(&self.package, what, TIMEOUT, |app| {
                let is_of_install = app["metadata"]["ownerReferences"][0]["uid"] == owner;
                let takes_values = app["spec"]["template"].to_string().contains(&wanted);
                if is_of_install && takes_values && is_deployed(app) {
                    Ok(())
                } else {
                    wait::not_yet(app)
                }
            })
            .await?;
        record_says(self.cluster, "metrics", "Ready").await?;
        is_completed(self.cluster).await?;
        let echoed = self.cluster.echoed(&self.package).await?;
        let values = echoed["values"].as_str().context("no values")?;
        ensure!(!values.contains(BY_HAND), "metrics is installed with {values}");
        Ok(())
    }

    /// Fails if anything was rolled out, or the Cluster paused.
    fn is_undisturbed(&self) -> Result<()> {
        let found = self.cluster.milestones().into_iter().find(|milestone| {
            milestone.revision > self.began
                && matches!(
                    milestone.event,
                    Event::ControlPlaneWritten { .. } | Event::WorkersWritten { .. } | Event::Paused { .. }
                )
        });
        match found {
            Some(milestone) => bail!("{:?} of a Cluster at rest", milestone.event),
            None => Ok(()),
        }
    }

    async fn now(&self) -> Result<Revision> {
        self.cluster.scene().world().observer().catch_up().await
    }

    async fn install(&self) -> Result<Value> {
        self.cluster.work(&self.package, Work::PackageInstall).await
    }
}

fn edited() -> Value {
    json!({"values.yaml": BASE64_STANDARD.encode(format!("edited: {BY_HAND}\n"))})
}

fn is_true(conditions: &Value, is_meant: impl Fn(&str) -> bool) -> bool {
    let mut conditions = conditions.as_array().into_iter().flatten();
    conditions.any(|condition| {
        is_meant(condition["type"].as_str().unwrap_or_default()) && condition["status"] == "True"
    })
}
