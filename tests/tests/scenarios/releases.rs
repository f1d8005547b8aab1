//! kubectl columns of releases and of Clusters with available updates.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sluice_tests::objects::Release;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, Table, VERSIONS};
use sluice_tests::stack::{SYSTEM_NAMESPACE, kubelet::Delay};
use sluice_tests::wait::{self, Unmet};

const RELEASES: &str = Release::PATH;
const IMAGES: &str = "/apis/run.tanzu.vmware.com/v1alpha3/osimages";
const BOM: &str = "/api/v1/namespaces/tkg-system/configmaps/bom-metadata";
const MORE: &str = "/api/v1/namespaces/tkg-system/configmaps/more-releases";

/// From a change to what kubectl shows.
const SHOWN: Duration = Duration::from_secs(20);

pub(crate) fn compatibility() -> Scenario {
    Scenario::new(
        "compatibility",
        "COMPATIBLE, READY and labels of releases follow each source of compatibility, which appears, changes and goes; faults have a reason",
        |scene| Box::pin(run_compatibility(scene)),
    )
    // Its sources are of all releases.
    .own_stack()
}

pub(crate) fn updates_available() -> Scenario {
    Scenario::new(
        "updates-available",
        "a Cluster names the releases that it may take next while newer ones appear, are deactivated and go, also over an upgrade",
        |scene| Box::pin(run_updates(scene)),
    )
    // Releases of others would be named as well.
    .own_stack()
}

async fn run_compatibility(scene: Scene) -> Result<()> {
    let old = scene.release(VERSIONS[1], "1.0.0", Delay::NONE)?;
    let new = scene.release(VERSIONS[2], "2.0.0", Delay::NONE)?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let both = |old_is, new_is| [(&old, old_is), (&new, new_is)];
    shows(&scene, both("Unknown", "Unknown"), "neither source").await?;
    let versions = |release: &Release| format!("{}+{}.1", release.kubernetes(), scene.namespace());

    let more = |list: &[String]| {
        config_map(
            "more-releases",
            &json!({"data": {"tkrVersions": json!(list).to_string()}}),
        )
    };
    scene.apply(&[more(&[versions(&old)])]).await?;
    shows(&scene, both("True", "False"), "one release listed as well").await?;
    let excluded = json!({"conditions": [["Compatible", ""], ["Ready", "Incompatible"]], "label": true});
    said_of(&scene, &new, &excluded).await?;
    scene.apply(&[more(&[versions(&old), versions(&new)])]).await?;
    shows(&scene, both("True", "True"), "both listed as well").await?;
    scene.objects().delete(MORE).await?;
    shows(&scene, both("Unknown", "Unknown"), "no source any more").await?;
    said_of(
        &scene,
        &new,
        &json!({"conditions": [["Compatible", "NoCompatibilityData"], ["Ready", ""]], "label": false}),
    )
    .await?;

    let ours = |version| management_cluster(SYSTEM_NAMESPACE, version);
    scene.apply(&[ours(Some("v2.5.2"))]).await?;
    // A label of a tenant does not make its Cluster the management cluster.
    scene
        .apply(&[management_cluster(scene.namespace(), Some("v2.5.1"))])
        .await?;
    scene
        .apply(&[bom(&json!([
            {"version": "v2.5.1", "supportedKubernetesVersions": [versions(&old), versions(&new)]},
            {"version": "v2.5.2", "supportedKubernetesVersions": [versions(&old)]},
        ])
        .to_string())])
        .await?;
    shows(
        &scene,
        both("True", "False"),
        "the management cluster supports one",
    )
    .await?;
    scene.apply(&[ours(Some("v2.5.1"))]).await?;
    shows(
        &scene,
        both("True", "True"),
        "the management cluster supports both",
    )
    .await?;
    scene.apply(&[ours(Some("v2.6.0"))]).await?;
    shows(
        &scene,
        both("False", "False"),
        "the management cluster supports none",
    )
    .await?;
    scene.apply(&[ours(Some("v2.5.1"))]).await?;
    shows(
        &scene,
        both("True", "True"),
        "the management cluster supports both again",
    )
    .await?;
    scene.apply(&[ours(None)]).await?;
    shows(
        &scene,
        both("False", "False"),
        "the management cluster has no version",
    )
    .await?;
    scene.apply(&[bom("[")]).await?;
    shows(&scene, both("Unknown", "Unknown"), "the data cannot be read").await?;
    said_of(
        &scene,
        &new,
        &json!({"conditions": [["Compatible", "CompatibilityDataInvalid"], ["Ready", ""]], "label": false}),
    )
    .await?;
    scene.objects().delete(BOM).await?;
    said_of(
        &scene,
        &new,
        &json!({"conditions": [["Compatible", "NoCompatibilityData"], ["Ready", ""]], "label": false}),
    )
    .await?;

    faults(&scene, &old).await?;
    images(&scene).await
}

