//! Conditions as Cluster API reads them.

use jiff::Timestamp;
use serde_json::{Value, json};

/// A condition that holds.
pub(super) fn holds(kind: &str, reason: &str) -> Value {
    json!({
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": "",
        "lastTransitionTime": now(),
    })
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
