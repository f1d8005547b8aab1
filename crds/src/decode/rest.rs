//! Objects with typed and untyped fields.

use std::fmt;

use serde::{
    Deserialize as _, Deserializer,
    de::{DeserializeSeed, Error as _, MapAccess, Visitor},
};
use serde_json::{Map, Value};

use super::{Text, brief::brief, nested};

/// Reads an object: `field` reads the typed fields, from their names and texts, and returns whether it has read a field. Returns the
/// other fields. serde's `flatten` builds all fields twice, the first time as an uncountable type.
///
/// # Errors
/// The value is not an object, `field` fails, or the budget is exceeded.
pub fn rest<'de, D: Deserializer<'de>>(
    deserializer: D,
    field: impl FnMut(&str, &str) -> serde_json::Result<bool>,
) -> Result<Map<String, Value>, D::Error> {
    deserializer.deserialize_map(Fields(field))
}

struct Fields<F>(F);

impl<'de, F: FnMut(&str, &str) -> serde_json::Result<bool>> Visitor<'de> for Fields<F> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut rest = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let field = Field {
                name: &name,
                read: &mut self.0,
            };
            if let Some(value) = map.next_value_seed(field)? {
                rest.insert(name, value);
            }
        }
        Ok(rest)
    }
}

/// Reads a field; `None` if it is typed.
struct Field<'a, F> {
    name: &'a str,
    read: &'a mut F,
}

impl<'de, F: FnMut(&str, &str) -> serde_json::Result<bool>> DeserializeSeed<'de> for Field<'_, F> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let Text(text) = Text::deserialize(deserializer)?;
        let read = match (self.read)(self.name, &text) {
            Ok(true) => Ok(None),
            Ok(false) => nested(&text).map(Some),
            Err(error) => Err(error),
        };
        read.map_err(|error| D::Error::custom(brief(error)))
    }
}
