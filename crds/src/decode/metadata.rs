//! Metadata of an object: without managed fields, with the labels and annotations that Sluice reads.

use std::borrow::Cow;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, IntoDeserializer, MapAccess, Visitor},
    forward_to_deserialize_any,
};

use super::{UNREAD, counted::Counted, is_projected, text::Part};
use crate::labels::is_kept;

/// Name that the metadata type passes to serde.
pub(super) const NAME: &str = "ObjectMeta";

/// Nothing reads managed fields, they make up half of an object, and clients write times into them that no type accepts.
const MANAGED_FIELDS: &str = "managedFields";

/// Annotation in which kubectl stores a whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields of metadata.
pub(super) struct Fields<A> {
    fields: A,
    /// Whether the next value is a map with a selection of entries.
    is_chosen: bool,
}

impl<A> Fields<A> {
    pub(super) const fn of(fields: A) -> Self {
        Self {
            fields,
            is_chosen: false,
        }
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(Part(key)) = self.fields.next_key::<Part<'de>>()? {
            if key == MANAGED_FIELDS {
                self.fields.next_value::<IgnoredAny>()?;
                continue;
            }
            self.is_chosen = is_projected() && matches!(key.as_ref(), "labels" | "annotations");
            return seed.deserialize(key.into_deserializer()).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        if self.is_chosen {
            self.fields.next_value_seed(Chosen(seed))
        } else {
            self.fields.next_value_seed(Counted::new(seed))
        }
    }
}

/// Reads a map and keeps a selection of entries.
struct Chosen<T>(T);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Chosen<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Chosen(Counted::new(deserializer)))
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Chosen<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(Chosen(visitor))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(Chosen(visitor))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Chosen(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Chosen<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.expecting(f)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Chosen(deserializer))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Entries {
            map,
            unread: UNREAD,
            value: None,
        })
    }
}

/// The entries that are kept.
struct Entries<'de, A> {
    map: A,
    /// Remaining bytes for unread entries.
    unread: usize,
    /// The value of the entry whose key was kept.
    value: Option<Cow<'de, str>>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<'de, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(Part(key)) = self.map.next_key::<Part<'de>>()? {
            if key == LAST_APPLIED {
                self.map.next_value::<IgnoredAny>()?;
                continue;
            }
            let Part(value) = self.map.next_value()?;
            let left = if is_kept(&key) {
                Some(self.unread)
            } else {
                self.unread.checked_sub(key.len() + value.len())
            };
            if let Some(left) = left {
                self.unread = left;
                self.value = Some(value);
                return seed.deserialize(key.into_deserializer()).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        let value = self
            .value
            .take()
            .ok_or_else(|| A::Error::custom("a key without a value"))?;
        seed.deserialize(value.into_deserializer())
    }
}