/// A release that names what does not exist is at fault until it does; a Cluster on another one is created meanwhile.
async fn faults(scene: &Scene, old: &Release) -> Result<()> {
    let release = |name: &str, spec: Value| {
        json!({
            "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease",
            "metadata": {"name": name}, "spec": spec,
        })
    };
    let spec = |version: &str, image: &str| {
        json!({
            "version": version, "kubernetes": {"version": "v1.35.9"}, "osImages": [{"name": image}], "bootstrapPackages": [],
        })
    };
    let (copy, of) = (
        format!("{}---copy", old.name()),
        format!("{}+{}.1", old.kubernetes(), scene.namespace()),
    );
    let bad = [
        ("v1.35.9---image.1", "v1.35.9+image.1", "noble", "OSImageNotFound"),
        ("latest", "latest", "noble", "VersionInvalid"),
        (copy.as_str(), of.as_str(), "noble", "DuplicateVersion"),
    ];
    for (name, version, image, reason) in bad {
        scene.apply(&[release(name, spec(version, image))]).await?;
        condition_is(scene, &format!("{RELEASES}/{name}"), "Valid", reason).await?;
        condition_is(scene, &format!("{RELEASES}/{name}"), "Ready", "Invalid").await?;
    }
    condition_is(scene, &format!("{RELEASES}/{}", old.name()), "Valid", "").await?;
    scene.cluster("one").create_settled(old).await?;
    scene.apply(&[image("noble", "v1.35.9")]).await?;
    condition_is(scene, &format!("{RELEASES}/v1.35.9---image.1"), "Valid", "").await?;
    condition_is(scene, &format!("{RELEASES}/v1.35.9---image.1"), "Ready", "").await?;
    for (name, ..) in bad {
        scene.objects().delete(&format!("{RELEASES}/{name}")).await?;
    }
    Ok(())
}

/// An image is found by its labels, and shown with its columns.
async fn images(scene: &Scene) -> Result<()> {
    let selector = "os-name%3Dubuntu,image-type%3Dami,ami-region%3Dus-east-1,v1.35,!invalid";
    let path = format!("{IMAGES}?labelSelector={selector}");
    wait::until("the OSImage to be selected by its labels", SHOWN, || async {
        let table = Table::get(&scene.client(), &path).await?;
        match table.row("noble") {
            Some(row)
                if row["READY"] == "True"
                    && row["K8S VERSION"] == "v1.35.9"
                    && row["OS NAME"] == "ubuntu" =>
            {
                Ok(())
            }
            _ => wait::not_yet(table),
        }
    })
    .await?;
    scene.objects().delete(&format!("{IMAGES}/noble")).await
}

