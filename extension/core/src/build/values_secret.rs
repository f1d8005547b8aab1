//! Secrets with package values.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::{Map, Value};
use sluice_crds::labels::{label, name, secret_type};

use super::{Owner, owner};
use crate::names;

/// The keys of a values Secret: file name to content. Never empty, so that every PackageInstall has a Secret to name.
pub type Values = BTreeMap<String, Vec<u8>>;

/// The immutable Secret that a PackageInstall names. Its name holds the digest of its content.
#[must_use]
pub fn values_secret(
    cluster: &Owner,
    secret: &str,
    namespace: &str,
    package: &str,
    values: &Values,
    on_management: bool,
) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(secret.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(back_references(cluster, package)),
            owner_references: on_management.then(|| vec![owner(cluster, false)]),
            ..ObjectMeta::default()
        },
        type_: Some(secret_type::OPAQUE.to_owned()),
        immutable: Some(true),
        data: Some(data(values)),
        ..Secret::default()
    }
}

/// A Secret of a ClusterBootstrap (`<cluster>-<short>-package`) that holds values of a template.
#[must_use]
pub fn clone_secret(cluster: &Owner, secret: &str, package: &str, values: &Values) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(secret.to_owned()),
            namespace: Some(cluster.namespace.clone()),
            labels: Some(back_references(cluster, package)),
            owner_references: Some(vec![owner(cluster, false)]),
            ..ObjectMeta::default()
        },
        type_: Some(secret_type::CLUSTER_BOOTSTRAP.to_owned()),
        data: Some(data(values)),
        ..Secret::default()
    }
}

/// The values document of values that are written in the ClusterBootstrap itself. JSON is YAML, and always the same bytes.
#[must_use]
pub fn inline_document(inline: &Map<String, Value>) -> Values {
    let document = format!("{}\n", Value::Object(inline.clone()));
    BTreeMap::from([(name::VALUES_KEY.to_owned(), document.into_bytes())])
}

fn data(values: &Values) -> BTreeMap<String, ByteString> {
    values
        .iter()
        .map(|(key, content)| (key.clone(), ByteString(content.clone())))
        .collect()
}

fn back_references(cluster: &Owner, package: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (label::CLUSTER_NAME.to_owned(), cluster.name.clone()),
        (
            label::PACKAGE_NAME.to_owned(),
            names::parse_string_for_label(package),
        ),
    ])
}
