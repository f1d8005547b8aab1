//! Requests to API servers, by their audit logs.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The user that Sluice is on a management cluster.
pub const SLUICE: &str = "system:serviceaccount:sluice-system:sluice";

/// The user of the kubeconfig of a workload cluster, with which Sluice, Cluster API and the harness come.
pub const ADMIN: &str = "admin";

/// Requests that are written down, without their bodies: a rule of an audit policy.
#[derive(Debug, Clone)]
pub struct Audited(Value);

/// One request that was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// When it was received.
    pub at: Timestamp,
    /// Its user.
    pub user: String,
    /// Its user agent; empty for a program that sends none.
    pub agent: String,
    /// Path and query.
    pub uri: String,
    /// `get`, `patch`.
    pub verb: String,
    /// Resource of the request, such as `clusterbootstraps/status`; empty for a request without an object.
    pub resource: String,
    /// Kind of the request.
    pub what: What,
    /// Status code of the response; none if the log does not have it.
    pub code: Option<u16>,
}

/// Kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Which groups and kinds there are, or the version of the server.
    Discovery,
    /// Objects, a watch of them included.
    Read,
    /// A change of an object.
    Write,
    /// The lease of an election, whatever is done with it.
    Lease,
}

/// The lines of an audit log, as far as they were read.
#[derive(Debug)]
pub(crate) struct Lines {
    path: PathBuf,
    read: u64,
}

/// The log of one server, as far as it was read.
#[derive(Debug)]
pub struct Log {
    lines: Lines,
    requests: Vec<Request>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    stage: String,
    #[serde(rename = "requestURI")]
    uri: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    request_received_timestamp: Timestamp,
    object_ref: Option<Object>,
    response_status: Option<ResponseStatus>,
}

#[derive(Deserialize)]
struct ResponseStatus {
    code: Option<u16>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    resource: String,
    subresource: Option<String>,
}

impl Audited {
    /// Requests of these users.
    #[must_use]
    pub fn users(users: &[&str]) -> Self {
        Self(json!({"level": "Metadata", "users": users}))
    }

    /// Evictions by any user.
    #[must_use]
    pub fn evictions() -> Self {
        let evictions = json!([{"group": "", "resources": ["pods/eviction"]}]);
        Self(json!({"level": "Metadata", "resources": evictions}))
    }

    pub(super) fn write_policy(&self, directory: &Path) -> Result<()> {
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [self.0, {"level": "None"}],
        });
        let path = policy_in(directory);
        fs::write(&path, policy.to_string()).with_context(|| format!("write {}", path.display()))
    }
}

fn policy_in(directory: &Path) -> PathBuf {
    directory.join("audit-policy.json")
}

/// The arguments of a server that writes `log`. Each request is in it before it is answered, so that a server that is killed loses none.
pub(super) fn arguments(directory: &Path, log: &Path) -> [String; 4] {
    [
        format!("--audit-policy-file={}", policy_in(directory).display()),
        format!("--audit-log-path={}", log.display()),
        "--audit-log-mode=blocking".to_owned(),
        // Otherwise another file is begun after 100 MB.
        "--audit-log-maxsize=10000".to_owned(),
    ]
}

impl Lines {
    /// Those of the log at `path`, from its beginning.
    pub(crate) const fn of(path: PathBuf) -> Self {
        Self { path, read: 0 }
    }

    /// Passes each new matching line since the last call to the callback; none without a log.
    pub(crate) fn each_new<T: DeserializeOwned>(&mut self, mut each: impl FnMut(T)) -> Result<()> {
        let Ok(mut file) = File::open(&self.path) else {
            return Ok(());
        };
        file.seek(SeekFrom::Start(self.read))?;
        let mut reader = BufReader::new(file);
        let mut line = String::new();
        loop {
            line.clear();
            let length = reader
                .read_line(&mut line)
                .with_context(|| format!("read {}", self.path.display()))?;
            // The last one may be half written.
            if !line.ends_with('\n') {
                return Ok(());
            }
            self.read += length as u64;
            if let Ok(line) = serde_json::from_str(&line) {
                each(line);
            }
        }
    }
}

