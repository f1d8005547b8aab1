//! Writes of a reconcile, each with its precondition.

use kube::Client;
use serde_json::Value;
use sluice_core::protocol::{Failure, Object, Verb, Write};
use tracing::{debug, info, warn};

use super::reads::request;

/// Executes one write with the client of its server and the field manager `manager`. Returns the written object, empty for a deletion.
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
            if failure.is_expected() {
                debug!(%kind, name, ?verb, error = %failure, "Failed to write object");
            } else {
                warn!(%kind, name, ?verb, error = %failure, "Failed to write object");
            }
            Err(failure)
        }
    }
}
