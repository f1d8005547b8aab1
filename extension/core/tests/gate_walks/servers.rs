//! Objects of both API servers, with UIDs, resourceVersions, generations and preconditions.

use serde_json::{Value, json};
use sluice_core::protocol::{Failure, Key, Object, Server, Verb, Write};
use sluice_test_store::{Refused, Store, Strategy, identify};

/// Whether it is in the workload cluster, plural, namespace and name of an object.
pub(crate) type Place = (bool, String, String, String);

pub(crate) fn place_of(key: &Key) -> Place {
    (
        key.server == Server::Workload,
        key.resource.plural.to_string(),
        key.namespace.clone().unwrap_or_default(),
        key.name.clone(),
    )
}

/// Number of writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Versions(u64);

impl Strategy<Place> for Versions {
    fn prepare(&mut self, place: &Place, before: Option<&Value>, object: &mut Value) {
        let (_, plural, namespace, name) = place;
        self.0 += 1;
        identify(object, namespace, name, format!("{plural}-{name}-{}", self.0));
        let generation = before.map_or(1, |before| {
            let generation = before["metadata"]["generation"].as_i64().unwrap_or_default();
            generation + i64::from(before["spec"] != object["spec"])
        });
        object["metadata"]["generation"] = json!(generation);
        object["metadata"]["resourceVersion"] = json!(self.0.to_string());
    }
}

/// Objects of both servers, or the cached part of them. A copy is cheap.
pub(crate) type Servers = Store<Place, Versions>;

/// Returns the objects of a kind of the management cluster.
pub(crate) fn of<'a>(
    servers: &'a Servers,
    plural: &str,
) -> impl Iterator<Item = (&'a Place, &'a Value)> + use<'a> {
    let plural = plural.to_owned();
    servers
        .all()
        .filter(move |(place, _)| !place.0 && place.1 == plural)
}

/// Returns the failure of a request with this code, or without a response.
pub(crate) fn refused(server: Server, code: Option<u16>) -> Failure {
    Failure {
        code,
        ..Failure::other(server, "refused")
    }
}

/// Executes a write of a reconcile. A status has the resourceVersion that it was computed from.
pub(crate) fn make(servers: &mut Servers, write: &Write) -> Result<Object, Failure> {
    let Write { key, verb, body, .. } = write;
    let is_ours = key.server == Server::Management && key.resource.plural == "clusterupgrades";
    assert!(is_ours, "foreign: {write:?}");
    let place = place_of(key);
    let made = match verb {
        Verb::Create => {
            let mut object = body.clone();
            // The status is a subresource.
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
            servers.create(place, object)
        }
        Verb::ReplaceStatus => {
            let version = &body["metadata"]["resourceVersion"];
            assert!(version.is_string(), "foreign: {write:?} without a precondition");
            servers.replace_status(&place, body)
        }
        Verb::Delete => match servers.delete(&place, &json!({"uid": body})) {
            Err(Refused::NotFound) => Ok(Value::Null),
            deleted => deleted,
        },
        _ => panic!("foreign: {write:?}"),
    };
    made.map(Object)
        .map_err(|reason| refused(key.server, Some(reason.code())))
}
