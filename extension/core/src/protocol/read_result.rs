//! Results of the reads of a reconcile.

use std::sync::Arc;

use kube::core::{ApiResource, DynamicObject};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_crds::{
    decode::{self, Limit},
    foreign::{Cluster, Package},
    run::ClusterBootstrapTemplate,
};

use super::{Contact, Failure, Key, Resource, Server, Watched};
use crate::{
    decode::{Body, ClusterBody, Item, READ, list},
    upgrade_plan::workload::WorkloadObjects,
};

/// Object as stored by an API server. Debug output omits the content, which may be a Secret.
#[derive(Clone)]
pub struct Object(pub Value);

impl Object {
    /// Returns an item of a list, completed with apiVersion and kind, which list items omit.
    #[must_use]
    pub fn listed(resource: &ApiResource, object: &DynamicObject) -> Self {
        let mut value = serde_json::to_value(object).unwrap_or_default();
        value["apiVersion"] = resource.api_version.as_str().into();
        value["kind"] = resource.kind.as_str().into();
        Self(value)
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let metadata = &self.0["metadata"];
        write!(f, "{} at {}", metadata["name"], metadata["resourceVersion"])
    }
}

/// Result of a [`Read`](super::Read).
#[derive(Debug, Clone)]
pub enum ReadResult {
    /// Found object.
    Found(Object),
    /// Listed objects.
    Listed(Vec<Object>),
    /// What was read of [`Read::WorkloadObjects`](super::Read::WorkloadObjects). A list that failed is empty.
    WorkloadObjects(Box<WorkloadObjects>),
    /// Cluster.
    Cluster(Arc<Cluster>),
    /// Package of the catalogue.
    Package(Arc<Package>),
    /// Template of a release.
    Template(Arc<ClusterBootstrapTemplate>),
    /// The object does not exist, or its kind is not served.
    Absent,
    /// The kind cannot be watched, for this reason.
    Unwatchable(String),
    /// API resource of a namespaced kind.
    Served(Resource),
    /// API resource of a cluster-scoped kind.
    ServedClusterWide(Resource),
    /// The API server refused the request or did not respond.
    Failed(Failure),
    /// Cached PackageInstall and App of one name.
    Watched(Box<Watched>),
    /// Number of the connection to the workload cluster; 0 for a connection without watches.
    Connected(u64),
    /// No connection is possible, for this reason, which never contains kubeconfig content.
    NotConnected(String),
    /// Contact state of the workload API server.
    Contact(Contact),
    /// Whether the drift check is permitted now.
    Turn(bool),
    /// Whether the watch shows the version of [`Read::Shown`](super::Read::Shown).
    Shown(bool),
}

impl ReadResult {
    /// Returns the number of a connection, or the reason why there is none.
    #[must_use]
    pub fn of_connection(number: Result<u64, impl std::fmt::Display>) -> Self {
        number.map_or_else(|why| Self::NotConnected(why.to_string()), Self::Connected)
    }

    /// Decodes the object of `key` from a response body. The spec of a Cluster is dropped, except what confirms the cached one: its size
    /// is up to the user, and Sluice takes all other fields from the watch.
    #[must_use]
    pub fn of_object(key: &Key, text: &str) -> Self {
        let server = key.server;
        let limit = Limit::whole(limit(server));
        let read = if key.is_of::<Cluster>() {
            Item::<ClusterBody>::within(text, limit).map(|item| item.map(|ClusterBody(object)| object))
        } else {
            Item::<Body>::within(text, limit).map(|item| item.map(|Body(object)| object))
        };
        match read {
            Some(Ok(object)) => Self::Found(Object(object)),
            Some(Err(object)) => Self::Failed(Failure::undecodable(server, object.into())),
            None => Self::Failed(Failure::other(server, "the response is not an object")),
        }
    }

    /// Decodes a list from a response body. Any other content than a [list] is a failure.
    #[must_use]
    pub fn of_list(server: Server, text: &str) -> Self {
        let failure = match list(text, Limit::whole(LIST)) {
            Some(Ok(objects)) => return Self::Listed(objects.into_iter().map(Object).collect()),
            Some(Err(object)) => Failure::undecodable(server, object.into()),
            None => Failure::other(server, "the response is not a list of objects"),
        };
        Self::Failed(failure)
    }

    /// Returns the size of the objects in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Found(Object(found)) => size(found),
            Self::Listed(objects) => objects.iter().map(|Object(object)| size(object)).sum(),
            Self::WorkloadObjects(objects) => objects.size(),
            _ => 0,
        }
    }
}

/// Memory limit, in bytes, of all results of a workload cluster in one reconcile.
const ANSWERS: usize = 16 * 1024 * 1024;

/// Memory limit of one list, in bytes. A list is decoded while the other results stay in memory.
const LIST: usize = 8 * 1024 * 1024;

