//! Store of Kubernetes objects that checks preconditions like an API server. Fake API servers of tests add what differs between them.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use serde_json::{Value, json};

pub use json_patch::merge;

/// Assigns the metadata that clients cannot choose.
pub trait Strategy<K> {
    /// Completes an object that replaces `before`.
    fn prepare(&mut self, place: &K, before: Option<&Value>, object: &mut Value);
}

/// Sets name and namespace of an object, and the UID if it has none. The namespace of a cluster-scoped object is empty.
pub fn identify(object: &mut Value, namespace: &str, name: &str, uid: String) {
    let metadata = &mut object["metadata"];
    metadata["name"] = json!(name);
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    if metadata["uid"].is_null() {
        metadata["uid"] = Value::String(uid);
    }
}

/// Reason of a refused write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The object does not exist.
    NotFound,
    /// The object to create exists.
    AlreadyExists,
    /// The object has another UID or resourceVersion.
    Conflict,
    /// An operation of a JSON patch failed.
    Unprocessable,
}

impl Refused {
    /// Returns the HTTP status code.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::NotFound => 404,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Unprocessable => 422,
        }
    }

    /// Returns the Status of the response.
    #[must_use]
    pub fn status(self) -> Value {
        status(self.code(), &format!("{self:?}"))
    }
}

/// Returns the Status of a failed request.
#[must_use]
pub fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": ""})
}

/// Returns a hash of a value.
#[must_use]
pub fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Object with a digest of its content.
type Entry = (u64, Arc<Value>);

/// Objects by place. A copy is cheap.
#[derive(Clone, Debug, Default)]
pub struct Store<K, S> {
    objects: Arc<BTreeMap<Arc<K>, Entry>>,
    /// Source of metadata, with what it remembers of earlier writes.
    pub strategy: S,
}

impl<K, S: Hash> Hash for Store<K, S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (digest, _) in self.objects.values() {
            digest.hash(state);
        }
        self.strategy.hash(state);
    }
}

impl<K: Ord + Clone, S: Strategy<K>> Store<K, S> {
    /// Returns all objects in the order of their places.
    pub fn all(&self) -> impl Iterator<Item = (&K, &Value)> {
        self.objects
            .iter()
            .map(|(place, (_, object))| (&**place, &**object))
    }

    /// Returns an object.
    #[must_use]
    pub fn get(&self, place: &K) -> Option<&Value> {
        self.objects.get(place).map(|(_, object)| &**object)
    }

