//! APIs that clients have requested, and that a version no longer serves.

use crate::text::one_line;

/// Metric of an API server: each series is a deprecated API that some client has requested since its start.
const METRIC: &str = "apiserver_requested_deprecated_apis{";

/// Longest name in messages, in characters.
const LONGEST: usize = 160;

/// Requested API.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestedApi {
    /// Major and minor version of Kubernetes that no longer serves the API.
    pub(super) removed: (u64, u64),
    /// Resource with group and version, `policy/v1beta1 podsecuritypolicies`.
    pub(super) name: String,
}

impl RequestedApi {
    /// Returns the API of a line of metrics, if a release is known that removes it.
    pub(super) fn of(line: &str) -> Option<Self> {
        let (labels, value) = line.strip_prefix(METRIC)?.rsplit_once('}')?;
        let value: f64 = value.split_whitespace().next()?.parse().ok()?;
        if value <= 0.0 {
            return None;
        }
        // No part of an API has a comma or a quote.
        let label = |name: &str| {
            let mut pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
            let found = pairs.find(|(key, _)| *key == name);
            found.map_or("", |(_, value)| value.trim_matches('"'))
        };
        let (major, minor) = label("removed_release").split_once('.')?;
        let removed = (major.parse().ok()?, minor.parse().ok()?);
        let mut name = label("group").to_owned();
        for (before, part) in [
            ("/", label("version")),
            (" ", label("resource")),
            ("/", label("subresource")),
        ] {
            if !name.is_empty() && !part.is_empty() {
                name.push_str(before);
            }
            name.push_str(part);
        }
        Some(Self {
            removed,
            name: one_line(&name, LONGEST),
        })
    }
}
