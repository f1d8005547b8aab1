//! Counts the memory of a deserialized value, drops what nothing reads from metadata, and records the path of a fault.
//!
//! [`Members`] decides at run time how it reads an object. As a type of its own for each way, the visitor of each decoded type would be
//! compiled once for each of them.

use std::{borrow::Cow, fmt, mem::size_of};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    UNREAD,
    brief::{Brief, brief},
    fails, fault, give_back, is_projected, take,
    text::{Part, TOKEN},
};
use crate::labels::is_kept;

/// Name that the metadata type passes to serde.
const METADATA: &str = "ObjectMeta";

/// Nothing reads managed fields, they make up half of an object, and clients write times into them that no type accepts.
const MANAGED_FIELDS: &str = "managedFields";

/// Annotation in which kubectl stores a whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Initial capacity of a list.
const FIRST: usize = 4;

/// Factor for a list element: a full list doubles its capacity, and keeps the old buffer during the copy.
pub(crate) const ELEMENT: usize = 3;

/// Initial capacity of a map: eleven entries, and one more for the header of a node.
const NODE: usize = 12;

/// Factor for a map entry: nodes are at least half full.
const ENTRY: usize = 2;

/// Target of a JSON object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A map with any number of entries.
    Map,
    /// Fields of a type, whose size its owner counts.
    Fields,
    /// The fields of metadata.
    Metadata,
    /// Labels or annotations, of which a selection is kept.
    Selection,
}

/// Wrapper around a deserializer or seed that counts the memory of its values.
pub(super) struct Counted<T> {
    inner: T,
    /// Target of a JSON object that is not read as a struct.
    shape: Shape,
}

impl<T> Counted<T> {
    pub(super) const fn new(inner: T) -> Self {
        Self {
            inner,
            shape: Shape::Map,
        }
    }
}

/// A visitor, and the target of a JSON object.
struct Visit<V> {
    visitor: V,
    shape: Shape,
}

macro_rules! forward {
    ($($method:ident),+ $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method(Visit { visitor, shape: self.shape })
        })+
    };
}

/// Forwards to `deserialize_any`: for any typed request serde_json itself would report a text with its content.
macro_rules! any {
    ($($method:ident),+ $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.deserialize_any(visitor)
        })+
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Counted<D> {
    type Error = D::Error;

    forward! {
        deserialize_any, deserialize_str, deserialize_string, deserialize_bytes, deserialize_byte_buf, deserialize_option,
    }

    any! {
        deserialize_bool, deserialize_i8, deserialize_i16, deserialize_i32, deserialize_i64, deserialize_i128, deserialize_u8,
        deserialize_u16, deserialize_u32, deserialize_u64, deserialize_u128, deserialize_f32, deserialize_f64, deserialize_char,
        deserialize_unit, deserialize_seq, deserialize_map,
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.deserialize_any(visitor)
    }

    /// Also passes the text of a value, which its owner counts.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_newtype_struct(name, Newtype(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let shape = if name == METADATA {
            Shape::Metadata
        } else {
            Shape::Fields
        };
        self.inner.deserialize_any(Visit { visitor, shape })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_identifier(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_ignored_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Counted<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let Self { inner, shape } = self;
        inner.deserialize(Counted {
            inner: deserializer,
            shape,
        })
    }
}

/// Visitor of a newtype, or of the text of a value.
struct Newtype<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for Newtype<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Counted::new(deserializer))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(map)
    }
}

