//! Bodies of BeforeClusterUpgrade as Cluster API sends them.

use serde_json::{Value, json};

/// Recorded from Cluster API 1.14 on a running stack.
const RECORDED: &str = include_str!("../../extension/hooks/tests/hooks/requests/BeforeClusterUpgrade.json");

/// The label of the release that the bodies ask for.
pub const LABEL: &str = "v1.36.3---sluice.1";

/// How large a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 2.8 KB: a Cluster with a few variables.
    Usual,
    /// 14 KB: a Cluster with many worker pools and variables.
    Large,
}

impl Size {
    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Usual => 2_800,
            Self::Large => 14_000,
        }
    }

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usual => "2.8KB",
            Self::Large => "14KB",
        }
    }
}

/// A body of about [`Size::bytes`]: the recorded one with our label, grown by what real Clusters hold more of.
#[must_use]
pub fn before_cluster_upgrade(size: Size) -> String {
    let mut request: Value = serde_json::from_str(RECORDED).unwrap_or_default();
    request["cluster"]["metadata"]["labels"]["run.tanzu.vmware.com/tkr"] = json!(LABEL);
    let mut body = request.to_string();
    for number in 0.. {
        let topology = &mut request["cluster"]["spec"]["topology"];
        let (list, item) = if number % 3 == 0 {
            (&mut topology["workers"]["machineDeployments"], pool(number))
        } else {
            (&mut topology["variables"], variable(number))
        };
        match list {
            Value::Array(items) => items.push(item),
            absent => *absent = json!([item]),
        }
        let grown = request.to_string();
        if grown.len() > size.bytes() {
            break;
        }
        body = grown;
    }
    body
}

fn pool(number: usize) -> Value {
    json!({
        "class": "default",
        "name": format!("pool-{number}"),
        "replicas": 3,
        "metadata": {"labels": {"node.example.org/pool": format!("pool-{number}")}},
        "variables": {"overrides": [{"name": "machineType", "value": format!("large-{number}")}]},
    })
}

fn variable(number: usize) -> Value {
    json!({
        "name": format!("setting-{number}"),
        "value": {"enabled": true, "servers": ["10.0.0.1", "10.0.0.2"], "comment": "a \"quoted\" word, ünïcode"},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_their_size() {
        for size in [Size::Usual, Size::Large] {
            let length = before_cluster_upgrade(size).len();
            assert!(
                (size.bytes() * 9 / 10..=size.bytes()).contains(&length),
                "{length} for {size:?}"
            );
        }
    }
}
