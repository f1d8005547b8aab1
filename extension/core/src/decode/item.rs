//! One object of a list or a watch.

use std::borrow::Cow;

use kube::{Resource, core::ObjectMeta};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;

use super::{Undecodable, text::without_managed_fields};

/// An object, without its `managedFields`, or what is known of one that cannot be decoded.
///
/// It is read from JSON whatever the object has in it, as long as the object has a name. In an event of a watch the type has to come
/// before the object, as kube-apiserver writes it: serde would build the object up before it is an item.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Item<K> {
    /// An object.
    Decoded(K),
    /// One that is none of the kind.
    Undecodable(Box<Undecodable>),
}

impl<K: DeserializeOwned> Item<K> {
    /// The object in a text. None if the text is no JSON of a named object.
    #[must_use]
    pub fn of(json: &str) -> Option<Self> {
        let json = without_managed_fields(json);
        match serde_json::from_str(&json) {
            Ok(object) => Some(Self::Decoded(object)),
            Err(_) => Undecodable::of::<K>(&json).map(|object| Self::Undecodable(Box::new(object))),
        }
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Item<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        Self::of(json.get()).ok_or_else(|| D::Error::custom("an object without a name"))
    }
}

/// It is of the kind that it would be.
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