macro_rules! plain {
    ($($method:ident: $Type:ty),+ $(,)?) => {
        $(fn $method<E: Error>(self, value: $Type) -> Result<V::Value, E> {
            self.visitor.$method(value)
        })+
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Visit<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    plain! {
        visit_bool: bool, visit_i8: i8, visit_i16: i16, visit_i32: i32, visit_i64: i64, visit_i128: i128, visit_u8: u8,
        visit_u16: u16, visit_u32: u32, visit_u64: u64, visit_u128: u128, visit_f32: f32, visit_f64: f64, visit_char: char,
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        take(text.len())?;
        self.visitor.visit_str(text).map_err(Brief::into_inner)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<V::Value, E> {
        take(text.len())?;
        self.visitor.visit_borrowed_str(text).map_err(Brief::into_inner)
    }

    fn visit_string<E: Error>(self, text: String) -> Result<V::Value, E> {
        take(text.capacity())?;
        self.visitor.visit_string(text).map_err(Brief::into_inner)
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<V::Value, E> {
        take(bytes.len())?;
        self.visitor.visit_bytes(bytes).map_err(Brief::into_inner)
    }

    fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<V::Value, E> {
        take(bytes.len())?;
        self.visitor
            .visit_borrowed_bytes(bytes)
            .map_err(Brief::into_inner)
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<V::Value, E> {
        take(bytes.capacity())?;
        self.visitor.visit_byte_buf(bytes).map_err(Brief::into_inner)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let Self { visitor, shape } = self;
        visitor.visit_some(Counted {
            inner: deserializer,
            shape,
        })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(Counted::new(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_seq(Elements {
            list,
            each: FIRST,
            index: 0,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Members {
            map,
            shape: self.shape,
            each: NODE,
            unread: UNREAD,
            key: Cow::Borrowed(""),
            value: None,
        })
    }
}

/// Elements of a list.
struct Elements<A> {
    list: A,
    /// Number of elements counted for the next element.
    each: usize,
    /// Index of the next element.
    index: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Elements<A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        let bytes = self.each * size_of::<T::Value>();
        let element = take(bytes).and_then(|()| self.list.next_element_seed(Counted::new(seed)));
        match &element {
            Ok(Some(_)) => {}
            Ok(None) => give_back(bytes),
            Err(_) => fault::is_in(format_args!("[{}]", self.index)),
        }
        self.each = ELEMENT;
        self.index += 1;
        element
    }
}

/// Members of a JSON object.
struct Members<'de, A> {
    map: A,
    shape: Shape,
    /// Number of entries of a map counted for the next entry.
    each: usize,
    /// Remaining bytes for unread entries of a selection.
    unread: usize,
    /// Key of the next value.
    key: Cow<'de, str>,
    /// The next value of a selection, as JSON.
    value: Option<&'de str>,
}

impl<'de, A: MapAccess<'de>> Members<'de, A> {
    /// Returns the next key that is kept.
    fn next_kept(&mut self) -> Result<Option<Cow<'de, str>>, A::Error> {
        while let Some(Part(key)) = self.map.next_key()? {
            // serde_json would read the value as the text of another one, without a limit.
            if key == TOKEN {
                return Err(fails("it has a field with a reserved name"));
            }
            match self.shape {
                Shape::Metadata if key == MANAGED_FIELDS => {}
                Shape::Selection if key == LAST_APPLIED => {}
                Shape::Selection => {
                    let value = self.map.next_value::<&RawValue>()?.get();
                    let left = if is_kept(&key) {
                        Some(self.unread)
                    } else {
                        self.unread.checked_sub(key.len() + value.len())
                    };
                    if let Some(left) = left {
                        self.unread = left;
                        self.value = Some(value);
                        return Ok(Some(key));
                    }
                    continue;
                }
                _ => return Ok(Some(key)),
            }
            self.map.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    /// Bytes counted for a key or a value of a map.
    fn entry(&self, size: usize) -> usize {
        match self.shape {
            Shape::Map | Shape::Selection => self.each * size,
            Shape::Fields | Shape::Metadata => 0,
        }
    }

    fn value<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        take(self.entry(size_of::<T::Value>()))?;
        self.each = ENTRY;
        if let Some(text) = self.value.take() {
            let mut reading = serde_json::Deserializer::from_str(text);
            let value = seed.deserialize(Counted::new(&mut reading));
            return value.map_err(|error| A::Error::custom(brief(error)));
        }
        let is_selection =
            self.shape == Shape::Metadata && is_projected() && matches!(&*self.key, "labels" | "annotations");
        let shape = if is_selection {
            Shape::Selection
        } else {
            Shape::Map
        };
        self.map.next_value_seed(Counted { inner: seed, shape })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Members<'de, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let bytes = self.entry(size_of::<K::Value>());
        take(bytes)?;
        let Some(key) = self.next_kept()? else {
            give_back(bytes);
            return Ok(None);
        };
        if matches!(self.shape, Shape::Map | Shape::Selection) {
            take(key.len())?;
        }
        self.key = key.clone();
        seed.deserialize(key.into_deserializer()).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.value(seed).inspect_err(|_| fault::is_in(&self.key))
    }
}
