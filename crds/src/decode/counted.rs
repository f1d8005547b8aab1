//! Counts the memory of a deserialized value.

use std::{fmt, mem::size_of};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};

use super::{brief::Brief, give_back, metadata, take};

/// Wrapper around a deserializer, seed, visitor or list that counts the memory of its values.
pub(super) struct Counted<T>(T);

impl<T> Counted<T> {
    pub(super) const fn new(inner: T) -> Self {
        Self(inner)
    }
}

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
    /// Fields of a type, whose size its owner counts.
    Fields,
    /// The fields of metadata.
    Metadata,
    /// A map with any number of entries.
    Map,
}

/// A visitor, and the target of a JSON object.
struct Visit<V> {
    visitor: V,
    shape: Shape,
}

impl<V> Visit<V> {
    const fn any(visitor: V) -> Self {
        Self {
            visitor,
            shape: Shape::Map,
        }
    }
}

macro_rules! forward {
    ($($method:ident),+ $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(Visit::any(visitor))
        })+
    };
}

/// Forwards to `deserialize_any`: for any typed request serde_json itself would report a text with its content.
macro_rules! any {
    ($($method:ident),+ $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.deserialize_any(Visit::any(visitor))
        })+
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Counted<D> {
    type Error = D::Error;

    forward! {
        deserialize_str, deserialize_string, deserialize_bytes, deserialize_byte_buf, deserialize_option,
    }

    any! {
        deserialize_any, deserialize_bool, deserialize_i8, deserialize_i16, deserialize_i32, deserialize_i64, deserialize_i128,
        deserialize_u8, deserialize_u16, deserialize_u32, deserialize_u64, deserialize_u128, deserialize_f32, deserialize_f64,
        deserialize_char, deserialize_unit, deserialize_seq, deserialize_map,
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
        self.0.deserialize_newtype_struct(name, Newtype(visitor))
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
        let shape = if name == metadata::NAME {
            Shape::Metadata
        } else {
            Shape::Fields
        };
        self.0.deserialize_any(Visit { visitor, shape })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_identifier(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_ignored_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Counted<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Counted(deserializer))
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
        self.0.visit_newtype_struct(Counted(deserializer))
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
        self.visitor.visit_some(Counted(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(Counted(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_seq(Elements { list, each: FIRST })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        match self.shape {
            Shape::Fields => self.visitor.visit_map(Fields(map)),
            Shape::Metadata => self.visitor.visit_map(metadata::Fields::of(map)),
            Shape::Map => self.visitor.visit_map(Entries { map, each: NODE }),
        }
    }
}

/// Elements of a list.
struct Elements<A> {
    list: A,
    /// Number of elements counted for the next element.
    each: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Elements<A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        let bytes = self.each * size_of::<T::Value>();
        take(bytes)?;
        let element = self.list.next_element_seed(Counted(seed))?;
        if element.is_none() {
            give_back(bytes);
        }
        self.each = ELEMENT;
        Ok(element)
    }
}

/// Fields of a type.
struct Fields<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.0.next_value_seed(Counted(seed))
    }
}

/// Entries of a map.
struct Entries<A> {
    map: A,
    /// Number of entries counted for the next entry.
    each: usize,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let bytes = self.each * size_of::<K::Value>();
        take(bytes)?;
        let key = self.map.next_key_seed(Counted(seed))?;
        if key.is_none() {
            give_back(bytes);
        }
        Ok(key)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        take(self.each * size_of::<T::Value>())?;
        self.each = ENTRY;
        self.map.next_value_seed(Counted(seed))
    }
}