async fn run_updates(scene: Scene) -> Result<()> {
    let old = scene.release(VERSIONS[1], "1.0.0", Delay::NONE)?;
    scene.publish(&old).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let since = names(&cluster, "False", "AlreadyUpToDate", "").await?;

    let new = scene.release(VERSIONS[2], "2.0.0", Delay::NONE)?;
    scene.publish(&new).await?;
    let version = |release: &Release| format!("{}+{}.1", release.kubernetes(), scene.namespace());
    let newest = "v1.35.99+b.1";
    scene.apply(&[newer("v1.35.99---b.1", newest)]).await?;
    let both = format!("[{newest} {}]", version(&new));
    let changed = names(&cluster, "True", "UpdatesAvailable", &both).await?;
    ensure!(since != changed, "the condition changed without a new time");
    let shown = Table::get(&scene.client(), RELEASES).await?;
    let columns = [
        "NAME",
        "VERSION",
        "READY",
        "COMPATIBLE",
        "UPDATES AVAILABLE",
        "CREATED",
        "REASON",
    ];
    ensure!(
        shown.columns == columns,
        "columns of kubectl get tkr: {:?}",
        shown.columns
    );
    shows_updates(&scene, &old, &both).await?;
    shows_updates(&scene, &new, "").await?;

    let path = format!("{RELEASES}/v1.35.99---b.1");
    let label = |value: Value| json!({"metadata": {"labels": {"deactivated": value}}});
    scene.objects().merge(&path, &label(json!(""))).await?;
    let only = format!("[{}]", version(&new));
    names(&cluster, "True", "UpdatesAvailable", &only).await?;
    condition_is(&scene, &path, "Ready", "Deactivated").await?;
    scene.objects().merge(&path, &label(Value::Null)).await?;
    names(&cluster, "True", "UpdatesAvailable", &both).await?;
    scene.objects().delete(&path).await?;
    let kept = names(&cluster, "True", "UpdatesAvailable", &only).await?;
    ensure!(
        kept == changed,
        "the time of the last transition was not kept: {changed}, then {kept}"
    );

    // Cluster API writes conditions of its own all the while.
    let before = cluster.upgrade(&new).await?;
    cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT * 2)
        .await?;
    cluster.is_settled(TIMEOUT * 2).await?;
    names(&cluster, "False", "AlreadyUpToDate", "").await?;
    survives(&cluster).await
}

/// Cluster API writes the status of the Cluster again, and keeps the condition.
async fn survives(cluster: &Cluster) -> Result<()> {
    let count = |cluster: &Value| {
        let conditions = cluster["status"]["conditions"].as_array().into_iter().flatten();
        conditions
            .filter(|condition| condition["type"] == "UpdatesAvailable")
            .count()
    };
    let pool = json!({"class": "default", "name": "md", "replicas": 1});
    cluster
        .patch(&json!({"spec": {"topology": {"workers": {"machineDeployments": [pool]}}}}))
        .await?;
    let what = "a worker to be available".to_owned();
    cluster
        .until(what, TIMEOUT, |cluster| {
            match &cluster["status"]["workers"]["availableReplicas"] {
                available if *available == 1 => Ok(()),
                _ => wait::not_yet(&cluster["status"]["workers"]),
            }
        })
        .await?;
    cluster.is_settled(TIMEOUT).await?;
    ensure!(
        count(&cluster.object().await?) == 1,
        "Cluster API dropped the condition"
    );
    Ok(())
}

