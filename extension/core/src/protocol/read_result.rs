//! What a pass is answered.

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
use crate::decode::{Body, Item, READ, Unspecified, list};

/// An object as an API server has it. Its text is not shown: it may be a Secret.
#[derive(Clone)]
pub struct Object(pub Value);

impl Object {
    /// One of a list: its items do not say what they are.
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

/// What became of an [`Read`](super::Read).
#[derive(Debug, Clone)]
pub enum ReadResult {
    /// The object.
    Found(Object),
    /// Several objects.
    Listed(Vec<Object>),
    /// A Cluster.
    Cluster(Arc<Cluster>),
    /// A Package of the catalogue.
    Package(Arc<Package>),
    /// The template of a release.
    Template(Arc<ClusterBootstrapTemplate>),
    /// There is none; of a kind that is not served there are none.
    Absent,
    /// Its kind cannot be watched, and why.
    Unwatchable(String),
    /// How a kind is served.
    Served(Resource),
    /// An API server refused the request or did not answer.
    Failed(Failure),
    /// What the watches of PackageInstalls and Apps show of one name.
    Watched(Box<Watched>),
    /// A connection to the workload, by its number. One without watches has the number 0.
    Connected(u64),
    /// No connection can be made; why, without anything that the kubeconfig holds.
    NotConnected(String),
    /// How the workload answers.
    Contact(Contact),
    /// Whether it may be looked at now.
    Turn(bool),
}

impl ReadResult {
    /// The number of a connection, or why there is none.
    #[must_use]
    pub fn of_connection(number: Result<u64, impl std::fmt::Display>) -> Self {
        number.map_or_else(|why| Self::NotConnected(why.to_string()), Self::Connected)
    }

    /// The object of `key` in a text that its API server sends. A Cluster is read without its spec: a user may put anything into it, and
    /// what Sluice needs of it comes from the watch.
    #[must_use]
    pub fn of_object(key: &Key, text: &str) -> Self {
        let server = key.server;
        let limit = Limit::whole(limit(server));
        let read = if key.is_of::<Cluster>() {
            Item::<Unspecified>::within(text, limit).map(|item| item.map(|Unspecified(object)| object))
        } else {
            Item::<Body>::within(text, limit).map(|item| item.map(|Body(object)| object))
        };
        match read {
            Some(Ok(object)) => Self::Found(Object(object)),
            Some(Err(object)) => Self::Failed(Failure::undecodable(server, object.into())),
            None => Self::Failed(Failure::other(server, "the answer is no object")),
        }
    }

    /// The objects of a list, as the API server of `server` sends it. What is no [list] is a failure.
    #[must_use]
    pub fn of_list(server: Server, text: &str) -> Self {
        let failure = match list(text, Limit::whole(LIST)) {
            Some(Ok(objects)) => return Self::Listed(objects.into_iter().map(Object).collect()),
            Some(Err(object)) => Failure::undecodable(server, object.into()),
            None => Failure::other(server, "the answer is no list of objects"),
        };
        Self::Failed(failure)
    }

    /// How many bytes its objects take.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Found(Object(found)) => size(found),
            Self::Listed(objects) => objects.iter().map(|Object(object)| size(object)).sum(),
            _ => 0,
        }
    }
}

/// Bytes of memory that the answers of a workload may take that one reconcile knows.
const ANSWERS: usize = 16 * 1024 * 1024;

/// Bytes of memory that one list may take: it is decoded beside all other answers.
const LIST: usize = 8 * 1024 * 1024;

/// Bytes of memory that the answers of a server may take that one reconcile knows. Of the management cluster these are objects.
pub(super) const fn answers_of(server: Server) -> usize {
    match server {
        Server::Management => READ,
        Server::Workload => ANSWERS,
    }
}

/// Bytes of memory that one object of a workload may take.
const OF_WORKLOAD: usize = 4 * 1024 * 1024;

/// Bytes of memory that one object may take.
const fn limit(server: Server) -> usize {
    match server {
        Server::Management => READ,
        Server::Workload => OF_WORKLOAD,
    }
}

/// How many bytes a value takes beside its own, which the list or the map has that it is in. See [`sluice_crds::decode`].
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
    /// The object that a write was answered with, as far as a reconcile may need it. A workload is not trusted to answer with no more than
    /// the object, so of its answer only what the next write has to name is kept.
    ///
    /// # Errors
    /// It is no object that can be decoded.
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
                _ => Err(Failure::other(server, "the answer is no object")),
            };
        }
        let written = decode::from_str::<Written>(text, Limit::whole(NAMED));
        let (written, _) = written.map_err(|error| Failure::unreadable(server, &error))?;
        Ok(Self(json!({"metadata": written.metadata})))
    }
}

/// Bytes of memory that the names of an object take.
const NAMED: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_item_of_a_list_says_what_it_is() {
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
    fn what_is_no_list_is_no_empty_list() {
        let items = |list: Value| match ReadResult::of_list(Server::Workload, &list.to_string()) {
            ReadResult::Listed(objects) => Some(objects.len()),
            _ => None,
        };
        assert_eq!(items(json!({"kind": "SecretList", "items": [{}, {}]})), Some(2));
        // As Go writes none.
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
    fn a_cluster_is_read_without_its_spec() {
        let text = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "one", "uid": "u"},
            "spec": {"topology": {"variables": vec![json!({"a": 0}); 50_000]}}, "status": {"phase": "Provisioned"},
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
        assert_eq!(found.get("spec"), None);
        assert_eq!(
            read(&Key::of::<Package>(Server::Management, Some("team-a"), "one")),
            None
        );
    }
}
