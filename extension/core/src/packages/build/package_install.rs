//! Builds PackageInstalls, on the management cluster and in workload clusters.

use std::{cmp::Ordering, collections::BTreeMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};
use sluice_crds::{
    foreign::{
        PackageInstall,
        packaging::{
            KubeconfigSecretRef, PackageInstallSpec, PackageRef, Prereleases, SecretRef, TargetCluster,
            Values, VersionSelection,
        },
    },
    labels::{annotation, name},
};

use super::{FIELD_MANAGER, Owner, owner};
use crate::version::order;

/// Location of a PackageInstall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// Namespace of the Cluster; kapp-controller connects to the workload cluster with its kubeconfig.
    Management,
    /// In this namespace of the workload cluster.
    Workload(&'a str),
}

/// Desired installation of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Install<'a> {
    /// Name of the PackageInstall.
    pub name: &'a str,
    /// Location.
    pub place: Place<'a>,
    /// `Package.spec.refName`.
    pub ref_name: &'a str,
    /// `Package.spec.version`, as an exact constraint.
    pub version: &'a str,
    /// Name of the values Secret in the same namespace.
    pub values: &'a str,
    /// Resync interval of kapp-controller, by [`sync_period`](super::sync_period).
    pub sync_period: &'a str,
}

/// Builds the PackageInstall of one package of `cluster`.
#[must_use]
pub fn install(cluster: &Owner, wanted: &Install<'_>) -> PackageInstall {
    let (namespace, target, account, owners) = match wanted.place {
        Place::Management => (
            cluster.namespace.as_str(),
            Some(target(cluster)),
            None,
            Some(vec![owner(cluster, false)]),
        ),
        Place::Workload(namespace) => (namespace, None, Some(name::SERVICE_ACCOUNT.to_owned()), None),
    };
    PackageInstall {
        metadata: ObjectMeta {
            name: Some(wanted.name.to_owned()),
            namespace: Some(namespace.to_owned()),
            annotations: Some(BTreeMap::from([
                (annotation::CLUSTER_NAME.to_owned(), cluster.name.clone()),
                (
                    annotation::CLUSTER_NAMESPACE.to_owned(),
                    cluster.namespace.clone(),
                ),
            ])),
            owner_references: owners,
            ..ObjectMeta::default()
        },
        spec: PackageInstallSpec {
            service_account_name: account,
            // The whole cluster is deleted: uninstalling its kapp-controller first would only remove the uninstaller.
            noop_delete: target.is_some(),
            cluster: target,
            package_ref: Some(PackageRef {
                ref_name: wanted.ref_name.to_owned(),
                version_selection: Some(VersionSelection {
                    constraints: Some(wanted.version.to_owned()),
                    prereleases: Some(Prereleases::default()),
                }),
            }),
            values: vec![Values {
                secret_ref: Some(SecretRef {
                    name: wanted.values.to_owned(),
                    key: None,
                }),
            }],
            sync_period: Some(wanted.sync_period.to_owned()),
            ..PackageInstallSpec::default()
        },
        status: None,
    }
}

fn target(cluster: &Owner) -> TargetCluster {
    TargetCluster {
        namespace: None,
        kubeconfig_secret_ref: Some(KubeconfigSecretRef {
            name: format!("{}{}", cluster.name, name::KUBECONFIG_SUFFIX),
            key: Some(name::KUBECONFIG_KEY.to_owned()),
        }),
    }
}

/// Returns the merge patch (RFC 7386) from `found` to `wanted`; `None` if none is needed.
///
/// The patch carries uid and resourceVersion of `found`, so the API server rejects it if the object was written or replaced since. It
/// contains the spec fields that this controller sets, each as a whole. All other content belongs to others and stays: pauses, fields
/// of newer kapp-controllers, and foreign annotations, labels, finalizers and owners.
#[must_use]
pub fn update(wanted: &PackageInstall, found: &PackageInstall) -> Option<Value> {
    let metadata = metadata_update(wanted, found);
    let spec = merge_patch(&own_fields(&found.spec), &own_fields(&wanted.spec));
    if metadata.is_empty() && spec.is_none() {
        return None;
    }
    let mut patch = json!({"metadata": {
        "uid": found.metadata.uid,
        "resourceVersion": found.metadata.resource_version,
    }});
    for (field, value) in metadata {
        patch["metadata"][field] = value;
    }
    if let Some(spec) = spec {
        patch["spec"] = spec;
    }
    Some(patch)
}

