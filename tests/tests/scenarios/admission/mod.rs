//! Refusals of the webhooks on a real API server, and writes that work without them.

mod bootstrap;
mod down;
mod template;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sluice_tests::scenario::Scene;

pub(crate) use bootstrap::scenario as bootstrap;
pub(crate) use down::scenario as down;
pub(crate) use template::scenario as template;

const RUN: &str = "/apis/run.tanzu.vmware.com/v1alpha3/namespaces";
const UNMANAGED: &str = "tkg.tanzu.vmware.com/unmanaged-cni";
const KEEP: &str = "lifecycle.sluice.dev/keep-package-versions";

/// One write, and the rejection of the API server: part of its message, or none.
struct Case {
    what: &'static str,
    change: Value,
    refused: Option<String>,
}

fn admitted(what: &'static str, change: Value) -> Case {
    Case {
        what,
        change,
        refused: None,
    }
}

fn refused(what: &'static str, change: Value, says: impl Into<String>) -> Case {
    Case {
        what,
        change,
        refused: Some(says.into()),
    }
}

impl Case {
    fn check(&self, written: Result<Value, kube::Error>) -> Result<()> {
        let what = self.what;
        match (&self.refused, written) {
            (None, written) => written
                .map(drop)
                .with_context(|| format!("{what} has to be admitted")),
            (Some(says), Ok(_)) => bail!("{what} is admitted; it has to be refused with {says:?}"),
            (Some(says), Err(kube::Error::Api(status))) => {
                ensure!(
                    status.message.contains(says),
                    "{what} is refused with {:?}, not with {says:?}",
                    status.message
                );
                Ok(())
            }
            (Some(_), Err(error)) => Err(error).with_context(|| what),
        }
    }
}

/// Packages of this scenario, without Clusters.
struct Bench {
    scene: Scene,
}

impl Bench {
    async fn of(scene: Scene) -> Result<Self> {
        let namespace = scene.namespace().to_owned();
        for (short, versions) in [
            ("kapp-controller", ["1.0.0", "2.0.0"]),
            ("antrea", ["1.0.0", "2.0.0"]),
            ("calico", ["1.0.0", "2.0.0"]),
            ("csi", ["1.0.0", "2.0.0"]),
            ("metrics", ["1.0.0", "2.0.0"]),
            ("foo", ["1.0.0+vmware.1-tkg.1", "1.0.0+vmware.1-tkg.2"]),
        ] {
            for version in versions {
                scene.apply(&[scene.package(short, version).package()]).await?;
            }
        }
        scene
            .apply(&[
                json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "values", "namespace": namespace},
                    "stringData": {"values.yaml": "a: 1"},
                }),
                json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": namespace},
                    "type": "cluster.x-k8s.io/secret", "stringData": {"value": "a: 1"},
                }),
                json!({
                    "apiVersion": "cni.tanzu.vmware.com/v1alpha1", "kind": "AntreaConfig",
                    "metadata": {"name": "any", "namespace": namespace}, "spec": {},
                }),
            ])
            .await?;
        Ok(Self { scene })
    }

    /// Registers the webhooks for the scenario's namespace; returns their name.
    async fn admit(&self) -> Result<String> {
        let namespace = self.scene.namespace();
        let webhooks = format!("sluice-{namespace}");
        self.scene
            .world()
            .extension()?
            .admit(&webhooks, &[namespace])
            .await?;
        Ok(webhooks)
    }

    fn package(&self, short: &str, version: &str) -> String {
        self.scene.package(short, version).name()
    }

    /// A ClusterBootstrap with which nothing is wrong.
    fn good(&self, name: &str) -> Value {
        let antrea = json!({"apiGroup": "cni.tanzu.vmware.com", "kind": "AntreaConfig", "name": "any"});
        json!({
            "apiVersion": "run.tanzu.vmware.com/v1alpha3",
            "kind": "ClusterBootstrap",
            "metadata": {"name": name, "namespace": self.scene.namespace()},
            "spec": {
                "kapp": {"refName": self.package("kapp-controller", "2.0.0")},
                "cni": {"refName": self.package("antrea", "2.0.0"), "valuesFrom": {"providerRef": antrea}},
                "csi": {"refName": self.package("csi", "2.0.0")},
                "additionalPackages": [
                    {"refName": self.package("metrics", "2.0.0"), "valuesFrom": {"secretRef": "values"}},
                    {"refName": self.package("foo", "1.0.0+vmware.1-tkg.2"), "valuesFrom": {"inline": {"a": 1}}},
                ],
            },
        })
    }

    async fn write(
        &self,
        request: http::request::Builder,
        kind: &str,
        body: &Value,
    ) -> Result<Value, kube::Error> {
        let request = request
            .header("content-type", kind)
            .body(body.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        self.scene.client().request(request).await
    }

    /// Applies a merge patch to `object`, and creates the result with dry run.
    async fn create(&self, mut object: Value, change: &Value) -> Result<Value, kube::Error> {
        merge(&mut object, change);
        let plural = format!("{}s", object["kind"].as_str().unwrap_or_default().to_lowercase());
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let path = format!("{RUN}/{namespace}/{plural}?dryRun=All");
        self.write(http::Request::post(path), "application/json", &object)
            .await
    }

    /// Merges a patch into an object that is there; it is not stored.
    async fn patch(&self, path: &str, change: &Value) -> Result<Value, kube::Error> {
        let request = http::Request::patch(format!("{path}?dryRun=All"));
        self.write(request, "application/merge-patch+json", change).await
    }
}

/// RFC 7386.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().map(|target| target.remove(key));
        } else {
            merge(&mut target[key.as_str()], value);
        }
    }
}
