//! Edits of values on a settled Cluster take effect immediately, from each kind of values source.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_tests::objects::packages::TestPackage;
use sluice_tests::objects::{Class, Infrastructure, Release, Values};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;
use tokio::time::Instant;

use crate::common::{additional, antrea_config, given, is_completed, metrics, record_says};
use crate::third_party;

/// Time from an edit to the write on the workload. The resync interval of the Cluster is ten minutes.
const LIMIT: Duration = Duration::from_secs(3);

const ANTREA_CONFIG: &str = "one-antrea-package";
const FLEET_CONFIG: &str = "one-fleet-package";
const VAULT_VALUES: &str = "one-vault-package";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "day2-values",
        "inline values, an AntreaConfig, a Secret and an object of a kind of another project are edited on a settled cluster: each is on the workload within 3 s",
        |scene| Box::pin(run(scene)),
    )
    .class(Class {
        infrastructure: Infrastructure::Docker,
        ..Class::default()
    })
    // Beside others it would be measured how long they keep the machine busy.
    .alone()
}

async fn run(scene: Scene) -> Result<()> {
    third_party::define(&scene).await?;
    let release = release(&scene)?;
    scene.publish(&release).await?;
    // It is there before the copy of the template would be made, so it stays as its user has made it.
    scene.apply(&[vault_values(&scene, 1)]).await?;
    let cluster = scene.cluster("one").at(&release).create().await?;
    let _controller = third_party::start(&scene);
    cluster.packages_proven(&release, 0, TIMEOUT).await?;
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    let settled = Settled { cluster, release };
    settled.is_settled().await?;

    settled
        .edited("metrics", settled.edit_inline(), |values| values["replicas"] == 3)
        .await?;
    settled
        .edited("antrea", settled.edit_configuration(), |values| {
            values["antrea"]["config"]["defaultMTU"] == "1400"
        })
        .await?;
    settled
        .edited("vault", settled.edit_secret(), |values| values["shards"] == 2)
        .await?;
    settled
        .edited("fleet", settled.edit_third_party(), |values| {
            values["fleet"]["ships"] == 3
        })
        .await
}

fn release(scene: &Scene) -> Result<Release> {
    Ok(scene
        .release(VERSIONS[1], "1.0.0", Delay::NONE)?
        .additional(metrics(scene, "1.0.0"))
        .additional(scene.package("vault", "1.0.0"))
        .additional(scene.package("fleet", "1.0.0"))
        .values("antrea", antrea_config())
        .values("vault", Values::Secret(json!({"shards": 7})))
        .values("fleet", third_party::fleets(2)))
}

/// A Secret of a user, without any label.
fn vault_values(scene: &Scene, shards: u32) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": VAULT_VALUES, "namespace": scene.namespace()},
        "data": vault_data(shards),
    })
}

fn vault_data(shards: u32) -> Value {
    json!({"values.yaml": BASE64_STANDARD.encode(json!({"shards": shards}).to_string())})
}

/// A Cluster at rest.
struct Settled {
    cluster: Cluster,
    release: Release,
}

impl Settled {
    fn package(&self, short: &str) -> Result<&TestPackage> {
        let package = self.release.packages().find(|package| package.short() == short);
        package.with_context(|| format!("a release without {short}"))
    }

    /// Waits until every package is proven and the Cluster is Available.
    async fn is_settled(&self) -> Result<()> {
        for package in self.release.packages() {
            record_says(&self.cluster, package.short(), "Ready").await?;
        }
        is_completed(&self.cluster).await?;
        self.cluster.is_available(TIMEOUT).await
    }

    /// Makes an edit, and waits until the package runs with it. Fails if it was not on the workload in time.
    async fn edited(
        &self,
        short: &str,
        edit: impl Future<Output = Result<()>>,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        let package = self.package(short)?;
        let before = self.cluster.values_secret(package).await?;
        let began = Instant::now();
        edit.await?;
        let what = format!("{short} to be installed with other values than those of {before}");
        let took = wait::until(what, TIMEOUT, || async {
            let found = self.cluster.values_secret(package).await?;
            if found == before {
                wait::not_yet(found)
            } else {
                Ok(began.elapsed())
            }
        })
        .await?;
        wait::until(format!("{short} to run with the edit"), TIMEOUT, || async {
            let values = given(&self.cluster, &self.release, short).await?;
            if wanted(&values) {
                Ok(())
            } else {
                wait::not_yet(values)
            }
        })
        .await?;
        sluice_tests::processes::notice(format!(
            "an edit of the values of {short} was there after {took:.1?}"
        ));
        ensure!(
            took <= LIMIT,
            "an edit of the values of {short} was on the workload after {:.1} s, not within {} s",
            took.as_secs_f64(),
            LIMIT.as_secs()
        );
        self.is_settled().await
    }

    async fn edit_inline(&self) -> Result<()> {
        let name = self.package("metrics")?.name();
        let patch = additional(&self.cluster, |package| {
            if package["refName"] == name {
                package["valuesFrom"] = json!({"inline": {"replicas": 3}});
            }
        });
        self.cluster.patch_bootstrap(&patch.await?).await.map(drop)
    }

    async fn edit_configuration(&self) -> Result<()> {
        let scene = self.cluster.scene();
        let path = format!(
            "/apis/cni.tanzu.vmware.com/v1alpha1/namespaces/{}/antreaconfigs/{ANTREA_CONFIG}",
            scene.namespace()
        );
        let edit = json!({"spec": {"antrea": {"config": {"defaultMTU": "1400"}}}});
        scene.objects().merge(&path, &edit).await
    }

    async fn edit_secret(&self) -> Result<()> {
        let scene = self.cluster.scene();
        let path = format!("/api/v1/namespaces/{}/secrets/{VAULT_VALUES}", scene.namespace());
        scene
            .objects()
            .merge(&path, &json!({"data": vault_data(2)}))
            .await
    }

    async fn edit_third_party(&self) -> Result<()> {
        let edit = Patch::Merge(json!({"spec": {"ships": 3}}));
        let configs = third_party::configs(self.cluster.scene());
        configs
            .patch(FLEET_CONFIG, &PatchParams::default(), &edit)
            .await?;
        Ok(())
    }
}
