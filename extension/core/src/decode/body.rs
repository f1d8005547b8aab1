//! An object of any kind, whole.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value};

/// An object of any kind, without its `managedFields`: nothing reads them, they are half of an object, and they may be nested deeper than
/// serde_json goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Body(pub Value);

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_map(Fields { of_metadata: false })
            .map(Self)
    }
}

/// Reads the fields of an object, or of its metadata.
struct Fields {
    of_metadata: bool,
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
            if self.of_metadata && name == "managedFields" {
                map.next_value::<IgnoredAny>()?;
            } else if !self.of_metadata && name == "metadata" {
                let Metadata(metadata) = map.next_value()?;
                fields.insert(name, metadata);
            } else {
                fields.insert(name, map.next_value()?);
            }
        }
        Ok(Value::Object(fields))
    }
}

struct Metadata(Value);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(Fields { of_metadata: true })
            .map(Self)
    }
}
