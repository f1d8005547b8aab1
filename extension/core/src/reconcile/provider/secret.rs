//! Values Secret of a configuration.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::Cluster,
    labels::{annotation, label, name, secret_type},
};

use super::{
    Configuration, Context, Step,
    objects::{reference, with_owners},
};
use crate::{
    names,
    protocol::{Key, ReadPhase, Server, Write},
    providers::{Output, Problem, Reason},
};

/// Returns the desired Secret.
pub(super) fn wanted(config: &Configuration, cluster: &Cluster, output: &Output) -> Result<Secret, Problem> {
    let name = names::provider_values_secret(&cluster.name_any(), output.addon)
        .map_err(|error| Problem::new(Reason::NameTooLong, format!("Secret with values: {error}")))?;
    let package = config.object.labels().get(label::PACKAGE_NAME).cloned();
    let package = package.map(|package| (label::PACKAGE_NAME.to_owned(), package));
    let labels = [(label::CLUSTER_NAME.to_owned(), cluster.name_any())];
    let by = (
        annotation::CONFIGURATION_UID.to_owned(),
        config.object.uid().unwrap_or_default(),
    );
    let data = output.document().into_iter();
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(config.namespace()),
            labels: Some(labels.into_iter().chain(package).collect()),
            annotations: Some([by].into()),
            owner_references: Some(vec![reference(cluster)]),
            ..ObjectMeta::default()
        },
        type_: Some(secret_type::OPAQUE.to_owned()),
        data: Some(data.map(|(key, content)| (key, ByteString(content))).collect()),
        ..Secret::default()
    })
}

/// Package whose Secret the addons-manager completes.
const KAPP_CONTROLLER: &str = "kapp-controller";

/// Writes the Secret of the package `addon`, if it differs. The write fails with 409 if another leader wrote the Secret since the read.
pub(super) fn write(context: &Context<'_>, wanted: &Secret, addon: &str) -> Step<()> {
    const WHY: &str = "values of the configuration";
    let namespace = wanted.namespace();
    let (server, name) = (Server::Management, wanted.name_any());
    let write = match context.read::<Secret>(&name, (server, namespace.as_deref()), ReadPhase::Plan)? {
        None => Write::create(server, wanted, WHY),
        Some(found) => {
            let patch = patch(wanted, &found, addon);
            let Some(patch) = patch else {
                return Ok(());
            };
            Write::patch(Key::of::<Secret>(server, namespace.as_deref(), &name), patch, WHY)
        }
    };
    context.write(write).map(drop)
}

/// Returns the patch from `found` to `wanted`; `None` if they match. Other labels, annotations and owners stay. In the Secret of
/// kapp-controller, so do values that the addons-manager added for a Supervisor: its PackageInstall takes them from this Secret, and Sluice
/// replaces them for its own. In Secrets of other packages they would reach the workload cluster.
fn patch(wanted: &Secret, found: &Secret, addon: &str) -> Option<Value> {
    let within = |wanted: &BTreeMap<String, String>, found: &BTreeMap<String, String>| {
        wanted.iter().all(|(key, value)| found.get(key) == Some(value))
    };
    let owners = with_owners(found.owner_references(), wanted.owner_references());
    let for_supervisor = found
        .data
        .iter()
        .flatten()
        .filter(|(key, _)| addon == KAPP_CONTROLLER && *key == name::TKGS_VALUES_KEY)
        .map(|(key, content)| (key.clone(), content.clone()));
    let mut wanted_data = wanted.data.clone().unwrap_or_default();
    wanted_data.extend(for_supervisor);
    if Some(&wanted_data) == found.data.as_ref()
        && within(wanted.labels(), found.labels())
        && within(wanted.annotations(), found.annotations())
        && owners.is_none()
    {
        return None;
    }
    // A merge patch keeps keys that it omits.
    let mut data: BTreeMap<&String, Value> = found
        .data
        .iter()
        .flatten()
        .map(|(key, _)| (key, Value::Null))
        .collect();
    data.extend(wanted_data.iter().map(|(key, content)| (key, json!(content))));
    let mut metadata = json!({
        "uid": found.metadata.uid,
        "resourceVersion": found.metadata.resource_version,
        "labels": wanted.metadata.labels, "annotations": wanted.metadata.annotations,
    });
    if let Some(owners) = owners {
        metadata["ownerReferences"] = json!(owners);
    }
    Some(json!({"metadata": metadata, "type": wanted.type_, "data": data}))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::of_kapp_controller(KAPP_CONTROLLER, false)]
    #[case::of_another_package("antrea", true)]
    fn values_for_a_supervisor_stay_in_one_secret(#[case] addon: &str, #[case] removes: bool) {
        let with = |keys: &[&str]| Secret {
            data: Some(
                keys.iter()
                    .map(|key| ((*key).to_owned(), ByteString::default()))
                    .collect(),
            ),
            ..Secret::default()
        };
        let found = with(&[name::VALUES_KEY, name::TKGS_VALUES_KEY]);
        let patch = patch(&with(&[name::VALUES_KEY]), &found, addon);
        assert_eq!(patch.is_some(), removes);
        if let Some(patch) = patch {
            assert_eq!(patch["data"].get(name::TKGS_VALUES_KEY), Some(&Value::Null));
        }
    }
}