    /// Returns whether one is a copy of the other, without a write since.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.objects, &other.objects)
    }

    /// Returns whether both have the same objects.
    #[must_use]
    pub fn same_objects(&self, other: &Self) -> bool {
        let mut pairs = self.objects.iter().zip(other.objects.iter());
        self.objects.len() == other.objects.len()
            && pairs.all(|((place, (digest, _)), (of, (other, _)))| place == of && digest == other)
    }

    /// Stores an object. An unchanged object is no write.
    pub fn put(&mut self, place: K, mut object: Value) -> Value {
        let before = self.objects.get(&place).map(|(_, before)| &**before);
        if before != Some(&object) {
            self.strategy.prepare(&place, before, &mut object);
            self.set(place, object.clone());
        }
        object
    }

    /// Stores an object with its metadata, or removes it if `object` is null.
    pub fn set(&mut self, place: K, object: Value) {
        let objects = Arc::make_mut(&mut self.objects);
        if object.is_null() {
            objects.remove(&place);
        } else {
            objects.insert(Arc::new(place), (digest(&object), Arc::new(object)));
        }
    }

    /// Edits an object if it exists.
    pub fn edit(&mut self, place: &K, edit: impl FnOnce(&mut Value)) {
        drop(self.update(place, &Value::Null, edit));
    }

    /// Removes an object.
    pub fn remove(&mut self, place: &K) {
        Arc::make_mut(&mut self.objects).remove(place);
    }

    /// Replaces the objects of some places with those of `other`.
    pub fn take_over(&mut self, other: &Self, is_taken: impl Fn(&K) -> bool) {
        let objects = Arc::make_mut(&mut self.objects);
        objects.retain(|place, _| !is_taken(place));
        let taken = other.objects.iter().filter(|(place, _)| is_taken(place));
        objects.extend(taken.map(|(place, object)| (Arc::clone(place), object.clone())));
    }

    /// Returns an existing object. A UID and a resourceVersion among the preconditions must be those of the object.
    pub fn check(&self, place: &K, preconditions: &Value) -> Result<&Arc<Value>, Refused> {
        let (_, found) = self.objects.get(place).ok_or(Refused::NotFound)?;
        let differs =
            |field: &str| !preconditions[field].is_null() && preconditions[field] != found["metadata"][field];
        if differs("uid") || differs("resourceVersion") {
            return Err(Refused::Conflict);
        }
        Ok(found)
    }

    fn update(
        &mut self,
        place: &K,
        preconditions: &Value,
        edit: impl FnOnce(&mut Value),
    ) -> Result<Value, Refused> {
        let mut object = Value::clone(self.check(place, preconditions)?);
        edit(&mut object);
        Ok(self.put(place.clone(), object))
    }

    /// Creates an object.
    pub fn create(&mut self, place: K, object: Value) -> Result<Value, Refused> {
        if self.get(&place).is_some() {
            return Err(Refused::AlreadyExists);
        }
        Ok(self.put(place, object))
    }

    /// Replaces an object. Its status stays.
    pub fn replace(&mut self, place: &K, object: &Value) -> Result<Value, Refused> {
        self.update(place, &object["metadata"], |found| {
            let status = found["status"].take();
            found.clone_from(object);
            if !status.is_null() {
                found["status"] = status;
            }
        })
    }

    /// Replaces the status of an object.
    pub fn replace_status(&mut self, place: &K, object: &Value) -> Result<Value, Refused> {
        self.update(place, &object["metadata"], |found| {
            found["status"] = object["status"].clone();
        })
    }

    /// Merges a patch (RFC 7386) into an object.
    pub fn patch(&mut self, place: &K, patch: &Value) -> Result<Value, Refused> {
        self.update(place, &patch["metadata"], |found| merge(found, patch))
    }

    /// Executes operations of RFC 6902 on an object. A failed operation, such as the test of another resourceVersion, changes nothing.
    pub fn json_patch(&mut self, place: &K, operations: &Value) -> Result<Value, Refused> {
        let mut object = Value::clone(self.check(place, &Value::Null)?);
        let operations: json_patch::Patch =
            serde_json::from_value(operations.clone()).map_err(|_| Refused::Unprocessable)?;
        json_patch::patch(&mut object, &operations).map_err(|_| Refused::Unprocessable)?;
        Ok(self.put(place.clone(), object))
    }

    /// Merges fields into an object, or creates it. As in `applyPatch` of kube-apiserver v1.36.3 (`pkg/endpoints/handlers/patch.go`), a UID
    /// conflicts with a missing object, and a resourceVersion does not.
    pub fn apply(&mut self, place: K, object: &Value) -> Result<Value, Refused> {
        match self.patch(&place, object) {
            Err(Refused::NotFound) if !object["metadata"]["uid"].is_null() => Err(Refused::Conflict),
            Err(Refused::NotFound) => self.create(place, object.clone()),
            applied => applied,
        }
    }

    /// Deletes an object and returns it.
    pub fn delete(&mut self, place: &K, preconditions: &Value) -> Result<Value, Refused> {
        let found = Value::clone(self.check(place, preconditions)?);
        self.remove(place);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Assigns no metadata.
    #[derive(Default)]
    struct Unassigned;

    impl Strategy<u8> for Unassigned {
        fn prepare(&mut self, _: &u8, _: Option<&Value>, _: &mut Value) {}
    }

    #[test]
    fn an_apply_with_a_uid_creates_no_object() {
        let mut store = Store::<u8, Unassigned>::default();
        let with_uid = json!({"metadata": {"uid": "a"}});
        assert_eq!(store.apply(0, &with_uid), Err(Refused::Conflict));
        assert_eq!(store.get(&0), None);
        let with_version = json!({"metadata": {"resourceVersion": "1"}});
        assert_eq!(store.apply(0, &with_version), Ok(with_version.clone()));
    }

    #[test]
    fn an_apply_to_another_object_is_a_conflict() {
        let mut store = Store::<u8, Unassigned>::default();
        store.put(0, json!({"metadata": {"uid": "a", "resourceVersion": "1"}}));
        for (field, other) in [("uid", "b"), ("resourceVersion", "2")] {
            let applied = store.apply(0, &json!({"metadata": {field: other}}));
            assert_eq!(applied, Err(Refused::Conflict), "{field}");
        }
        let merged = store.apply(0, &json!({"metadata": {"uid": "a"}, "data": "c"}));
        let whole = json!({"metadata": {"uid": "a", "resourceVersion": "1"}, "data": "c"});
        assert_eq!(merged, Ok(whole));
    }
}
