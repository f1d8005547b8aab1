//! Writes that both reconcilers make.

use std::fmt::Debug;

use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};
use serde::de::DeserializeOwned;

/// Deletes exactly this object; one that is gone already is fine.
pub(super) async fn delete<K>(api: &Api<K>, name: &str, uid: Option<String>) -> kube::Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    match api.delete(name, &exactly(uid)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

/// A deletion of the object with this UID, and of no other one of its name.
pub(super) fn exactly(uid: Option<String>) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid,
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}