/// Waits until condition UpdatesAvailable of the Cluster matches. Returns the time of the last transition.
async fn names(cluster: &Cluster, status: &str, reason: &str, message: &str) -> Result<String> {
    let what = format!("UpdatesAvailable {status} {reason}: {message}");
    cluster
        .until(what, SHOWN, |cluster| {
            let conditions = cluster["status"]["conditions"].as_array().into_iter().flatten();
            let found = conditions
                .into_iter()
                .find(|condition| condition["type"] == "UpdatesAvailable");
            match found {
                Some(found)
                    if found["status"] == status
                        && found["reason"] == reason
                        && found["message"] == message =>
                {
                    Ok(found["lastTransitionTime"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned())
                }
                found => wait::not_yet(format!("{found:?}")),
            }
        })
        .await
}

async fn shows_updates(scene: &Scene, release: &Release, expected: &str) -> Result<()> {
    let what = format!("UPDATES AVAILABLE of {} to be {expected:?}", release.name());
    wait::until(what, SHOWN, || async {
        let table = Table::get(&scene.client(), RELEASES).await?;
        let row = table.row(&release.name()).context("no row")?;
        if row["UPDATES AVAILABLE"] == expected {
            Ok(())
        } else {
            wait::not_yet(&table)
        }
    })
    .await?;
    Ok(())
}

/// Waits until `kubectl get tkr` shows this in column COMPATIBLE, and READY as it follows from it.
async fn shows(scene: &Scene, releases: [(&Release, &str); 2], when: &str) -> Result<()> {
    wait::until(format!("COMPATIBLE with {when}"), SHOWN, || async {
        let table = Table::get(&scene.client(), RELEASES).await?;
        for (release, compatible) in releases {
            let row = table.row(&release.name()).context("no row")?;
            let ready = if compatible == "False" { "False" } else { "True" };
            if row["COMPATIBLE"] != compatible || row["READY"] != ready {
                return wait::not_yet(&table);
            }
        }
        Ok(())
    })
    .await?;
    Ok(())
}

/// Waits until conditions of a release have these reasons, and it has or lacks the label that excludes it.
async fn said_of(scene: &Scene, release: &Release, expected: &Value) -> Result<()> {
    let path = format!("{RELEASES}/{}", release.name());
    let said = expected["conditions"].as_array().context("no conditions")?;
    for pair in said {
        let (Some(type_), Some(reason)) = (pair[0].as_str(), pair[1].as_str()) else {
            continue;
        };
        condition_is(scene, &path, type_, reason).await?;
    }
    let object = scene.objects().get(&path).await?.context("no release")?;
    let label = object["metadata"]["labels"].get("incompatible").is_some();
    ensure!(
        expected["label"] == label,
        "label incompatible: {}",
        object["metadata"]["labels"]
    );
    Ok(())
}

async fn condition_is(scene: &Scene, path: &str, type_: &str, reason: &str) -> Result<()> {
    wait::until(
        format!("{type_} of {path} to have reason {reason:?}"),
        SHOWN,
        || async {
            let object = scene.objects().get(path).await?.context("it is not there")?;
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            let found = conditions
                .into_iter()
                .find(|condition| condition["type"] == type_);
            let is = found.map(|condition| condition["reason"].as_str().unwrap_or_default());
            if is == Some(reason) {
                Ok(())
            } else {
                Err(Unmet::NotYet(object["status"].to_string()))
            }
        },
    )
    .await?;
    Ok(())
}

/// A release that nothing is installed from.
fn newer(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease",
        "metadata": {"name": name},
        "spec": {"version": version, "kubernetes": {"version": "v1.35.99"}, "bootstrapPackages": []},
    })
}

fn image(name: &str, kubernetes: &str) -> Value {
    json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "OSImage", "metadata": {"name": name},
        "spec": {
            "kubernetesVersion": kubernetes,
            "os": {"type": "linux", "name": "ubuntu", "version": "24.04", "arch": "amd64"},
            "image": {"type": "ami", "ref": {"id": "ami-0123", "region": "us-east-1", "path": "a/b"}},
        },
    })
}

fn config_map(name: &str, data: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": name, "namespace": SYSTEM_NAMESPACE,
            "labels": {"run.tanzu.vmware.com/additional-compatible-tkrs": ""},
        },
    });
    if let (Some(object), Some(data)) = (object.as_object_mut(), data.as_object()) {
        object.extend(data.clone());
    }
    object
}

/// `bom-metadata` with these entries, as YAML.
fn bom(entries: &str) -> Value {
    let text = format!("version: v1\nmanagementClusterVersions: {entries}\n");
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "bom-metadata", "namespace": SYSTEM_NAMESPACE},
        "binaryData": {"compatibility": BASE64_STANDARD.encode(text)},
    })
}

/// The Cluster of the management cluster, which has no topology here.
fn management_cluster(namespace: &str, version: Option<&str>) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {
            "name": "management", "namespace": namespace,
            "labels": {"cluster-role.tkg.tanzu.vmware.com/management": ""},
            "annotations": version.map(|version| json!({"TKGVERSION": version})),
        },
        "spec": {"infrastructureRef": {
            "apiGroup": "harness.test", "kind": "HarnessCluster", "name": "management",
        }},
    })
}