/// Returns the memory limit, in bytes, of all results of `server` in one reconcile. For the management cluster it counts only objects.
pub(super) const fn answers_of(server: Server) -> usize {
    match server {
        Server::Management => READ,
        Server::Workload => ANSWERS,
    }
}

/// Memory limit of one object of a workload cluster, in bytes.
const OF_WORKLOAD: usize = 4 * 1024 * 1024;

/// Returns the memory limit of one object of `server`, in bytes.
const fn limit(server: Server) -> usize {
    match server {
        Server::Management => READ,
        Server::Workload => OF_WORKLOAD,
    }
}

/// Returns the heap size of a value in bytes; the enclosing list or map accounts for the value itself. See [`sluice_crds::decode`].
fn size(value: &Value) -> usize {
    const ELEMENT: usize = size_of::<Value>();
    const ENTRY: usize = size_of::<String>() + size_of::<Value>();
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => {
            let room = if values.is_empty() { 0 } else { 2 };
            ELEMENT * (room + 2 * values.len()) + values.iter().map(size).sum::<usize>()
        }
        Value::Object(fields) => {
            let nodes = if fields.is_empty() { 0 } else { 10 };
            let content = fields.iter().map(|(name, value)| name.len() + size(value));
            ENTRY * (nodes + 2 * fields.len()) + content.sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

impl Object {
    /// Decodes the response to a write, reduced to the fields that a reconcile may need. A workload API server is untrusted and may send
    /// more than the object, so only the fields that the next write names are kept.
    ///
    /// # Errors
    /// The response is not a decodable object.
    pub fn written(key: &Key, text: &str) -> Result<Self, Failure> {
        #[derive(Deserialize)]
        struct Written {
            metadata: Option<Named>,
        }
        #[derive(Deserialize, Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Named {
            name: Option<String>,
            namespace: Option<String>,
            uid: Option<String>,
            resource_version: Option<String>,
            generation: Option<i64>,
        }
        let server = key.server;
        if server == Server::Management {
            return match ReadResult::of_object(key, text) {
                ReadResult::Found(object) => Ok(object),
                ReadResult::Failed(failure) => Err(failure),
                _ => Err(Failure::other(server, "the response is not an object")),
            };
        }
        let written = decode::from_str::<Written>(text, Limit::whole(NAMED));
        let (written, _) = written.map_err(|error| Failure::unreadable(server, &error))?;
        Ok(Self(json!({"metadata": written.metadata})))
    }
}

/// Memory limit of the names of an object, in bytes.
const NAMED: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;
    use serde_json::json;

    use super::*;

    #[test]
    fn list_items_get_api_version_and_kind() {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Foo"));
        let item: DynamicObject =
            serde_json::from_value(json!({"metadata": {"name": "one"}, "spec": {"a": 1}})).unwrap();
        let Object(listed) = Object::listed(&resource, &item);
        let whole = json!({
            "apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "one"}, "spec": {"a": 1},
        });
        assert_eq!(listed, whole);
    }

    #[test]
    fn other_content_is_not_an_empty_list() {
        let items = |list: Value| match ReadResult::of_list(Server::Workload, &list.to_string()) {
            ReadResult::Listed(objects) => Some(objects.len()),
            _ => None,
        };
        assert_eq!(items(json!({"kind": "SecretList", "items": [{}, {}]})), Some(2));
        // Go encodes an empty list as null.
        assert_eq!(items(json!({"kind": "SecretList", "items": null})), Some(0));
        for other in [
            json!({}),
            json!(null),
            json!([]),
            json!("ok"),
            json!({"message": "cluster unavailable"}),
            json!({"kind": "Status", "items": null}),
            json!({"kind": "SecretList", "items": {}}),
        ] {
            assert_eq!(items(other.clone()), None, "{other}");
        }
    }

    #[test]
    fn a_cluster_is_read_without_most_of_its_spec() {
        let text = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "one", "uid": "u"},
            "spec": {"paused": true, "topology": {"version": "v1.36.3", "variables": vec![json!({"a": 0}); 50_000]}}, "status": {"phase": "Provisioned"},
        })
        .to_string();
        let read = |key: &Key| match ReadResult::of_object(key, &text) {
            ReadResult::Found(Object(found)) => Some(found),
            _ => None,
        };
        let cluster = Key::of::<Cluster>(Server::Management, Some("team-a"), "one");
        let found = read(&cluster).unwrap();
        assert_eq!(found["metadata"]["uid"], "u");
        assert_eq!(found["status"]["phase"], "Provisioned");
        assert_eq!(
            found["spec"],
            json!({"paused": true, "topology": {"version": "v1.36.3"}})
        );
        assert_eq!(
            read(&Key::of::<Package>(Server::Management, Some("team-a"), "one")),
            None
        );
    }
}
