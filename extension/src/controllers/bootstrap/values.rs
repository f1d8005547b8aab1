//! Reads the values of a package from wherever the ClusterBootstrap says that they are.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, api::DynamicObject, discovery};
use serde_json::Value;
use sluice_core::{
    build::{Values, inline_document},
    hold::{Hold, HoldReason},
};
use sluice_crds::{
    labels::name,
    run::{ClusterBootstrapPackage, TypedLocalObjectReference},
};

/// Values that say nothing: a PackageInstall names a Secret in any case, because its name carries the stage.
const EMPTY: &[u8] = b"{}\n";

/// The values of `package`, or what keeps them from being read.
///
/// # Errors
/// The API server does not answer. What an operator has to put right is a [`Hold`].
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    package: &ClusterBootstrapPackage,
) -> kube::Result<Result<Values, Hold>> {
    let of = &package.ref_name;
    let Some(from) = &package.values_from else {
        return Ok(Ok(empty()));
    };
    match (&from.inline, &from.secret_ref, &from.provider_ref) {
        (None, None, None) => Ok(Ok(empty())),
        (Some(inline), None, None) => Ok(Ok(inline_document(inline))),
        (None, Some(secret), None) => {
            secret_values(client, namespace, secret, of, "valuesFrom.secretRef").await
        }
        (None, None, Some(provider)) => provider_values(client, namespace, provider, of).await,
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

async fn secret_values(
    client: &Client,
    namespace: &str,
    secret: &str,
    package: &str,
    field: &str,
) -> kube::Result<Result<Values, Hold>> {
    let found = Api::<Secret>::namespaced(client.clone(), namespace)
        .get_opt(secret)
        .await?;
    Ok(found.map(|found| content(&found)).ok_or_else(|| {
        Hold::new(
            HoldReason::ValuesNotFound,
            format!(
                "Secret {namespace}/{secret} with the values of package {package} ({field}) does not exist"
            ),
        )
    }))
}

/// The contract with every configuration kind, known or not: `status.secretRef` names a Secret beside the object.
async fn provider_values(
    client: &Client,
    namespace: &str,
    provider: &TypedLocalObjectReference,
    package: &str,
) -> kube::Result<Result<Values, Hold>> {
    let TypedLocalObjectReference {
        api_group,
        kind,
        name,
    } = provider;
    let missing = |reason, what: &str| {
        Hold::new(
            reason,
            format!("{kind} {namespace}/{name} with the values of package {package} {what}"),
        )
    };
    let group = match discovery::group(client, api_group.as_deref().unwrap_or_default()).await {
        Ok(group) => group,
        Err(kube::Error::Discovery(_)) => {
            return Ok(Err(missing(
                HoldReason::ValuesNotFound,
                "is of a kind that is not served",
            )));
        }
        Err(error) => return Err(error),
    };
    let Some((resource, _)) = group.recommended_kind(kind) else {
        return Ok(Err(missing(
            HoldReason::ValuesNotFound,
            "is of a kind that is not served",
        )));
    };
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let Some(found) = api.get_opt(name).await? else {
        return Ok(Err(missing(HoldReason::ValuesNotFound, "does not exist")));
    };
    // A controller that says which generation its status is about has to have seen the latest.
    let observed = found
        .data
        .pointer("/status/observedGeneration")
        .and_then(Value::as_i64);
    if observed.is_some() && observed != found.metadata.generation {
        return Ok(Err(missing(
            HoldReason::ValuesNotReady,
            "was changed, and its values were not yet",
        )));
    }
    match found
        .data
        .pointer("/status/secretRef")
        .and_then(|secret| secret.as_str())
        .filter(|s| !s.is_empty())
    {
        Some(secret) => {
            secret_values(
                client,
                namespace,
                secret,
                package,
                "status.secretRef of its provider",
            )
            .await
        }
        None => Ok(Err(missing(
            HoldReason::ValuesNotReady,
            "names no Secret in status.secretRef yet",
        ))),
    }
}

/// The keys of a Secret as values.
pub(super) fn content(secret: &Secret) -> Values {
    secret
        .data
        .iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.0.clone()))
        .collect()
}