impl Log {
    pub(super) fn of(path: PathBuf) -> Self {
        Self {
            lines: Lines::of(path),
            requests: Vec::new(),
        }
    }

    /// All requests until now; none where the server does not write them down.
    pub fn requests(&mut self) -> Result<&[Request]> {
        let requests = &mut self.requests;
        self.lines.each_new(|line| requests.extend(request(line)))?;
        Ok(&self.requests)
    }
}

fn request(line: Line) -> Option<Request> {
    // A watch is written down when it begins, and again when it ends.
    if line.verb == "watch" && line.stage != "ResponseStarted" {
        return None;
    }
    let resource = line.object_ref.map(|object| match object.subresource {
        Some(part) => format!("{}/{part}", object.resource),
        None => object.resource,
    });
    let what = match (resource.as_deref(), line.verb.as_str()) {
        (None, _) => What::Discovery,
        (Some("leases"), _) => What::Lease,
        (Some(_), "get" | "list" | "watch") => What::Read,
        (Some(_), _) => What::Write,
    };
    Some(Request {
        at: line.request_received_timestamp,
        user: line.user.username,
        agent: line.user_agent,
        uri: line.uri,
        verb: line.verb,
        resource: resource.unwrap_or_default(),
        what,
        code: line.response_status.and_then(|status| status.code),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(verb: &str, uri: &str, resource: Option<&str>, stage: &str) -> Option<Request> {
        let mut line = json!({
            "verb": verb, "stage": stage, "requestURI": uri, "requestReceivedTimestamp": "2026-11-23T10:00:00.123456Z",
            "user": {"username": "admin"}, "userAgent": "pause-flow",
        });
        if let Some(resource) = resource {
            line["objectRef"] = json!({"resource": resource});
        }
        request(serde_json::from_value(line).unwrap())
    }

    #[test]
    fn requests_are_told_apart() {
        let what = |verb, uri, resource| {
            let request = of(verb, uri, resource, "ResponseComplete");
            request.map(|request| request.what)
        };
        assert_eq!(what("get", "/apis", None), Some(What::Discovery));
        assert_eq!(
            what("get", "/api/v1/namespaces/a/secrets/b", Some("secrets")),
            Some(What::Read)
        );
        assert_eq!(
            what("patch", "/apis/g/v1/namespaces/a/apps/b", Some("apps")),
            Some(What::Write)
        );
        assert_eq!(
            what("update", "/apis/coordination.k8s.io/v1/leases", Some("leases")),
            Some(What::Lease)
        );
        assert_eq!(what("watch", "/api/v1/secrets?watch=true", Some("secrets")), None);
        let begun = of(
            "watch",
            "/api/v1/secrets?watch=true",
            Some("secrets"),
            "ResponseStarted",
        );
        assert_eq!(begun.map(|begun| begun.what), Some(What::Read));
    }

    #[test]
    fn a_refused_eviction_has_its_status_code() {
        let line = json!({
            "verb": "create", "stage": "ResponseComplete", "requestURI": "/api/v1/namespaces/a/pods/b/eviction",
            "requestReceivedTimestamp": "2026-11-23T10:00:00Z", "user": {"username": "admin"},
            "objectRef": {"resource": "pods", "subresource": "eviction"},
            "responseStatus": {"metadata": {}, "status": "Failure", "reason": "TooManyRequests", "code": 429},
        });
        let request = request(serde_json::from_value(line).unwrap()).unwrap();
        assert_eq!(
            (request.resource.as_str(), request.code),
            ("pods/eviction", Some(429))
        );
    }

    #[test]
    fn a_line_that_is_half_written_is_read_later() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let line = json!({
            "verb": "get", "stage": "ResponseComplete", "requestURI": "/apis", "user": {},
            "requestReceivedTimestamp": "2026-11-23T10:00:00Z",
        })
        .to_string();
        let (first, rest) = line.split_at(20);
        let mut log = Log::of(path.clone());
        assert_eq!(log.requests().unwrap(), []);
        fs::write(&path, first).unwrap();
        assert_eq!(log.requests().unwrap(), []);
        fs::write(&path, format!("{first}{rest}\n")).unwrap();
        assert_eq!(log.requests().unwrap().len(), 1);
    }
}
