//! The few ways in which objects are written, each with a precondition or with bytes that are always the same.

use std::fmt::Debug;

use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};
use sluice_core::build::FIELD_MANAGER;

/// Creates an object whose content never changes once it exists (identities, content-addressed Secrets).
/// `true` when it was missing.
pub(super) async fn create<K>(api: &Api<K>, object: &K) -> kube::Result<bool>
where
    K: Clone + DeserializeOwned + Debug + Serialize,
{
    match api.create(&params(), object).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

/// Server-side apply under this controller's name.
pub(super) async fn apply<K>(api: &Api<K>, object: &K) -> kube::Result<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Serialize,
{
    api.patch(
        &object.name_any(),
        &PatchParams::apply(FIELD_MANAGER).force(),
        &Patch::Apply(object),
    )
    .await
}

/// Creates the object, or replaces one that says something else. The aggregated Package API knows no server-side apply.
pub(super) async fn put<K>(api: &Api<K>, object: &K, same: impl Fn(&K, &K) -> bool) -> kube::Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Serialize,
{
    if create(api, object).await? {
        return Ok(());
    }
    let found = api.get(&object.name_any()).await?;
    if same(object, &found) {
        return Ok(());
    }
    let mut next = object.clone();
    next.meta_mut().resource_version = found.resource_version();
    api.replace(&object.name_any(), &params(), &next).await.map(drop)
}

/// Deletes exactly this object; one that is gone already is fine.
pub(super) async fn delete<K>(api: &Api<K>, name: &str, uid: Option<String>) -> kube::Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    let preconditions = Preconditions {
        uid,
        resource_version: None,
    };
    let exactly = DeleteParams {
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    match api.delete(name, &exactly).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

pub(super) fn params() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}
