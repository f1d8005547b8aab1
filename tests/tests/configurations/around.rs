//! Kinds of vSphere as far as configurations read them, and reading and writing objects of any kind.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use sluice_tests::requests::apply;
use sluice_tests::scenario::sluice_definitions;
use sluice_tests::wait;

use crate::TIMEOUT;

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const SUPERVISOR: &str = "vmware.infrastructure.cluster.x-k8s.io";

/// Group, kind, plural, and whether it is namespaced.
const KINDS: [(&str, &str, &str, bool); 13] = [
    (INFRASTRUCTURE, "VSphereCluster", "vsphereclusters", true),
    (
        INFRASTRUCTURE,
        "VSphereMachineTemplate",
        "vspheremachinetemplates",
        true,
    ),
    (
        INFRASTRUCTURE,
        "VSphereClusterIdentity",
        "vsphereclusteridentities",
        false,
    ),
    // Only so that Cluster API can tell their version; a Cluster that names what it does not know is slow to be written.
    (INFRASTRUCTURE, "AWSCluster", "awsclusters", true),
    (INFRASTRUCTURE, "AzureCluster", "azureclusters", true),
    (INFRASTRUCTURE, "DockerCluster", "dockerclusters", true),
    (INFRASTRUCTURE, "OCICluster", "ociclusters", true),
    (INFRASTRUCTURE, "PacketCluster", "packetclusters", true),
    (SUPERVISOR, "VSphereCluster", "vsphereclusters", true),
    (
        SUPERVISOR,
        "ProviderServiceAccount",
        "providerserviceaccounts",
        true,
    ),
    ("nsx.vmware.com", "NSXServiceAccount", "nsxserviceaccounts", true),
    (
        "topology.tanzu.vmware.com",
        "AvailabilityZone",
        "availabilityzones",
        false,
    ),
    (
        "controlplane.cluster.x-k8s.io",
        "KubeadmControlPlane",
        "kubeadmcontrolplanes",
        true,
    ),
];

/// Their definitions: structural, and as open as can be.
pub(crate) fn definitions() -> impl Iterator<Item = Value> {
    KINDS.iter().map(|&(group, kind, plural, namespaced)| {
        let versions: &[&str] = match group {
            "controlplane.cluster.x-k8s.io" => &["v1beta1", "v1beta2"],
            "nsx.vmware.com" | "topology.tanzu.vmware.com" => &["v1alpha1"],
            _ => &["v1beta1"],
        };
        let newest = versions.last();
        let versions: Vec<Value> = versions
            .iter()
            .map(|version| {
                json!({
                    "name": version,
                    "served": true,
                    "storage": Some(version) == newest,
                    "schema": {"openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        },
                    }},
                })
            })
            .collect();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{group}"),
                "labels": {"cluster.x-k8s.io/v1beta1": "v1beta1"},
            },
            "spec": {
                "group": group,
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "scope": if namespaced { "Namespaced" } else { "Cluster" },
                "versions": versions,
            },
        })
    })
}

/// The client of what `object` is, in its namespace.
pub(crate) async fn api(client: &Client, object: &Value) -> Result<Api<DynamicObject>> {
    let types = kube::core::TypeMeta {
        api_version: object["apiVersion"].as_str().context("no apiVersion")?.to_owned(),
        kind: object["kind"].as_str().context("no kind")?.to_owned(),
    };
    let (resource, capabilities) = pinned_kind(client, &GroupVersionKind::try_from(&types)?).await?;
    Ok(
        match (capabilities.scope, object["metadata"]["namespace"].as_str()) {
            (Scope::Namespaced, Some(namespace)) => {
                Api::namespaced_with(client.clone(), namespace, &resource)
            }
            _ => Api::all_with(client.clone(), &resource),
        },
    )
}

fn name(object: &Value) -> Result<&str> {
    object["metadata"]["name"].as_str().context("no name")
}

