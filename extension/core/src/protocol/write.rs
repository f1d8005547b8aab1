//! What a pass writes, each with its precondition.

use kube::ResourceExt;
use serde::Serialize;
use serde_json::Value;

use super::read::{Key, Server};

/// How an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// POST: 409 when there is one.
    Create,
    /// PUT with the uid and the resourceVersion of the object that it was computed from.
    Replace,
    /// The same of its status.
    ReplaceStatus,
    /// A merge patch that names uid and resourceVersion, or only touches an annotation of Sluice.
    Patch,
    /// The same of its status.
    PatchStatus,
    /// A forced server-side apply, which creates the object where there is none: of what no other client writes.
    Apply,
    /// A forced server-side apply of what Sluice says in the status of an object of others, which exists.
    ApplyStatus,
    /// DELETE of exactly the object with the UID of `body`; 404 is fine.
    Delete,
}

/// One write.
#[derive(Clone)]
pub struct Write {
    /// Which object.
    pub key: Key,
    /// How.
    pub verb: Verb,
    /// The object or the patch; of a deletion the UID.
    pub body: Value,
    /// Why, for the log.
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

    /// Replaces an object by `object`, which carries the uid and the resourceVersion of the other one.
    pub(crate) fn replace<K>(server: Server, object: &K, why: &'static str) -> Self
    where
        K: kube::Resource<DynamicType = ()> + Serialize,
    {
        Self::whole(server, Verb::Replace, object, why)
    }

    /// Replaces the status of an object by that of `object`.
    pub(crate) fn status<K>(object: &K, why: &'static str) -> Self
    where
        K: kube::Resource<DynamicType = ()> + Serialize,
    {
        Self::whole(Server::Management, Verb::ReplaceStatus, object, why)
    }

    /// A merge patch of the object of `key`.
    pub(crate) const fn patch(key: Key, patch: Value, why: &'static str) -> Self {
        Self {
            key,
            verb: Verb::Patch,
            body: patch,
            why,
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

    /// Applies the part of the status of the object of `key` that Sluice writes.
    pub(crate) fn apply_status(key: Key, object: Value, why: &'static str) -> Self {
        Self {
            verb: Verb::ApplyStatus,
            ..Self::patch(key, object, why)
        }
    }

    /// A merge patch of the status of the object of `key`.
    pub(crate) fn patch_status(key: Key, patch: Value, why: &'static str) -> Self {
        Self {
            verb: Verb::PatchStatus,
            ..Self::patch(key, patch, why)
        }
    }

    /// Deletes exactly the object of `key` that has this UID.
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
            // An object of these types has no map with keys that are not text.
            body: serde_json::to_value(object).unwrap_or_default(),
            why,
        }
    }
}
