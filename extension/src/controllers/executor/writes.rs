//! The writes that a pass says, each with its precondition.

use kube::Client;
use serde_json::Value;
use sluice_core::protocol::{Failure, Object, Verb, Write};
use tracing::{debug, info, warn};

use super::reads::request;

/// Makes one write with the client of its server, under the name `manager`. Says what the object is now; of a deletion nothing.
pub(crate) async fn make(client: &Client, manager: &str, write: &Write) -> Result<Object, Failure> {
    let Write { key, verb, why, .. } = write;
    let (kind, name) = (&key.resource.kind, &key.name);
    match request(client, key.server, write.request(manager)?).await {
        Ok(text) => {
            let written = Object::written(key, &text)?;
            match verb {
                Verb::ReplaceStatus | Verb::PatchStatus => debug!(%kind, name, why, "Wrote a status"),
                _ => info!(%kind, name, ?verb, why, "Wrote an object"),
            }
            Ok(written)
        }
        Err(failure) if *verb == Verb::Delete && failure.code == Some(404) => Ok(Object(Value::Null)),
        Err(failure) => {
            if failure.is_usual() {
                debug!(%kind, name, ?verb, error = %failure, "Writing an object");
            } else {
                warn!(%kind, name, ?verb, error = %failure, "Writing an object");
            }
            Err(failure)
        }
    }
}
