//! Variables of a topology that Sluice reads.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IgnoredAny, MapAccess, Visitor},
    ser::{Error as _, SerializeSeq as _},
};
use serde_json::{Value, value::RawValue};

use super::lenient::each_text;
use crate::{
    decode::{self, Text},
    labels::name::VARIABLES,
};

/// Field with the index of a variable that is cached without an earlier one, or of the last variable, which is cached without its name and
/// value. API servers drop it.
const INDEX: &str = "sluice.dev/index";

/// Memory limit of the parsed value of one variable, in bytes. An entry of `TKR_DATA` takes about 8 KiB.
const LARGEST: usize = 512 * 1024;

/// A list of variables, with those that Sluice [reads](VARIABLES). The others allocate nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    known: Vec<Variable>,
    /// Number of variables, including those that Sluice does not read.
    count: usize,
}

/// A variable with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its index in the list of the API server.
    pub at: usize,
    /// Name of the variable.
    pub name: String,
    /// Any JSON, as text: it is read less often than it is kept.
    text: Box<str>,
}

impl Variable {
    /// Parses the value.
    #[must_use]
    pub fn value(&self) -> Value {
        // The text was parsed once before.
        serde_json::from_str(&self.text).unwrap_or_default()
    }
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
            value: &'a RawValue,
            #[serde(rename = "sluice.dev/index", skip_serializing_if = "Option::is_none")]
            at: Option<usize>,
        }
        #[derive(Serialize)]
        struct Last {
            #[serde(rename = "sluice.dev/index")]
            at: usize,
        }
        let mut all = serializer.serialize_seq(None)?;
        for (index, variable) in self.known.iter().enumerate() {
            all.serialize_element(&Named {
                name: &variable.name,
                value: serde_json::from_str(&variable.text).map_err(S::Error::custom)?,
                at: (index != variable.at).then_some(variable.at),
            })?;
        }
        let last = self.count.checked_sub(1);
        let last = last.filter(|last| self.known.last().is_none_or(|known| known.at < *last));
        if let Some(at) = last {
            all.serialize_element(&Last { at })?;
        }
        all.end()
    }
}

impl<'de> Deserialize<'de> for Variables {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut known = Vec::new();
        let mut count = 0_usize;
        let read = |_, text: &str| {
            let element = Element::deserialize(&mut serde_json::Deserializer::from_str(text))?;
            Ok(Some(element))
        };
        let listed = each_text(deserializer, read, |index, element: Element| {
            let at = element.at.unwrap_or(index);
            count = count.max(at.saturating_add(1));
            if let Some((name, text)) = element.known {
                known.push(Variable { at, name, text });
            }
        })?;
        Ok(Self {
            known,
            // Undecodable variables count, too.
            count: count.max(listed),
        })
    }
}

/// A variable.
struct Element {
    /// Its index in the list of the API server, if the list is cached.
    at: Option<usize>,
    /// Name and value, if Sluice reads them.
    known: Option<(String, Box<str>)>,
}

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Element;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a variable")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Element, A::Error> {
                let (mut name, mut value, mut at) = (None, Text(Cow::Borrowed("null")), None);
                while let Some(field) = fields.next_key::<String>()? {
                    match field.as_str() {
                        "name" => name = Some(fields.next_value::<String>()?),
                        "value" => value = fields.next_value()?,
                        INDEX => at = Some(fields.next_value::<usize>()?),
                        _ => drop(fields.next_value::<IgnoredAny>()?),
                    }
                }
                let known = name.filter(|name| VARIABLES.contains(&name.as_str()));
                let Some(name) = known else {
                    return Ok(Element { at, known: None });
                };
                decode::take(decode::ELEMENT * size_of::<Variable>() + name.len())?;
                // Only a value that can be parsed is kept.
                let _dropped: Option<Value> = decode::lenient(|| {
                    let parsed = decode::part(LARGEST, || decode::nested::<Value>(&value.0));
                    drop(parsed.inspect_err(|_| decode::is_in(format_args!("value of {name}")))?);
                    Ok(None)
                })?;
                decode::take(value.0.len())?;
                Ok(Element {
                    at,
                    known: Some((name, value.0.into())),
                })
            }
        }
        deserializer.deserialize_map(Fields)
    }
}
