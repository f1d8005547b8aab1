//! Releases that come as packages of one PackageRepository.

mod broken;
mod installed;
mod removed;

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sluice_tests::objects::Release;
use sluice_tests::repository::TkrPackage;
use sluice_tests::scenario::Scene;
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::wait;

pub(crate) use broken::scenario as broken;
pub(crate) use installed::scenario as installed;
pub(crate) use removed::scenario as removed;

/// Timeout from a PackageRepository to its objects: kapp-controller fetches the repository and each Package, and kapp applies both.
const INSTALLED: Duration = Duration::from_mins(3);

/// The path of an OSImage.
fn image_path(name: &str) -> String {
    format!("/apis/run.tanzu.vmware.com/v1alpha3/osimages/{name}")
}

/// An OSImage for a Kubernetes version.
fn image(name: &str, kubernetes: &str) -> Value {
    json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "OSImage", "metadata": {"name": name},
        "spec": {
            "kubernetesVersion": kubernetes,
            "os": {"type": "linux", "name": "ubuntu", "version": "24.04", "arch": "amd64"},
            "image": {"type": "ami", "ref": {"id": "ami-0123"}},
        },
    })
}

/// Paths of the parts of a release except the release itself: its Packages, values and template.
fn paths(release: &Release) -> Vec<String> {
    let objects = release.objects();
    let parts = objects.iter().filter_map(|object| {
        let name = object["metadata"]["name"].as_str()?;
        let (group, plural) = match object["kind"].as_str()? {
            "Package" => ("apis/data.packaging.carvel.dev/v1alpha1", "packages"),
            "Secret" => ("api/v1", "secrets"),
            "ClusterBootstrapTemplate" => ("apis/run.tanzu.vmware.com/v1alpha3", "clusterbootstraptemplates"),
            "AntreaConfig" => ("apis/cni.tanzu.vmware.com/v1alpha1", "antreaconfigs"),
            _ => return None,
        };
        Some(format!("/{group}/namespaces/{SYSTEM_NAMESPACE}/{plural}/{name}"))
    });
    parts.collect()
}

/// Waits until a release can be used.
async fn is_ready(scene: &Scene, release: &str) -> Result<()> {
    let path = format!("{}/{release}", Release::PATH);
    until(scene, &path, format!("{release} to be Ready"), |release| {
        condition(release, "Ready").is_some_and(|ready| ready["status"] == "True")
    })
    .await
    .map(drop)
}

/// Waits until the object of a path is so.
async fn until(scene: &Scene, path: &str, what: String, is: impl Fn(&Value) -> bool) -> Result<Value> {
    let found = wait::until(what, INSTALLED, || async {
        match scene.objects().get(path).await? {
            Some(object) if is(&object) => Ok(object),
            Some(object) => wait::not_yet(&object["status"]),
            None => wait::not_yet(format!("no {path}")),
        }
    });
    Ok(found.await?)
}

/// Waits until there is no object of a path.
async fn is_gone(scene: &Scene, path: &str) -> Result<()> {
    wait::until(format!("{path} to be gone"), INSTALLED, || async {
        match scene.objects().get(path).await? {
            None => Ok(()),
            Some(object) => wait::not_yet(&object["status"]),
        }
    })
    .await?;
    Ok(())
}

/// Waits until kapp-controller reports the PackageInstall of a Package as installed.
async fn is_installed(scene: &Scene, package: &TkrPackage) -> Result<Value> {
    let what = format!("{} to be installed", package.name());
    until(scene, &package.install_path(), what, |install| {
        let generation = &install["metadata"]["generation"];
        condition(install, "ReconcileSucceeded").is_some()
            && install["status"]["observedGeneration"] == *generation
    })
    .await
}

fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == type_)
}

/// The object of a path, which has to exist.
async fn there(scene: &Scene, path: &str) -> Result<Value> {
    let found = scene.objects().get(path).await?;
    found.with_context(|| format!("there is no {path}"))
}
