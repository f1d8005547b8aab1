//! The object that provides the values of a package: read, and told which package they are for.

use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch},
};
use serde_json::json;
use sluice_core::{
    bootstrap::{Provided, Role},
    build::Values,
    hold::{Hold, HoldReason},
};
use sluice_crds::run::ClusterBootstrapSpec;

use super::{values, write::patch_params};
use crate::controllers::served;

/// The values that the provider of a package has written, or what keeps them from being read.
///
/// # Errors
/// The API server does not answer. What an operator has to put right is a [`Hold`].
pub(super) async fn values(client: &Client, asked: &Provided<'_>) -> kube::Result<Result<Values, Hold>> {
    let (_, provider) = match find(client, asked).await? {
        Ok(found) => found,
        Err(hold) => return Ok(Err(hold)),
    };
    let secret = match asked.secret(&provider) {
        Ok(secret) => secret,
        Err(hold) => return Ok(Err(hold)),
    };
    let field = "status.secretRef of its provider";
    let found = values::find(client, asked.namespace, secret, asked.package, field).await?;
    Ok(found.and_then(|found| {
        asked.check(&provider, found.labels())?;
        Ok(values::content(&found))
    }))
}

/// Labels the provider of the CNI with the CNI's package, if it is not already. Returns what keeps it from being labelled.
///
/// # Errors
/// The API server does not answer, or somebody else has just written the provider.
pub(super) async fn label(
    client: &Client,
    namespace: &str,
    spec: &ClusterBootstrapSpec,
) -> kube::Result<Option<Hold>> {
    let cni = spec.cni.as_ref();
    let Some(asked) = cni.and_then(|cni| Provided::of(namespace, Role::Cni, cni)) else {
        return Ok(None);
    };
    let (Ok((api, provider)), Some((key, value))) = (find(client, &asked).await?, asked.label()) else {
        return Ok(None);
    };
    if asked.is_labelled(&provider) {
        return Ok(None);
    }
    let patch = json!({"metadata": {"resourceVersion": provider.resource_version(), "labels": {key: value}}});
    match api
        .patch_metadata(&asked.by.name, &patch_params(), &Patch::Merge(patch))
        .await
    {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Some(asked.hold(
            HoldReason::WriteRefused,
            &format!(
                "cannot be labelled with this package; allow Sluice to patch it: {}",
                status.message
            ),
        ))),
        Err(error) => Err(error),
    }
}

type Found = (Api<DynamicObject>, DynamicObject);

async fn find(client: &Client, asked: &Provided<'_>) -> kube::Result<Result<Found, Hold>> {
    let missing = |what| Ok(Err(asked.hold(HoldReason::ValuesNotFound, what)));
    let by = asked.by;
    let resource = match asked.ours() {
        Some(ours) => ours,
        None => match served(client, asked.group(), &by.kind).await? {
            Some(served) => served,
            None => return missing("is of a kind that is not served"),
        },
    };
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), asked.namespace, &resource);
    match api.get_opt(&by.name).await? {
        Some(found) => Ok(Ok((api, found))),
        None => missing("does not exist"),
    }
}
