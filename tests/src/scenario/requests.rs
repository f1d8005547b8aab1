//! Requests of Sluice about one Cluster, by the audit logs of both API servers.

use anyhow::{Result, ensure};
use jiff::Timestamp;

use super::cluster::Cluster;
use crate::stack::audit::{ADMIN, Log, Request, SLUICE, What};

/// Subresources and kinds that report.
const REPORTS: [&str; 2] = ["/status", "events"];

/// The audit logs, as far as they were read.
pub struct Requests {
    namespace: String,
    management: Log,
    workload: Log,
}

impl Cluster {
    /// Requests of Sluice, in a scenario that is [audited](super::Scenario::audited).
    pub fn requests(&self) -> Result<Requests> {
        Ok(Requests {
            namespace: format!("/namespaces/{}/", self.scene().namespace()),
            management: self.scene().world().stack().management().audit(),
            workload: self.workload()?.api.audit(),
        })
    }
}

impl Requests {
    /// How often Sluice has read the object at `path` of the workload cluster since then.
    pub fn reads(&mut self, path: &str, since: Timestamp) -> Result<usize> {
        Ok(self.times(path, since)?.len())
    }

    /// When Sluice has read the object at `path` of the workload cluster since then.
    pub fn times(&mut self, path: &str, since: Timestamp) -> Result<Vec<Timestamp>> {
        let requests = self.workload.requests()?.iter();
        let reads = requests.filter(|request| {
            on_workload(request) && request.at >= since && request.verb == "get" && path_of(request) == path
        });
        Ok(reads.map(|request| request.at).collect())
    }

    /// Requests of Sluice to the workload cluster from `began` until `ended`, without watches, which end and begin again at any time.
    pub fn between(&mut self, began: Timestamp, ended: Timestamp) -> Result<Vec<String>> {
        let requests = self.workload.requests()?.iter();
        let own = requests.filter(|request| {
            let is_meanwhile = request.at >= began && request.at < ended;
            on_workload(request) && is_meanwhile && request.verb != "watch"
        });
        Ok(own
            .map(|request| format!("{} {}", request.verb, request.uri))
            .collect())
    }

    /// Requests of Sluice to the management API server for this resource (`virtualmachines`) since then.
    pub fn of_resource(&mut self, resource: &str, since: Timestamp) -> Result<usize> {
        let management = own(&mut self.management, on_management, since)?;
        let of_it = management
            .into_iter()
            .filter(|request| request.resource == resource);
        Ok(of_it.count())
    }

    /// Requests of Sluice to the management API server since then for objects of the namespace of the scenario whose names begin with this
    /// one: verb and path.
    pub fn about(&mut self, name: &str, since: Timestamp) -> Result<Vec<String>> {
        let namespace = self.namespace.as_str();
        let management = own(&mut self.management, on_management, since)?;
        let about = management
            .into_iter()
            .filter(|request| is_about(path_of(request), namespace, name));
        Ok(about
            .map(|request| format!("{} {}", request.verb, path_of(request)))
            .collect())
    }

    /// Writes of Sluice to the management API server from `began` until `ended`, those of status included and Events not, of objects of the
    /// namespace of the scenario whose names begin with this one: verb and path.
    pub fn management_writes(
        &mut self,
        name: &str,
        (began, ended): (Timestamp, Timestamp),
    ) -> Result<Vec<String>> {
        let namespace = self.namespace.as_str();
        let management = own(&mut self.management, on_management, began)?;
        let writes = management.into_iter().filter(|request| {
            let is_write = request.what == What::Write && request.resource != "events";
            is_write && request.at < ended && is_about(path_of(request), namespace, name)
        });
        Ok(writes
            .map(|request| format!("{} {}", request.verb, path_of(request)))
            .collect())
    }

    /// Writes of Sluice in the namespace of the scenario and in the workload cluster since then, those of status included.
    pub fn writes_and_reports(&mut self, since: Timestamp) -> Result<Vec<String>> {
        let namespace = self.namespace.as_str();
        let management = own(&mut self.management, on_management, since)?;
        let workload = own(&mut self.workload, on_workload, since)?;
        let in_namespace = management
            .into_iter()
            .filter(|request| request.uri.contains(namespace));
        let writes = in_namespace
            .chain(workload)
            .filter(|request| request.what == What::Write && request.resource != "events");
        Ok(writes
            .map(|request| format!("{} {}", request.verb, request.uri))
            .collect())
    }

