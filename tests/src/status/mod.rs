//! Clients of the status service: one in Go, generated from the shipped `.proto`, and the verbs of the release binary.

mod caller;
mod go_client;

pub use caller::{Caller, Rights};
pub use go_client::GoClient;

use serde_json::Value;

/// The JSON objects in the output of a client, one per line; other lines are standard error.
#[must_use]
pub fn messages(printed: &str) -> Vec<Value> {
    let lines = printed.lines().filter(|line| line.starts_with('{'));
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}