/// Writes an object, and its status where that is a resource of its own.
pub(crate) async fn write(client: &Client, object: &Value) -> Result<DynamicObject> {
    let mut fresh = object.clone();
    if let Some(metadata) = fresh["metadata"].as_object_mut() {
        // The case makes one up; the server gives its own.
        metadata.remove("uid");
    }
    let written = apply::apply(client, &fresh).await?;
    if object["kind"] == "Service" {
        let patch = json!({"status": object["status"]});
        let api = api(client, object).await?;
        api.patch_status(name(object)?, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
    }
    Ok(written)
}

/// Changes an object.
pub(crate) async fn patch(client: &Client, object: &Value, patch: &Value) -> Result<DynamicObject> {
    let api = api(client, object).await?;
    let patched = api
        .patch(name(object)?, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched.with_context(|| format!("patch {} {}", object["kind"], object["metadata"]["name"]))
}

/// The object as it is now.
pub(crate) async fn read(client: &Client, object: &Value) -> Result<Option<DynamicObject>> {
    Ok(api(client, object).await?.get_opt(name(object)?).await?)
}

/// Removes an object and waits until it is gone.
pub(crate) async fn remove(client: &Client, object: &Value) -> Result<()> {
    let api = api(client, object).await?;
    let name = name(object)?;
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        removed => drop(removed?),
    }
    // Cluster API would wait for infrastructure that no controller removes.
    let free = json!({"metadata": {"finalizers": null}});
    match api
        .patch(name, &PatchParams::default(), &Patch::Merge(&free))
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        patched => drop(patched?),
    }
    wait::until(
        format!("{} {name} to be gone", object["kind"]),
        TIMEOUT,
        || async {
            match api.get_opt(name).await? {
                None => Ok(()),
                Some(found) => {
                    let free = Patch::Merge(&free);
                    drop(api.patch(name, &PatchParams::default(), &free).await);
                    wait::not_yet(format!("{:?}", found.metadata.finalizers))
                }
            }
        },
    )
    .await?;
    Ok(())
}

/// The Secret of a configuration.
pub(crate) fn secret(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": name}})
}

/// The status of every configuration, as one text.
pub(crate) async fn statuses(client: &Client) -> Result<String> {
    let mut all = String::new();
    for definition in sluice_definitions()? {
        let kind = definition["spec"]["names"]["kind"].as_str().context("no kind")?;
        if !kind.ends_with("Config") {
            continue;
        }
        let version = &definition["spec"]["versions"][0]["name"];
        let api_version = format!(
            "{}/{}",
            definition["spec"]["group"].as_str().context("no group")?,
            version.as_str().context("no version")?
        );
        let api = api(
            client,
            &json!({"apiVersion": api_version, "kind": kind, "metadata": {}}),
        )
        .await?;
        for object in api.list(&ListParams::default()).await? {
            let (name, status) = (object.name_any(), &object.data["status"]);
            writeln!(all, "{kind} {name}: {status}")?;
        }
    }
    Ok(all)
}

/// A ClusterClass in `namespace`: without it Cluster API takes a new Cluster and refuses to change it. Its templates do not
/// exist, so nothing comes of it.
pub(crate) async fn class(client: &Client, namespace: &str) -> Result<()> {
    apply::namespace(client, namespace).await?;
    let template = |group: &str, kind: &str| json!({"templateRef": {"apiVersion": format!("{group}/v1beta1"), "kind": format!("{kind}Template"), "name": "none"}});
    let class = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "ClusterClass",
        "metadata": {"name": "default", "namespace": namespace},
        "spec": {
            "controlPlane": template("controlplane.cluster.x-k8s.io", "KubeadmControlPlane"),
            "infrastructure": template(INFRASTRUCTURE, "VSphereCluster"),
            "variables": [{
                "name": "proxy",
                "required": false,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    apply::apply(client, &class).await.map(drop)
}
