//! Variables of a topology that Sluice reads.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;

use super::lenient::each_text;
use crate::{
    decode::{self, Text},
    labels::name::VARIABLES,
};

/// Memory limit of the value of one variable, in bytes. An entry of `TKR_DATA` takes about 8 KiB.
const LARGEST: usize = 512 * 1024;

/// A list of variables, with those that Sluice [reads](VARIABLES). The others allocate nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variables {
    known: Vec<Variable>,
    /// Number of variables, including those that Sluice does not read.
    count: usize,
}

/// A variable with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Its index in the list of the API server. In a cached Cluster it is the index among the read variables.
    pub at: usize,
    /// Name of the variable.
    pub name: String,
    /// Any JSON.
    pub value: Value,
}

impl Variables {
    /// No variables.
    pub const NONE: Self = Self {
        known: Vec::new(),
        count: 0,
    };

    /// Returns the first variable of this name, which must be one that Sluice reads.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Variable> {
        debug_assert!(VARIABLES.contains(&name), "variable {name} is skipped");
        self.known.iter().find(|variable| variable.name == name)
    }

    /// Whether there are no variables.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of variables, including those that Sluice does not read.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }
}

impl Serialize for Variables {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Named<'a> {
            name: &'a str,
            value: &'a Value,
        }
        let all = self
            .known
            .iter()
            .map(|Variable { name, value, .. }| Named { name, value });
        serializer.collect_seq(all)
    }
}

impl<'de> Deserialize<'de> for Variables {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut known = Vec::new();
        let read = |_, text: &str| {
            let Element(element) = Element::deserialize(&mut serde_json::Deserializer::from_str(text))?;
            Ok(element)
        };
        let count = each_text(deserializer, read, |at, (name, value)| {
            known.push(Variable { at, name, value });
        })?;
        Ok(Self { known, count })
    }
}

/// A variable; `None` if Sluice does not read it.
struct Element(Option<(String, Value)>);

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Element;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a variable")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Element, A::Error> {
                let (mut name, mut value) = (None, Text(Cow::Borrowed("null")));
                while let Some(field) = fields.next_key::<String>()? {
                    match field.as_str() {
                        "name" => name = Some(fields.next_value::<String>()?),
                        "value" => value = fields.next_value()?,
                        _ => drop(fields.next_value::<IgnoredAny>()?),
                    }
                }
                let known = name.filter(|name| VARIABLES.contains(&name.as_str()));
                let Some(name) = known else {
                    return Ok(Element(None));
                };
                decode::take(decode::ELEMENT * size_of::<Variable>() + name.len())?;
                let value = decode::part(LARGEST, || decode::nested(&value.0));
                let value = value.map_err(|error| {
                    A::Error::custom(decode::in_field(&format!("value of {name}"), &error))
                })?;
                Ok(Element(Some((name, value))))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}
