//! Requests of Sluice to the management API server, by its audit log.

use std::path::Path;

use anyhow::Result;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::number;
use crate::stack::audit::Lines;

/// The user that Sluice is.
const USER: &str = "system:serviceaccount:sluice-system:sluice";

/// A request with a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) at: Timestamp,
    pub(super) what: What,
    /// Number of the cluster that it concerns, if it concerns one.
    pub(super) cluster: Option<u32>,
}

/// What kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A read of one object, or of a path without a store.
    Read,
    /// A list of a store, also one that a watch begins with.
    List,
    /// A write.
    Write,
}

/// The log, as far as it was read.
#[derive(Debug)]
pub(super) struct Audit {
    lines: Lines,
    asked: Vec<Asked>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    stage: String,
    #[serde(rename = "requestURI")]
    uri: String,
    request_received_timestamp: Timestamp,
    object_ref: Option<Object>,
}

#[derive(Deserialize)]
struct Object {
    resource: Option<String>,
}

/// The policy that has Sluice's requests written down.
pub(super) fn policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
    })
}

impl Audit {
    /// The log at `path`, from its beginning.
    pub(super) fn of(path: &Path) -> Self {
        Self {
            lines: Lines::of(path.to_owned()),
            asked: Vec::new(),
        }
    }

    /// All requests until now, those for the lease and watches left out.
    pub(super) fn asked(&mut self) -> Result<&[Asked]> {
        let asked = &mut self.asked;
        self.lines.each_new(|line| asked.extend(request(line)))?;
        Ok(&self.asked)
    }
}

fn request(line: Line) -> Option<Asked> {
    let resource = line
        .object_ref
        .and_then(|object| object.resource)
        .unwrap_or_default();
    // A watch is written down when it begins, and again when it ends.
    let is_first = line.verb != "watch" || line.stage == "ResponseStarted";
    let what = match line.verb.as_str() {
        _ if !is_first => return None,
        "watch" if line.uri.contains("sendInitialEvents=true") => What::List,
        "list" => What::List,
        "watch" => return None,
        "get" => What::Read,
        _ => What::Write,
    };
    (resource != "leases").then(|| Asked {
        at: line.request_received_timestamp,
        what,
        cluster: number(&line.uri),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(verb: &str, uri: &str, resource: &str) -> Option<Asked> {
        let line = json!({
            "verb": verb, "stage": if verb == "watch" { "ResponseStarted" } else { "ResponseComplete" }, "requestURI": uri, "requestReceivedTimestamp": "2026-11-23T10:00:00.123456Z",
            "objectRef": {"resource": resource}, "userAgent": "sluice",
        });
        request(serde_json::from_value(line).unwrap())
    }

    #[test]
    fn requests_are_told_apart() {
        let secret = of(
            "get",
            "/api/v1/namespaces/fleet/secrets/fleet-00012-kubeconfig",
            "secrets",
        )
        .unwrap();
        assert_eq!((secret.what, secret.cluster), (What::Read, Some(12)));
        let what = |asked: Option<Asked>| asked.map(|asked| asked.what);
        assert_eq!(
            what(of("list", "/apis/g/v1/clusters?limit=500", "clusters")),
            Some(What::List)
        );
        assert_eq!(
            what(of("watch", "/apis/g/v1/clusters?watch=true", "clusters")),
            None
        );
        assert_eq!(
            what(of(
                "watch",
                "/apis/g/v1/clusters?watch=true&sendInitialEvents=true",
                "clusters"
            )),
            Some(What::List)
        );
        assert_eq!(
            what(of("patch", "/apis/g/v1/namespaces/fleet/apps/a", "apps")),
            Some(What::Write)
        );
        assert_eq!(
            of(
                "update",
                "/apis/coordination.k8s.io/v1/namespaces/s/leases/sluice-leader",
                "leases"
            ),
            None
        );
    }
}
