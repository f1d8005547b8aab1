//! Both API servers: objects with UIDs, versions, generations and preconditions.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_core::pass::{Failure, Key, Object, Server, Verb, Write};

/// Where an object is: server, plural, namespace, name.
pub(crate) type Place = (bool, String, String, String);

/// An object of the management server, or of the workload.
pub(crate) fn place(server: Server, plural: &str, namespace: &str, name: &str) -> Place {
    let on_workload = server == Server::Workload;
    (
        on_workload,
        plural.to_owned(),
        namespace.to_owned(),
        name.to_owned(),
    )
}

pub(crate) fn place_of(key: &Key) -> Place {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    place(key.server, &key.resource.plural, namespace, &key.name)
}

/// The objects of both servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers {
    objects: BTreeMap<Place, Value>,
    writes: u64,
    /// Requests for something of a status or a spec, by both servers.
    pub(crate) requests: u64,
}

impl Servers {
    pub(crate) fn all(&self) -> &BTreeMap<Place, Value> {
        &self.objects
    }

    pub(crate) fn get(&self, place: &Place) -> Option<&Value> {
        self.objects.get(place)
    }

    /// Keeps an object as it is from now on.
    pub(crate) fn put(&mut self, place: Place, mut object: Value) -> Value {
        self.writes += 1;
        let before = self.objects.get(&place);
        let generation = before.map_or(0, |before| {
            before["metadata"]["generation"].as_u64().unwrap_or_default()
        });
        let same_spec = before.is_some_and(|before| before["spec"] == object["spec"]);
        let metadata = &mut object["metadata"];
        metadata["name"] = json!(place.3);
        metadata["resourceVersion"] = json!(self.writes.to_string());
        metadata["generation"] = json!(if same_spec { generation } else { generation + 1 });
        if !place.2.is_empty() {
            metadata["namespace"] = json!(place.2);
        }
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("uid-{}", self.writes));
        }
        self.objects.insert(place, object.clone());
        object
    }

    /// Edits an object that is there.
    pub(crate) fn edit(&mut self, place: &Place, edit: impl FnOnce(&mut Value)) {
        if let Some(mut object) = self.objects.get(place).cloned() {
            edit(&mut object);
            self.put(place.clone(), object);
        }
    }

    /// Keeps an object as another server has it; none when it is null.
    pub(crate) fn show(&mut self, place: Place, object: Value) {
        if object.is_null() {
            self.objects.remove(&place);
        } else {
            self.objects.insert(place, object);
        }
    }

    pub(crate) fn remove(&mut self, place: &Place) {
        self.objects.remove(place);
    }

    /// Makes one write of a pass.
    pub(crate) fn make(&mut self, write: &Write) -> Result<Object, Failure> {
        self.requests += 1;
        let place = place_of(&write.key);
        let server = write.key.server;
        let Some(found) = self.objects.get(&place).cloned() else {
            return match write.verb {
                Verb::Create => Ok(Object(self.put(place, write.body.clone()))),
                Verb::Delete => Ok(Object(Value::Null)),
                _ => Err(refused(server, 404)),
            };
        };
        let sent = &write.body["metadata"];
        let differs = |field: &str| !sent[field].is_null() && sent[field] != found["metadata"][field];
        let stale = differs("uid") || differs("resourceVersion");
        let mut next = found.clone();
        match write.verb {
            Verb::Create => return Err(refused(server, 409)),
            Verb::Delete if write.body != found["metadata"]["uid"] => return Err(refused(server, 409)),
            Verb::Delete => {
                self.objects.remove(&place);
                return Ok(Object(Value::Null));
            }
            _ if stale => return Err(refused(server, 409)),
            Verb::Replace => {
                next = write.body.clone();
                next["status"] = found["status"].clone();
            }
            Verb::ReplaceStatus => next["status"] = write.body["status"].clone(),
            Verb::Patch | Verb::PatchStatus | Verb::Apply => merge(&mut next, &write.body),
        }
        Ok(Object(self.put(place, next)))
    }
}

/// A request that is refused with this code.
pub(crate) fn refused(server: Server, code: u16) -> Failure {
    Failure {
        code: Some(code),
        ..Failure::other(server, "refused")
    }
}

/// RFC 7386.
fn merge(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        object.clone_from(patch);
        return;
    };
    for (name, value) in fields {
        if value.is_null() {
            object.as_object_mut().map(|object| object.remove(name));
        } else {
            merge(&mut object[name], value);
        }
    }
}
