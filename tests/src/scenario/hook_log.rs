//! Responses of the extension, from its log.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::Deserialize;

/// One answered hook call: a line of the extension's log.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HookAnswer {
    /// When.
    pub timestamp: Timestamp,
    /// Name of the hook, `BeforeClusterUpgrade`.
    pub hook: String,
    /// Namespace of the Cluster.
    pub namespace: String,
    /// Name of the Cluster.
    pub cluster: String,
    /// `release` or `hold`.
    pub answer: String,
    /// Why it was held.
    #[serde(default)]
    pub reason: String,
}

#[derive(Deserialize)]
struct Line {
    message: Option<String>,
}

impl HookAnswer {
    /// Whether the call was held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.answer == "hold"
    }

    /// Reads the responses about a Cluster, in order.
    pub fn read(log: &Path, namespace: &str, cluster: &str) -> Result<Vec<Self>> {
        let text = fs::read_to_string(log).with_context(|| format!("read {}", log.display()))?;
        Ok(parse(&text)
            .into_iter()
            .filter(|answer| answer.namespace == namespace && answer.cluster == cluster)
            .collect())
    }
}

fn parse(log: &str) -> Vec<HookAnswer> {
    log.lines()
        .filter(|line| {
            serde_json::from_str::<Line>(line)
                .is_ok_and(|line| line.message.as_deref() == Some("Answered hook call"))
        })
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_among_other_lines() {
        let log = r#"not JSON
{"timestamp":"2026-11-21T05:00:00.123456Z","level":"INFO","message":"serving hooks"}
{"timestamp":"2026-11-21T05:00:01.5Z","level":"INFO","message":"Answered hook call","hook":"BeforeClusterUpgrade","namespace":"a","cluster":"b","answer":"hold","reason":"PackagesNotReady","retry_after":1}
{"timestamp":"2026-11-21T05:00:02.5Z","level":"INFO","message":"Answered hook call","hook":"BeforeClusterUpgrade","namespace":"a","cluster":"b","answer":"release"}"#;
        let answers = parse(log);
        assert_eq!(answers.len(), 2);
        assert!(answers[0].is_held() && answers[0].reason == "PackagesNotReady");
        assert!(!answers[1].is_held());
    }
}
