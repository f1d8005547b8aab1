//! Writes of a reconcile, each with its precondition.

use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Value, json};

use super::read::{Key, Server};

/// Verb of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// POST; 409 if the object exists.
    Create,
    /// PUT with the uid and resourceVersion of the object from which it was computed.
    Replace,
    /// PUT of the status, with the same precondition.
    ReplaceStatus,
    /// Merge patch with uid and resourceVersion, or of Sluice's own annotations only.
    Patch,
    /// JSON patch (RFC 6902), whose first operation tests the resourceVersion.
    JsonPatch,
    /// Merge patch of the status, with the same precondition.
    PatchStatus,
    /// Forced server-side apply, which creates a missing object. Only for fields that no other client writes.
    Apply,
    /// Forced server-side apply of Sluice's fields in the status of an existing object that others own.
    ApplyStatus,
    /// DELETE with the UID of `body` as precondition; 404 is a success.
    Delete,
}

/// Single write.
#[derive(Clone)]
pub struct Write {
    /// Target object.
    pub key: Key,
    /// Verb.
    pub verb: Verb,
    /// Object or patch; for a deletion the UID.
    pub body: Value,
    /// Cause, for the log.
    pub why: &'static str,
}

impl std::fmt::Debug for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {} {}", self.verb, self.key.resource.kind, self.key.name)
    }
}

impl Write {
    /// Creates `object`.
    pub(crate) fn create<K>(server: Server, object: &K, why: &'static str) -> Self
    where
        K: kube::Resource<DynamicType = ()> + Serialize,
    {
        Self::whole(server, Verb::Create, object, why)
    }

    /// Replaces an object with `object`, which carries the uid and resourceVersion of the old state.
    pub(crate) fn replace<K>(server: Server, object: &K, why: &'static str) -> Self
    where
        K: kube::Resource<DynamicType = ()> + Serialize,
    {
        Self::whole(server, Verb::Replace, object, why)
    }

    /// Replaces the status of an object with that of `object`.
    pub(crate) fn status<K>(object: &K, why: &'static str) -> Self
    where
        K: kube::Resource<DynamicType = ()> + Serialize,
    {
        Self::whole(Server::Management, Verb::ReplaceStatus, object, why)
    }

    /// Merges `patch` into the object of `key`.
    pub(crate) const fn patch(key: Key, patch: Value, why: &'static str) -> Self {
        Self {
            key,
            verb: Verb::Patch,
            body: patch,
            why,
        }
    }

    /// Executes the operations `patch` of RFC 6902 on the object of `key`, if it has this resourceVersion.
    pub(crate) fn json_patch(key: Key, version: &str, patch: Vec<Value>, why: &'static str) -> Self {
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
        Self {
            verb: Verb::JsonPatch,
            body: std::iter::once(test).chain(patch).collect(),
            ..Self::patch(key, Value::Null, why)
        }
    }

    /// Creates the object of `key`.
    pub(crate) fn post(key: Key, object: Value, why: &'static str) -> Self {
        Self {
            verb: Verb::Create,
            ..Self::patch(key, object, why)
        }
    }

    /// Applies the object of `key`.
    pub(crate) fn apply(key: Key, object: Value, why: &'static str) -> Self {
        Self {
            verb: Verb::Apply,
            ..Self::patch(key, object, why)
        }
    }

    /// Applies Sluice's part of the status of the object of `key`.
    pub(crate) fn apply_status(key: Key, object: Value, why: &'static str) -> Self {
        Self {
            verb: Verb::ApplyStatus,
            ..Self::patch(key, object, why)
        }
    }

    /// Merges `patch` into the status of the object of `key`.
    pub(crate) fn patch_status(key: Key, patch: Value, why: &'static str) -> Self {
        Self {
            verb: Verb::PatchStatus,
            ..Self::patch(key, patch, why)
        }
    }

    /// Deletes the object of `key` with this UID, and no other object of that name.
    pub(crate) fn delete(key: Key, uid: Option<String>, why: &'static str) -> Self {
        Self {
            key,
            verb: Verb::Delete,
            body: uid.map_or(Value::Null, Value::String),
            why,
        }
    }

    fn whole<K>(server: Server, verb: Verb, object: &K, why: &'static str) -> Self
    where
        K: kube::Resource<DynamicType = ()> + Serialize,
    {
        let namespace = object.namespace();
        Self {
            key: Key::of::<K>(server, namespace.as_deref(), &object.name_any()),
            verb,
            // Serialization cannot fail: these types only have maps with string keys.
            body: serde_json::to_value(object).unwrap_or_default(),
            why,
        }
    }
}
