//! The writes that a pass says, each with its precondition.

use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::Request,
};
use serde_json::Value;
use sluice_core::step::{Failure, Object, Verb, Write};
use tracing::{debug, info, warn};

use super::reads::{client, failure, path};
use crate::remote::Remote;

/// Makes one write under the name `manager`. Says what the object is now; of a deletion nothing.
pub(crate) async fn make(
    management: &Client,
    remote: Option<&Remote>,
    manager: &str,
    write: &Write,
) -> Result<Object, Failure> {
    let Write { key, why, .. } = write;
    let client = client(management, remote, key.server)?;
    let request = request(manager, write).map_err(|error| Failure::other(key.server, &error))?;
    let (kind, name) = (&key.resource.kind, &key.name);
    match client.request::<Value>(request).await {
        Ok(written) => {
            match write.verb {
                Verb::ReplaceStatus | Verb::PatchStatus => debug!(%kind, name, why, "Wrote a status"),
                verb => info!(%kind, name, ?verb, why, "Wrote an object"),
            }
            Ok(Object(written))
        }
        Err(kube::Error::Api(status)) if write.verb == Verb::Delete && status.code == 404 => {
            Ok(Object(Value::Null))
        }
        Err(error) => {
            let failure = failure(key.server, &error);
            if matches!(failure.code, Some(404 | 409 | 503)) {
                debug!(%kind, name, verb = ?write.verb, error = %failure, "Writing an object");
            } else {
                warn!(%kind, name, verb = ?write.verb, error = %failure, "Writing an object");
            }
            Err(failure)
        }
    }
}

fn request(manager: &str, write: &Write) -> Result<http::Request<Vec<u8>>, String> {
    let Write { key, verb, body, .. } = write;
    let (at, name) = (Request::new(path(key)), key.name.as_str());
    let bytes = || serde_json::to_vec(body).map_err(|error| error.to_string());
    let (manager, uid) = (Some(manager.to_owned()), body.as_str().map(str::to_owned));
    let post = PostParams {
        field_manager: manager.clone(),
        ..PostParams::default()
    };
    let patch = PatchParams {
        field_manager: manager,
        ..PatchParams::default()
    };
    // The object with this UID, and no other one of its name.
    let exactly = DeleteParams {
        preconditions: Some(Preconditions {
            uid,
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let request = match verb {
        Verb::Create => at.create(&post, bytes()?),
        Verb::Replace => at.replace(name, &post, bytes()?),
        Verb::ReplaceStatus => at.replace_subresource("status", name, &post, bytes()?),
        Verb::Patch => at.patch(name, &patch, &Patch::Merge(body)),
        Verb::PatchStatus => at.patch_subresource("status", name, &patch, &Patch::Merge(body)),
        Verb::Apply => at.patch(name, &patch.force(), &Patch::Apply(body)),
        Verb::Delete => at.delete(name, &exactly),
    };
    request.map_err(|error| error.to_string())
}