    /// Writes of Sluice in the namespace of the scenario and in the workload cluster since then, without those of status, Events and
    /// Leases.
    pub fn writes(&mut self, since: Timestamp) -> Result<Vec<String>> {
        let namespace = self.namespace.as_str();
        let management = own(&mut self.management, on_management, since)?;
        let workload = own(&mut self.workload, on_workload, since)?;
        let in_namespace = management
            .into_iter()
            .filter(|request| request.uri.contains(namespace));
        let changes = in_namespace
            .chain(workload)
            .filter(|request| changes_objects(request));
        Ok(changes
            .map(|request| format!("{} {}", request.verb, request.uri))
            .collect())
    }
}

/// Requests of Sluice to one server since then.
///
/// # Errors
/// There is none, so the log is not the one that was meant.
fn own(log: &mut Log, is_own: fn(&Request) -> bool, since: Timestamp) -> Result<Vec<&Request>> {
    let requests = log.requests()?.iter();
    let own: Vec<&Request> = requests
        .filter(|request| is_own(request) && request.at >= since)
        .collect();
    ensure!(
        !own.is_empty(),
        "an audit log has no request of Sluice since {since}"
    );
    Ok(own)
}

fn on_management(request: &Request) -> bool {
    request.user == SLUICE
}

/// Sluice sends no user agent; the harness and Cluster API do.
fn on_workload(request: &Request) -> bool {
    request.user == ADMIN && request.agent.is_empty()
}

fn changes_objects(request: &Request) -> bool {
    request.what == What::Write && !REPORTS.iter().any(|report| request.resource.ends_with(report))
}

/// Whether a path is that of an object in a namespace, `/namespaces/a/`, whose name begins so.
fn is_about(path: &str, namespace: &str, name: &str) -> bool {
    let object = path
        .split_once(namespace)
        .and_then(|(_, object)| object.split('/').nth(1));
    object.is_some_and(|object| object.starts_with(name))
}

fn path_of(request: &Request) -> &str {
    let uri = request.uri.as_str();
    uri.split_once('?').map_or(uri, |(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: &str, uri: &str, resource: &str, what: What) -> Request {
        Request {
            code: Some(200),
            at: Timestamp::UNIX_EPOCH,
            user: ADMIN.to_owned(),
            agent: String::new(),
            uri: uri.to_owned(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            what,
        }
    }

    #[test]
    fn only_writes_of_objects_are_changes() {
        let changes = |resource: &str, what| changes_objects(&request("patch", "/apis", resource, what));
        assert!(changes("packageinstalls", What::Write));
        assert!(!changes("packageinstalls", What::Read));
        assert!(!changes("clusterbootstraps/status", What::Write));
        assert!(!changes("events", What::Write));
        assert!(!changes("leases", What::Lease));
    }

    #[test]
    fn objects_are_told_by_the_begin_of_their_names() {
        let is_about = |path: &str| is_about(path, "/namespaces/a/", "one");
        assert!(is_about(
            "/apis/lifecycle.sluice.dev/v1alpha1/namespaces/a/clusterupgrades/one/status"
        ));
        assert!(is_about("/api/v1/namespaces/a/secrets/one-kubeconfig"));
        assert!(!is_about("/api/v1/namespaces/a/secrets/two"));
        assert!(!is_about("/api/v1/namespaces/a/secrets"));
        assert!(!is_about("/api/v1/namespaces/b/secrets/one"));
    }

    #[test]
    fn a_path_has_no_query() {
        let path = |uri: &str| path_of(&request("get", uri, "namespaces", What::Read)).to_owned();
        assert_eq!(path("/api/v1/namespaces/a?"), "/api/v1/namespaces/a");
        assert_eq!(path("/api/v1/namespaces/a"), "/api/v1/namespaces/a");
    }
}
