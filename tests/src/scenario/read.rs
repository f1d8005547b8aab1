//! Reading objects as JSON.

use anyhow::{Context as _, Result};
use kube::Client;
use serde_json::Value;

/// GETs an object.
pub(super) async fn get(client: &Client, path: &str) -> Result<Value> {
    let request = http::Request::get(path).body(Vec::new())?;
    client
        .request(request)
        .await
        .with_context(|| format!("get {path}"))
}

/// A condition of an object, in short: `False ClusterUpgrading: …`; none if the object does not have it.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
}

/// A condition for a message.
pub(super) fn describe(object: &Value, kind: &str) -> String {
    match condition(object, kind) {
        Some(condition) => {
            let field = |name: &str| condition[name].as_str().unwrap_or_default().to_owned();
            format!(
                "{kind} {} {}: {}",
                field("status"),
                field("reason"),
                field("message")
            )
        }
        None => format!("no condition {kind}"),
    }
}
