//! Model of both API servers: objects with UIDs, resourceVersions, generations and preconditions.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use serde_json::{Value, json};
use sluice_core::reconcile::cluster::{Failure, Key, Object, Server, Verb, Write};

/// Server, plural, namespace and name of an object.
pub(crate) type Place = (bool, String, String, String);

/// Returns the place of an object of the management cluster or of the workload cluster.
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

/// Kinds with a finalizer.
const FINALIZED: &str = "packageinstalls";

/// Late write of a dead process, and the object at the time of its request.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    pub(crate) write: Write,
    found: Option<Arc<Value>>,
}

/// An object with a digest of its content.
type Digested = (u64, Arc<Value>);

/// Objects of both servers, or the watched part of them. A copy is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers {
    objects: Arc<BTreeMap<Arc<Place>, Digested>>,
    /// Number of writes of each object, including deleted ones.
    versions: Arc<BTreeMap<Arc<Place>, u64>>,
    /// Number of times that an earlier state was restored.
    restored: u64,
    /// Whether the workload does not respond.
    pub(crate) silent: bool,
    /// Whether restored content restores the resourceVersion: otherwise no two histories reach the same state.
    pub(crate) by_content: bool,
}

impl Hash for Servers {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (digest, _) in self.objects.values() {
            digest.hash(state);
        }
        (&self.versions, self.silent).hash(state);
    }
}

