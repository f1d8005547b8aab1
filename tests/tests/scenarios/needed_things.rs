//! Manual deletions and edits of objects that a package needs in the workload cluster.

use std::time::Duration;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use sluice_tests::scenario::{Cluster, Objects, Scenario, Scene, TIMEOUT};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::wait;

use crate::common::{MidHold, is_held, metrics, released};

/// A check of each needed object every 20 s, and the retry of kapp-controller after a few failures.
const RESTORED: Duration = Duration::from_mins(2);

const BINDING: &str =
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/tanzu-cluster-bootstrap-clusterrolebinding";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/tanzu-cluster-bootstrap-clusterrole";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "needed-things-deleted",
        "values, Package, role and binding of a package are deleted or edited in mid-hold: each is restored before its next proof, and the upgrade goes on",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let MidHold {
        cluster, new, before, ..
    } = MidHold::of(&scene).await?;
    let workload = cluster.workload()?.api.admin_client();
    let secrets = Api::<Secret>::namespaced(workload.clone(), SYSTEM_NAMESPACE);
    let (objects, beside_cluster) = (Objects::of(workload), scene.objects());
    let metrics = metrics(&scene, "2.0.0");
    // It is another one after each repair.
    let values = async || cluster.values_secret(&metrics).await;
    let first = secrets.get(&values().await?).await?;
    let damaged = Installed {
        cluster: &cluster,
        objects: &objects,
        namespace: SYSTEM_NAMESPACE,
        package: "metrics",
    };

    let deleted = async || {
        let deleted = secrets.delete(&values().await?, &DeleteParams::default()).await;
        Ok(deleted.map(drop)?)
    };
    damaged.restored(deleted).await?;
    damaged
        .restored(async || replace(&secrets, &values().await?).await)
        .await?;
    let name = values().await?;
    let again = secrets.get(&name).await?;
    ensure!(again.data == first.data, "{name} has other content than at first");
    let package = format!(
        "/apis/data.packaging.carvel.dev/v1alpha1/namespaces/{SYSTEM_NAMESPACE}/packages/{}",
        metrics.name()
    );
    damaged.restored(async || objects.delete(&package).await).await?;
    damaged.restored(async || objects.delete(BINDING).await).await?;
    let no_rules = json!({"rules": []});
    damaged
        .restored(async || objects.merge(ROLE, &no_rules).await)
        .await?;
    let kapp_controller = Installed {
        objects: &beside_cluster,
        namespace: scene.namespace(),
        package: "kapp-controller",
        ..damaged
    };
    let without_values = async || values_of_kapp_controller(&scene, &cluster).await;
    kapp_controller.restored(without_values).await?;

    is_held(&cluster, &new, before).await?;
    released(&cluster, &new, before).await?;
    Ok(())
}

/// A package that is installed.
struct Installed<'a> {
    cluster: &'a Cluster,
    objects: &'a Objects,
    namespace: &'a str,
    package: &'a str,
}

impl Installed<'_> {
    /// Damages something, has kapp-controller work on the package, and waits until it has its proof again.
    ///
    /// A pause that is taken back makes kapp-controller deploy. It does not always notice that a Secret with values is gone: the
    /// first of its controllers to see that makes the others forget the Secret.
    async fn restored(&self, damage: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
        self.pause(json!(true)).await?;
        self.is_proven(false, TIMEOUT).await?;
        damage().await?;
        self.pause(Value::Null).await?;
        self.is_proven(true, RESTORED).await
    }

    async fn pause(&self, paused: Value) -> Result<()> {
        let path = format!(
            "/apis/packaging.carvel.dev/v1alpha1/namespaces/{}/packageinstalls/{}-{}",
            self.namespace,
            self.cluster.name(),
            self.package
        );
        self.objects
            .merge(&path, &json!({"spec": {"paused": paused}}))
            .await
    }

    async fn is_proven(&self, proven: bool, deadline: Duration) -> Result<()> {
        let verb = if proven { "have" } else { "have lost" };
        let what = format!("{} to {verb} its proof", self.package);
        let probe = |bootstrap: &Value| {
            let packages = &bootstrap["status"]["upgrade"]["packages"];
            let mut packages = packages.as_array().into_iter().flatten();
            match packages.find(|found| found["name"] == self.package) {
                Some(found) if (found["state"] == "Ready") == proven => Ok(()),
                found => wait::not_yet(found.unwrap_or(&Value::Null)),
            }
        };
        self.cluster.bootstrap_until(what, deadline, probe).await
    }
}

/// Puts another immutable Secret in the place of one.
async fn replace(secrets: &Api<Secret>, name: &str) -> Result<()> {
    secrets.delete(name, &DeleteParams::default()).await?;
    let other = json!({
        "metadata": {"name": name},
        "immutable": true,
        "data": {"values.yaml": BASE64_STANDARD.encode("not: [yaml")},
    });
    secrets
        .create(&PostParams::default(), &serde_json::from_value(other)?)
        .await?;
    Ok(())
}

/// Deletes the values of kapp-controller, beside the Cluster.
async fn values_of_kapp_controller(scene: &Scene, cluster: &Cluster) -> Result<()> {
    let secrets = Api::<Secret>::namespaced(scene.client(), scene.namespace());
    let prefix = format!("{}-kapp-controller-data-values-", cluster.name());
    let listed = secrets.list_metadata(&ListParams::default()).await?;
    let ours = listed
        .items
        .into_iter()
        .filter_map(|secret| secret.metadata.name)
        .filter(|name| name.starts_with(&prefix));
    for name in ours {
        secrets.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}
