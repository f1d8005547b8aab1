//! The few ways in which objects are written, each with a precondition.

use std::fmt::Debug;

use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};
use sluice_core::build::{FIELD_MANAGER, Repair, update};
use sluice_crds::foreign::PackageInstall;
use tracing::info;

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

/// Whether the object is there and as it is needed.
pub(super) async fn is_right<K>(
    api: &Api<K>,
    wanted: &K,
    repair: impl Fn(&K, &K) -> Repair<K>,
) -> kube::Result<bool>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let found = api.get_opt(&wanted.name_any()).await?;
    Ok(found.is_some_and(|found| matches!(repair(wanted, &found), Repair::NotNeeded)))
}

/// Creates the object where it is missing, and repairs one that is not as it is needed. `true` when it was either.
pub(super) async fn ensure<K>(
    api: &Api<K>,
    wanted: &K,
    repair: impl Fn(&K, &K) -> Repair<K>,
) -> kube::Result<bool>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Serialize,
{
    let name = wanted.name_any();
    let Some(found) = api.get_opt(&name).await? else {
        return create(api, wanted).await;
    };
    match repair(wanted, &found) {
        Repair::NotNeeded => return Ok(false),
        Repair::Replace(next) => drop(api.replace(&name, &params(), &next).await?),
        Repair::Recreate => {
            delete(api, &name, found.uid()).await?;
            create(api, wanted).await?;
        }
    }
    info!(kind = %K::kind(&()), name, "Repaired what a package needs");
    Ok(true)
}

/// Makes a PackageInstall say what is wanted. Its uid and resourceVersion are those of `found`, so what was written since is
/// never overwritten; without `found` it is created, never replaced. Either way 409 says that `found` is old.
pub(super) async fn install(
    api: &Api<PackageInstall>,
    wanted: &PackageInstall,
    found: Option<&PackageInstall>,
) -> kube::Result<()> {
    let Some(found) = found else {
        return api.create(&params(), wanted).await.map(drop);
    };
    let Some(patch) = update(wanted, found) else {
        return Ok(());
    };
    api.patch(&wanted.name_any(), &patch_params(), &Patch::Merge(&patch))
        .await
        .map(drop)
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

pub(super) fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

#[cfg(test)]
mod tests;
