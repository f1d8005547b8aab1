//! Reads the values of a package from wherever the ClusterBootstrap says that they are.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use sluice_core::{
    bootstrap::{Provided, Role},
    build::{Values, inline_document},
    hold::{Hold, HoldReason},
};
use sluice_crds::{labels::name, run::ClusterBootstrapPackage};

use super::provider;

/// Values that say nothing: a PackageInstall names a Secret in any case, because its name carries the stage.
const EMPTY: &[u8] = b"{}\n";

/// The values of `package`, or what keeps them from being read.
///
/// # Errors
/// The API server does not answer. What an operator has to put right is a [`Hold`].
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    role: Role,
    package: &ClusterBootstrapPackage,
) -> kube::Result<Result<Values, Hold>> {
    let of = &package.ref_name;
    let Some(from) = &package.values_from else {
        return Ok(Ok(empty()));
    };
    let provided = Provided::of(namespace, role, package);
    match (&from.inline, &from.secret_ref, provided) {
        (None, None, None) => Ok(Ok(empty())),
        (Some(inline), None, None) => Ok(Ok(inline_document(inline))),
        (None, Some(secret), None) => {
            let found = find(client, namespace, secret, of, "valuesFrom.secretRef").await?;
            Ok(found.map(|found| content(&found)))
        }
        (None, None, Some(provided)) => provider::values(client, &provided).await,
        _ => Ok(Err(Hold::new(
            HoldReason::SeveralValuesSources,
            format!(
                "package {of} has more than one of inline, secretRef and providerRef in valuesFrom; keep one"
            ),
        ))),
    }
}

fn empty() -> Values {
    BTreeMap::from([(name::VALUES_KEY.to_owned(), EMPTY.to_vec())])
}

/// The Secret that `field` names for the values of `package`.
pub(super) async fn find(
    client: &Client,
    namespace: &str,
    secret: &str,
    package: &str,
    field: &str,
) -> kube::Result<Result<Secret, Hold>> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    Ok(api.get_opt(secret).await?.ok_or_else(|| {
        Hold::new(
            HoldReason::ValuesNotFound,
            format!(
                "Secret {namespace}/{secret} with the values of package {package} ({field}) does not exist"
            ),
        )
    }))
}

/// The keys of a Secret as values. One without keys says nothing.
pub(super) fn content(secret: &Secret) -> Values {
    let data = secret.data.as_ref().filter(|data| !data.is_empty());
    data.map_or_else(empty, |data| {
        data.iter()
            .map(|(key, value)| (key.clone(), value.0.clone()))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn a_secret_without_keys_says_nothing() {
        for data in [None, Some(BTreeMap::new())] {
            let secret = Secret {
                data,
                ..Secret::default()
            };
            assert_eq!(content(&secret), empty());
        }
        let data = BTreeMap::from([("a.yaml".to_owned(), ByteString(b"a: 1".to_vec()))]);
        let secret = Secret {
            data: Some(data),
            ..Secret::default()
        };
        assert_eq!(
            content(&secret),
            BTreeMap::from([("a.yaml".to_owned(), b"a: 1".to_vec())])
        );
    }
}
