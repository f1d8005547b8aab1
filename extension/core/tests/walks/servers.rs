//! Model of both API servers: objects with UIDs, resourceVersions, generations and preconditions.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    ops::{Deref, DerefMut},
    sync::Arc,
};

use serde_json::{Value, json};
use sluice_core::reconcile::cluster::{Failure, Key, Object, Server, Verb, Write};
use sluice_test_store::{Refused, Store, Strategy, identify};

pub(crate) use sluice_test_store::digest;

use crate::machines::refusing;

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

/// Message about a failed operation of a JSON patch.
const FAILED_PATCH: &str = "the server rejected our request due to an error in our request";

/// Kinds with a finalizer.
const FINALIZED: &str = "packageinstalls";

/// Late write of a dead process, and the object at the time of its request.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    pub(crate) write: Write,
    found: Option<Arc<Value>>,
}

/// Source of metadata, from writes and restores.
#[derive(Clone, Debug, Default)]
pub(crate) struct Versions {
    /// Number of writes of each object, including deleted ones.
    writes: Arc<BTreeMap<Arc<Place>, u64>>,
    /// Number of times that an earlier state was restored.
    restored: u64,
    /// Whether restored content restores the resourceVersion: otherwise no two histories reach the same state.
    pub(crate) by_content: bool,
}

impl Hash for Versions {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.writes.hash(state);
    }
}

impl Strategy<Place> for Versions {
    fn prepare(&mut self, place: &Place, before: Option<&Value>, object: &mut Value) {
        let generation = before.map_or(0, |before| {
            before["metadata"]["generation"].as_u64().unwrap_or_default()
        });
        let same_spec = before.is_some_and(|before| before["spec"] == object["spec"]);
        object["metadata"]["generation"] = json!(if same_spec { generation } else { generation + 1 });
        let writes = Arc::make_mut(&mut self.writes);
        let version = writes.entry(Arc::new(place.clone())).or_default();
        if before.is_none() || !self.by_content {
            *version += 1;
        }
        let (_, plural, namespace, name) = place;
        let uid = format!("{plural}-{name}-{version}-{}", self.restored);
        identify(object, namespace, name, uid);
        object["metadata"]["resourceVersion"] = Value::Null;
        let version = if self.by_content {
            digest(object)
        } else {
            // No version of a lost state is given again.
            *version * 1_000 + self.restored
        };
        object["metadata"]["resourceVersion"] = json!(version.to_string());
    }
}

/// Objects of both servers, or the watched part of them. A copy is cheap.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Servers {
    objects: Store<Place, Versions>,
    /// Whether the workload does not respond.
    pub(crate) silent: bool,
    /// Whether no leader can read the UID of the management cluster.
    pub(crate) is_management_unread: bool,
    /// Whether writes ignore their preconditions, by a planted defect.
    pub(crate) is_unconditional: bool,
}

impl Deref for Servers {
    type Target = Store<Place, Versions>;

    fn deref(&self) -> &Self::Target {
        &self.objects
    }
}

impl DerefMut for Servers {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.objects
    }
}

impl Servers {
    /// Returns the objects of a kind.
    pub(crate) fn of(&self, server: Server, plural: &str) -> impl Iterator<Item = (&Place, &Value)> {
        let on_workload = server == Server::Workload;
        self.all()
            .filter(move |(place, _)| place.0 == on_workload && place.1 == plural)
    }

    /// Returns the number of all writes.
    pub(crate) fn writes(&self) -> u64 {
        self.strategy.writes.values().sum()
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
        let restored = self.strategy.restored + 1;
        *self = earlier.clone();
        self.strategy.restored = restored;
    }

    /// Replaces the objects of one server with those of `other`.
    pub(crate) fn take_over(&mut self, server: Server, other: &Self) {
        self.take_over_but(server, "", other);
    }

    /// Replaces the objects of one server, except those of one kind.
    pub(crate) fn take_over_but(&mut self, server: Server, kind: &str, other: &Self) {
        let on_workload = server == Server::Workload;
        self.objects
            .take_over(&other.objects, |place| place.0 == on_workload && place.1 != kind);
    }

    /// Replaces the objects of some kinds.
    pub(crate) fn take_over_kinds(&mut self, server: Server, kinds: &[&str], other: &Self) {
        let on_workload = server == Server::Workload;
        self.objects.take_over(&other.objects, |place| {
            place.0 == on_workload && kinds.contains(&place.1.as_str())
        });
    }

    /// Executes one write of a reconcile.
    pub(crate) fn make(&mut self, write: &Write) -> Result<Object, Failure> {
        let place = place_of(&write.key);
        let server = write.key.server;
        if server == Server::Workload && self.silent {
            return Err(refused(server, None));
        }
        if write.verb == Verb::JsonPatch && self.get(&refusing()).is_some() {
            return Err(refused(server, Some(422)));
        }
        let body: &Value = &self.body(&place, &write.body);
        let made = match write.verb {
            Verb::Create => self.create(place, body.clone()),
            Verb::Replace => self.replace(&place, body),
            Verb::ReplaceStatus => self.replace_status(&place, body),
            Verb::Apply => self.apply(place, body),
            Verb::Patch | Verb::PatchStatus | Verb::ApplyStatus => self.patch(&place, body),
            Verb::JsonPatch => self.json_patch(&place, body),
            Verb::Delete => {
                let uid = json!({"uid": body.as_str().unwrap_or_default()});
                if self.check(&place, &uid).err() == Some(Refused::Conflict) {
                    Err(Refused::Conflict)
                } else {
                    self.delete(&place);
                    Ok(Value::Null)
                }
            }
        };
        made.map(Object).map_err(|reason| {
            let mut failure = refused(server, Some(reason.code()));
            if reason == Refused::Unprocessable {
                FAILED_PATCH.clone_into(&mut failure.message);
            }
            failure
        })
    }

    /// Returns the body of a write. Without preconditions, it has the UID and resourceVersion of the current object.
    fn body<'a>(&self, place: &Place, body: &'a Value) -> Cow<'a, Value> {
        let Some(found) = self.get(place).filter(|_| self.is_unconditional) else {
            return Cow::Borrowed(body);
        };
        let mut body = body.clone();
        if body.is_string() {
            // The UID of a deletion.
            body = found["metadata"]["uid"].clone();
        } else if body.is_array() {
            body[0]["value"] = found["metadata"]["resourceVersion"].clone();
        } else {
            for field in ["uid", "resourceVersion"] {
                if !body["metadata"][field].is_null() {
                    body["metadata"][field] = found["metadata"][field].clone();
                }
            }
        }
        Cow::Owned(body)
    }

    /// Returns `write` as a late write.
    pub(crate) fn delayed(&self, write: Write) -> Late {
        Late {
            found: self.shared(&place_of(&write.key)),
            write,
        }
    }

    fn shared(&self, place: &Place) -> Option<Arc<Value>> {
        self.check(place, &Value::Null).ok().cloned()
    }

    /// Executes a late write and asserts that it overwrites no newer change.
    pub(crate) fn arrive(&mut self, late: &Late) {
        let place = place_of(&late.write.key);
        let found = self.shared(&place);
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
