//! One object of a list or watch.

use std::borrow::Cow;

use kube::{Resource, core::ObjectMeta};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use sluice_crds::decode::{Limit, Text};

use super::{Decode, Undecodable};

/// A decoded object without its `managedFields`, or the readable part of an undecodable object.
///
/// Deserialization succeeds for any content as long as the object has a name. In a watch event the type must come before the object,
/// as kube-apiserver writes it. Otherwise serde would buffer the object before it becomes an item.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Item<K> {
    /// A decoded object.
    Decoded(K),
    /// An object that does not decode as the kind.
    Undecodable(Box<Undecodable>),
}

impl<K: Decode> Item<K> {
    /// Reads the object from a text. `None` if the text is not JSON of a named object.
    #[must_use]
    pub fn of(json: &str) -> Option<Self> {
        Self::within(json, K::LIMIT)
    }

    /// Like [`Self::of`], with another limit.
    #[must_use]
    pub fn within(json: &str, limit: Limit) -> Option<Self> {
        match K::decode(json, limit) {
            Ok((object, _)) => Some(Self::Decoded(object)),
            Err(fault) => Undecodable::of(json, &fault).map(|object| Self::Undecodable(Box::new(object))),
        }
    }
}

impl<K> Item<K> {
    /// Applies `read` to the object.
    ///
    /// # Errors
    /// The object is undecodable.
    pub fn map<T>(self, read: impl FnOnce(K) -> T) -> Result<T, Box<Undecodable>> {
        match self {
            Self::Decoded(object) => Ok(read(object)),
            Self::Undecodable(object) => Err(object),
        }
    }
}

/// An object without a name fails the whole list: no API server sends one, and its loss would never be reported.
impl<'de, K: Decode + Resource> Deserialize<'de> for Item<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(json) = Text::deserialize(deserializer)?;
        let item = Self::of(&json).filter(|item| item.meta().name.is_some());
        item.ok_or_else(|| D::Error::custom("an object without a name"))
    }
}

/// An undecodable object has the kind of its list or watch.
impl<K: Resource> Resource for Item<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn api_version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::api_version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Decoded(object) => object.meta(),
            Self::Undecodable(object) => &object.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Decoded(object) => object.meta_mut(),
            Self::Undecodable(object) => &mut object.metadata,
        }
    }
}