/// Whether the specs of `found` and `wanted` match in the fields that this controller sets, independent of metadata.
#[must_use]
pub fn specs_match(found: &PackageInstall, wanted: &PackageInstall) -> bool {
    own_fields(&found.spec) == own_fields(&wanted.spec)
}

/// Returns the spec fields that this controller sets.
fn own_fields(spec: &PackageInstallSpec) -> Value {
    json!({
        "serviceAccountName": spec.service_account_name,
        "cluster": spec.cluster,
        "packageRef": spec.package_ref,
        "values": spec.values,
        "noopDelete": spec.noop_delete,
        "syncPeriod": spec.sync_period,
    })
}

/// Returns the differing annotations, and all owners if one is missing.
fn metadata_update(wanted: &PackageInstall, found: &PackageInstall) -> Map<String, Value> {
    let downgradable = downgradable_update(wanted, found);
    let (wanted, found) = (&wanted.metadata, &found.metadata);
    let there = found.annotations.iter().flatten().collect::<BTreeMap<_, _>>();
    let annotations: Map<String, Value> = wanted
        .annotations
        .iter()
        .flatten()
        .filter(|(key, value)| there.get(key) != Some(value))
        .map(|(key, value)| (key.clone(), json!(value)))
        .chain(downgradable.map(|value| (annotation::DOWNGRADABLE.to_owned(), value)))
        .collect();
    let mut owners = found.owner_references.clone().unwrap_or_default();
    let known = owners.len();
    for owner in wanted.owner_references.iter().flatten() {
        if !owners.iter().any(|other| other.uid == owner.uid) {
            owners.push(owner.clone());
        }
    }
    let mut update = Map::new();
    if !annotations.is_empty() {
        update.insert("annotations".to_owned(), Value::Object(annotations));
    }
    if owners.len() > known {
        update.insert("ownerReferences".to_owned(), json!(owners));
    }
    update
}

/// Returns the new value of the annotation that permits kapp-controller to deploy a version lower than the last attempted one
/// (`pkg/packageinstall`); `None` if it stays. An annotation of a user has another value, and stays.
fn downgradable_update(wanted: &PackageInstall, found: &PackageInstall) -> Option<Value> {
    let version = |of: &PackageInstall| {
        let selection = of.spec.package_ref.as_ref()?.version_selection.as_ref()?;
        selection.constraints.clone()
    };
    let tried = found
        .status
        .as_ref()
        .and_then(|status| status.last_attempted_version.as_deref());
    let lower = version(wanted)
        .zip(tried)
        .is_some_and(|(version, tried)| order(&version, tried) == Some(Ordering::Less));
    let annotations = found.metadata.annotations.as_ref();
    let set_to = annotations.and_then(|annotations| annotations.get(annotation::DOWNGRADABLE));
    match set_to.map(String::as_str) {
        None if lower => Some(json!(FIELD_MANAGER)),
        Some(FIELD_MANAGER) if !lower => Some(Value::Null),
        _ => None,
    }
}

/// Returns the RFC 7386 patch from `found` to `wanted`; `None` if they are equal.
fn merge_patch(found: &Value, wanted: &Value) -> Option<Value> {
    match (found, wanted) {
        _ if found == wanted => None,
        (Value::Object(found), Value::Object(wanted)) => {
            let gone = found.keys().filter(|key| !wanted.contains_key(*key));
            let patch: Map<String, Value> = gone
                .map(|key| (key.clone(), Value::Null))
                .chain(wanted.iter().filter_map(|(key, wanted)| {
                    let patch = merge_patch(found.get(key).unwrap_or(&Value::Null), wanted)?;
                    Some((key.clone(), patch))
                }))
                .collect();
            Some(Value::Object(patch))
        }
        _ => Some(wanted.clone()),
    }
}

#[cfg(test)]
mod tests;
