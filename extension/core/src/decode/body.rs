//! Decoding of an object of any kind.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
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

/// A Cluster without its `managedFields`, and of its spec only `paused` and `topology.version`.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterBody(pub Value);

impl<'de> Deserialize<'de> for ClusterBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields::Cluster).map(Self)
    }
}

/// Fields to read.
#[derive(Clone, Copy)]
enum Fields {
    /// All fields of an object.
    Whole,
    /// The fields of a Cluster.
    Cluster,
    /// The fields of the spec of a Cluster.
    ClusterSpec,
    /// The fields of the topology of a Cluster.
    Topology,
    /// The fields of metadata.
    Metadata,
}

impl Fields {
    /// Returns the fields to read of a field that is not read whole.
    fn below(self, field: &str) -> Option<Self> {
        match (self, field) {
            (Self::Whole | Self::Cluster, "metadata") => Some(Self::Metadata),
            (Self::Cluster, "spec") => Some(Self::ClusterSpec),
            (Self::ClusterSpec, "topology") => Some(Self::Topology),
            _ => None,
        }
    }

    fn skips(self, field: &str) -> bool {
        match self {
            Self::Whole | Self::Cluster => false,
            Self::ClusterSpec => !matches!(field, "paused" | "topology"),
            Self::Topology => field != "version",
            Self::Metadata => field == "managedFields",
        }
    }
}

impl<'de> DeserializeSeed<'de> for Fields {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
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
            if self.skips(&name) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = match self.below(&name) {
                Some(below) => map.next_value_seed(below)?,
                None => map.next_value()?,
            };
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}
