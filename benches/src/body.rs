//! Bodies of requests as Cluster API sends them.

use serde_json::{Value, json};
use sluice_hooks::Hook;

/// The label of the release that the bodies ask for.
pub const LABEL: &str = "v1.36.3---sluice.1";

/// Recorded from Cluster API 1.14 on a running stack.
const fn recorded(hook: Hook) -> &'static str {
    macro_rules! request {
        ($name:literal) => {
            include_str!(concat!(
                "../../extension/hooks/tests/hooks/requests/",
                $name,
                ".json"
            ))
        };
    }
    match hook {
        Hook::BeforeClusterCreate => request!("BeforeClusterCreate"),
        Hook::AfterControlPlaneInitialized => request!("AfterControlPlaneInitialized"),
        Hook::BeforeClusterUpgrade => request!("BeforeClusterUpgrade"),
        Hook::BeforeControlPlaneUpgrade => request!("BeforeControlPlaneUpgrade"),
        Hook::AfterControlPlaneUpgrade => request!("AfterControlPlaneUpgrade"),
        Hook::BeforeWorkersUpgrade => request!("BeforeWorkersUpgrade"),
        Hook::AfterWorkersUpgrade => request!("AfterWorkersUpgrade"),
        Hook::AfterClusterUpgrade => request!("AfterClusterUpgrade"),
        Hook::BeforeClusterDelete => request!("BeforeClusterDelete"),
    }
}

/// A body of at most so many bytes: the recorded one with our label, grown by what real Clusters hold more of. The recorded one is the
/// shortest.
#[must_use]
pub fn of(hook: Hook, bytes: usize) -> String {
    let mut request: Value = serde_json::from_str(recorded(hook)).unwrap_or_default();
    request["cluster"]["metadata"]["labels"]["run.tanzu.vmware.com/tkr"] = json!(LABEL);
    grown(request, bytes)
}

/// A request with more machine pools and variables, as long as it has at most so many bytes.
#[must_use]
pub fn grown(mut request: Value, bytes: usize) -> String {
    let body = request.to_string();
    let mut length = body.len();
    if length >= bytes {
        return body;
    }
    let topology = &mut request["cluster"]["spec"]["topology"];
    for number in 0.. {
        let (list, item) = if number % 3 == 0 {
            (&mut topology["workers"]["machineDeployments"], pool(number))
        } else {
            (&mut topology["variables"], variable(number))
        };
        // With a comma, and once with the list itself and its name.
        length += item.to_string().len() + if list.is_array() { 1 } else { 64 };
        if length > bytes {
            break;
        }
        match list {
            Value::Array(items) => items.push(item),
            absent => *absent = json!([item]),
        }
    }
    request.to_string()
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
        for hook in Hook::ALL {
            for size in [3_000, 14_000, 200_000] {
                let length = of(hook, size).len();
                let least = recorded(hook).len().min(size * 8 / 10);
                assert!(
                    (least..=size).contains(&length),
                    "{length} bytes for {hook:?} with {size}"
                );
            }
        }
    }
}