/// Returns a hash of a value.
pub(crate) fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Servers {
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Place, &Value)> {
        self.objects
            .iter()
            .map(|(place, (_, object))| (&**place, &**object))
    }

    /// Returns the objects of a kind.
    pub(crate) fn of(&self, server: Server, plural: &str) -> impl Iterator<Item = (&Place, &Value)> {
        let on_workload = server == Server::Workload;
        self.all()
            .filter(move |(place, _)| place.0 == on_workload && place.1 == plural)
    }

    pub(crate) fn get(&self, place: &Place) -> Option<&Value> {
        self.objects.get(place).map(|(_, object)| &**object)
    }

    /// Whether both have the same objects and writes.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.objects, &other.objects)
    }

    /// Whether both have the same objects.
    pub(crate) fn shows(&self, other: &Self) -> bool {
        let digests = |servers: &Self| {
            let objects = servers.objects.iter();
            objects
                .map(|(place, (digest, _))| (Arc::clone(place), *digest))
                .collect::<Vec<_>>()
        };
        self.objects.len() == other.objects.len() && digests(self) == digests(other)
    }

    /// Returns the number of all writes.
    pub(crate) fn writes(&self) -> u64 {
        self.versions.values().sum()
    }

    /// Stores an object. An unchanged object is no write.
    pub(crate) fn put(&mut self, place: Place, mut object: Value) -> Value {
        let before = self.get(&place);
        if before == Some(&object) {
            return object;
        }
        let generation = before.map_or(0, |before| {
            before["metadata"]["generation"].as_u64().unwrap_or_default()
        });
        let same_spec = before.is_some_and(|before| before["spec"] == object["spec"]);
        let is_new = before.is_none();
        let versions = Arc::make_mut(&mut self.versions);
        let version = versions.entry(Arc::new(place.clone())).or_default();
        if is_new || !self.by_content {
            *version += 1;
        }
        let metadata = &mut object["metadata"];
        metadata["name"] = json!(place.3);
        metadata["generation"] = json!(if same_spec { generation } else { generation + 1 });
        if !place.2.is_empty() {
            metadata["namespace"] = json!(place.2);
        }
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("{}-{}-{version}-{}", place.1, place.3, self.restored));
        }
        metadata["resourceVersion"] = Value::Null;
        let version = if self.by_content {
            digest(&object)
        } else {
            // No version of a lost state is given again.
            *version * 1_000 + self.restored
        };
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        self.show(place, object.clone());
        object
    }

    /// Edits an existing object.
    pub(crate) fn edit(&mut self, place: &Place, edit: impl FnOnce(&mut Value)) {
        if let Some(mut object) = self.get(place).cloned() {
            edit(&mut object);
            self.put(place.clone(), object);
        }
    }

    /// Replaces an existing object with one of another UID.
    pub(crate) fn put_another(&mut self, place: &Place, edit: impl FnOnce(&mut Value)) {
        let Some(mut object) = self.get(place).cloned() else {
            return;
        };
        edit(&mut object);
        object["metadata"]["uid"] = Value::Null;
        self.remove(place);
        self.put(place.clone(), object);
    }

    /// Stores an object unchanged, or removes it if `object` is null.
    pub(crate) fn show(&mut self, place: Place, object: Value) {
        let objects = Arc::make_mut(&mut self.objects);
        if object.is_null() {
            objects.remove(&place);
        } else {
            objects.insert(Arc::new(place), (digest(&object), Arc::new(object)));
        }
    }

    pub(crate) fn remove(&mut self, place: &Place) {
        Arc::make_mut(&mut self.objects).remove(place);
    }

    /// Deletes an object, or sets its deletion timestamp if it has a finalizer.
    pub(crate) fn delete(&mut self, place: &Place) {
        if place.1 == FINALIZED {
            self.edit(place, |object| {
                object["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
            });
        } else {
            self.remove(place);
        }
    }

    /// Returns the objects that the garbage collector of the management cluster would delete: all their owners are deleted.
    fn dangling(&self) -> Vec<Place> {
        let there = || self.all().filter(|(place, _)| !place.0);
        let uids: BTreeSet<&str> = there()
            .filter_map(|(_, object)| object["metadata"]["uid"].as_str())
            .collect();
        let is_dangling = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            let owners = owners.filter(|owners| !owners.is_empty());
            let is_gone = |owner: &Value| owner["uid"].as_str().is_none_or(|uid| !uids.contains(uid));
            object["metadata"]["deletionTimestamp"].is_null()
                && owners.is_some_and(|owners| owners.iter().all(is_gone))
        };
        there()
            .filter(|(_, object)| is_dangling(object))
            .map(|(place, _)| place.clone())
            .collect()
    }

    /// Garbage-collects one object.
    pub(crate) fn collect_one(&mut self, which: u8) {
        let places = self.dangling();
        if let Some(index) = usize::from(which).checked_rem(places.len()) {
            self.delete(&places[index]);
        }
    }

    /// Garbage-collects all objects.
    pub(crate) fn collect(&mut self) {
        for place in self.dangling() {
            self.delete(&place);
        }
    }

    /// Restores an earlier state. Versions begin there again.
    pub(crate) fn restore(&mut self, earlier: &Self) {
        *self = Self {
            restored: self.restored + 1,
            ..earlier.clone()
        };
    }

    /// Replaces the objects of one server with those of `other`.
    pub(crate) fn take_over(&mut self, server: Server, other: &Self) {
        let on_workload = server == Server::Workload;
        let objects = Arc::make_mut(&mut self.objects);
        objects.retain(|place, _| place.0 != on_workload);
        let there = other.objects.iter().filter(|(place, _)| place.0 == on_workload);
        objects.extend(there.map(|(place, object)| (Arc::clone(place), object.clone())));
    }

    /// Replaces the objects of some kinds.
    pub(crate) fn take_over_kinds(&mut self, server: Server, kinds: &[&str], other: &Self) {
        let on_workload = server == Server::Workload;
        let is_of = |place: &Place| place.0 == on_workload && kinds.contains(&place.1.as_str());
        let objects = Arc::make_mut(&mut self.objects);
        objects.retain(|place, _| !is_of(place));
        let there = other.objects.iter().filter(|(place, _)| is_of(place));
        objects.extend(there.map(|(place, object)| (Arc::clone(place), object.clone())));
    }

    /// Executes one write of a reconcile.
    pub(crate) fn make(&mut self, write: &Write) -> Result<Object, Failure> {
        let place = place_of(&write.key);
        let server = write.key.server;
        if server == Server::Workload && self.silent {
            return Err(refused(server, None));
        }
        let Some(found) = self.get(&place).cloned() else {
            return match write.verb {
                Verb::Create => Ok(Object(self.put(place, write.body.clone()))),
                Verb::Delete => Ok(Object(Value::Null)),
                _ => Err(refused(server, Some(404))),
            };
        };
        let sent = &write.body["metadata"];
        let differs = |field: &str| !sent[field].is_null() && sent[field] != found["metadata"][field];
        let stale = differs("uid") || differs("resourceVersion");
        let mut next = found.clone();
        match write.verb {
            Verb::Create => return Err(refused(server, Some(409))),
            Verb::Delete if write.body != found["metadata"]["uid"] => {
                return Err(refused(server, Some(409)));
            }
            Verb::Delete => {
                self.delete(&place);
                return Ok(Object(Value::Null));
            }
            _ if stale => return Err(refused(server, Some(409))),
            Verb::Replace => {
                next = write.body.clone();
                if !found["status"].is_null() {
                    next["status"] = found["status"].clone();
                }
            }
            Verb::ReplaceStatus => next["status"] = write.body["status"].clone(),
            Verb::Patch | Verb::PatchStatus | Verb::Apply | Verb::ApplyStatus => {
                merge(&mut next, &write.body);
            }
        }
        Ok(Object(self.put(place, next)))
    }

    /// Returns `write` as a late write.
    pub(crate) fn delayed(&self, write: Write) -> Late {
        let found = self.objects.get(&place_of(&write.key));
        Late {
            found: found.map(|(_, object)| Arc::clone(object)),
            write,
        }
    }

    /// Executes a late write and asserts that it overwrites no newer change.
    pub(crate) fn arrive(&mut self, late: &Late) {
        let place = place_of(&late.write.key);
        let found = self.objects.get(&place).map(|(_, object)| Arc::clone(object));
        let _refused = self.make(&late.write);
        let (Some(found), Some(made)) = (found, self.get(&place)) else {
            return;
        };
        // Late writes of annotations may overwrite.
        let same = ["spec", "data", "status"]
            .iter()
            .all(|part| found[part] == made[part]);
        let is_as_sent = late.found.as_ref() == Some(&found);
        assert!(same || is_as_sent, "late: {:?} overwrites {found}", late.write);
    }
}

/// Returns the failure of a refused request, or of one without a response.
pub(crate) fn refused(server: Server, code: Option<u16>) -> Failure {
    Failure {
        code,
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
