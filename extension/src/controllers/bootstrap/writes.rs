//! The writes that a pass says, each with its precondition.

use kube::{
    api::{Patch, PatchParams, PostParams},
    core::Request,
};
use serde_json::Value;
use sluice_core::{
    build::FIELD_MANAGER,
    pass::{Failure, Object, Verb, Write},
};
use tracing::{debug, info, warn};

use super::{
    Context,
    reads::{client, failure, path},
};
use crate::{controllers::write::exactly, remote::Remote};

/// Makes one write. Says what the object is now; of a deletion nothing.
pub(super) async fn make(ctx: &Context, remote: Option<&Remote>, write: &Write) -> Result<Object, Failure> {
    let Write { key, why, .. } = write;
    let other = |text: &str| Failure::other(key.server, text);
    let client =
        client(ctx, remote, key.server).ok_or_else(|| other("there is no connection to the workload"))?;
    let request = request(write).map_err(|error| other(&error))?;
    let (kind, name) = (&key.resource.kind, &key.name);
    match client.request::<Value>(request).await {
        Ok(written) => {
            match write.verb {
                Verb::ReplaceStatus => debug!(%kind, name, why, "Wrote a status"),
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

fn request(write: &Write) -> Result<http::Request<Vec<u8>>, String> {
    let Write { key, verb, body, .. } = write;
    let (path, name) = (Request::new(path(key)), key.name.as_str());
    let bytes = || serde_json::to_vec(body).map_err(|error| error.to_string());
    let request = match verb {
        Verb::Create => path.create(&post(), bytes()?),
        Verb::Replace => path.replace(name, &post(), bytes()?),
        Verb::ReplaceStatus => path.replace_subresource("status", name, &post(), bytes()?),
        Verb::Patch => path.patch(name, &patch(), &Patch::Merge(body)),
        Verb::PatchStatus => path.patch_subresource("status", name, &patch(), &Patch::Merge(body)),
        Verb::Apply => path.patch(name, &patch().force(), &Patch::Apply(body)),
        Verb::Delete => path.delete(name, &exactly(body.as_str().map(str::to_owned))),
    };
    request.map_err(|error| error.to_string())
}

fn post() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

fn patch() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}
