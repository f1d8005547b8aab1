//! Decoding of an object of any kind.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value};

/// An object of any kind, without its `managedFields`: nothing reads them, they make up half of an object, and they may exceed the nesting
/// limit of serde_json.
#[derive(Clone, Debug, PartialEq)]
pub struct Body(pub Value);

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields::Whole).map(Self)
    }
}

/// An object of any kind, without its `managedFields` and its spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Unspecified(pub Value);

impl<'de> Deserialize<'de> for Unspecified {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields::Unspecified).map(Self)
    }
}

/// Fields to read.
enum Fields {
    /// All fields of an object.
    Whole,
    /// All fields of an object except its spec.
    Unspecified,
    /// The fields of metadata.
    Metadata,
}

impl<'de> Visitor<'de> for Fields {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            match (&self, name.as_str()) {
                (Self::Metadata, "managedFields") | (Self::Unspecified, "spec") => {
                    map.next_value::<IgnoredAny>()?;
                }
                (Self::Whole | Self::Unspecified, "metadata") => {
                    let Metadata(metadata) = map.next_value()?;
                    fields.insert(name, metadata);
                }
                _ => {
                    fields.insert(name, map.next_value()?);
                }
            }
        }
        Ok(Value::Object(fields))
    }
}

struct Metadata(Value);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Fields::Metadata).map(Self)
    }
}
