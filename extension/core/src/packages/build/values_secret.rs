//! Builds Secrets with package values.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use sluice_crds::labels::{label, name, secret_type};

use super::{Owner, Repair, owner};
use crate::names;

/// Content of a values Secret by file name. Never empty, so that every PackageInstall has a Secret to reference.
pub type Values = BTreeMap<String, Vec<u8>>;

/// Builds the immutable Secret that a PackageInstall references. Its name contains the digest of its content.
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

/// Returns the repair of a values Secret: its content has to match the digest in its name, and it is immutable.
#[must_use]
pub fn repair_values_secret(wanted: &Secret, found: &Secret) -> Repair<Secret> {
    if wanted.data == found.data && found.immutable == Some(true) {
        Repair::NotNeeded
    } else {
        Repair::Recreate
    }
}

/// Builds a Secret of a ClusterBootstrap (`<cluster>-<short>-package`) with values of a template.
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

/// Returns the values document of inline values of the ClusterBootstrap, from their [stored](sluice_crds::FreeForm) text. JSON is valid
/// YAML, and its bytes are stable.
#[must_use]
pub fn inline_document(inline: &str) -> Values {
    let document = format!("{inline}\n");
    BTreeMap::from([(name::VALUES_KEY.to_owned(), document.into_bytes())])
}

fn data(values: &Values) -> BTreeMap<String, ByteString> {
    values
        .iter()
        .map(|(key, content)| (key.clone(), ByteString(content.clone())))
        .collect()
}

/// Returns the labels of objects that belong to a package of a Cluster.
#[must_use]
pub fn back_references(cluster: &Owner, package: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (label::CLUSTER_NAME.to_owned(), cluster.name.clone()),
        (
            label::PACKAGE_NAME.to_owned(),
            names::parse_string_for_label(package),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn secret(content: &str, immutable: bool) -> Secret {
        let cluster = Owner {
            name: "one".to_owned(),
            namespace: "tenant".to_owned(),
            uid: "uid".to_owned(),
        };
        let values = BTreeMap::from([(name::VALUES_KEY.to_owned(), content.as_bytes().to_vec())]);
        Secret {
            immutable: immutable.then_some(true),
            ..values_secret(
                &cluster,
                "one-antrea-data-values-0a",
                "system",
                "antrea.test",
                &values,
                false,
            )
        }
    }

    #[rstest]
    #[case::as_written(secret("a: 1\n", true), Repair::NotNeeded)]
    #[case::of_other_content(secret("a: 2\n", true), Repair::Recreate)]
    #[case::that_may_change(secret("a: 1\n", false), Repair::Recreate)]
    #[case::that_is_empty(Secret { data: None, ..secret("", true) }, Repair::Recreate)]
    fn a_values_secret_matches_its_name(#[case] found: Secret, #[case] expected: Repair<Secret>) {
        assert_eq!(repair_values_secret(&secret("a: 1\n", true), &found), expected);
    }
}
