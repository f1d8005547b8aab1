//! Clients of the status service: one in Go, generated from the shipped `.proto`, and the verbs of the release binary.

mod caller;
mod go_client;

pub use caller::{Caller, Rights};
pub use go_client::GoClient;

use serde_json::Value;

/// The JSON objects in what a client has printed, one a line; what else is there was written to standard error.
#[must_use]
pub fn messages(printed: &str) -> Vec<Value> {
    let lines = printed.lines().filter(|line| line.starts_with('{'));
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}
