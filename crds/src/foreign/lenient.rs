//! Lenient reading of foreign objects: a field of another shape reads as absent.
//!
//! Each part is read from its own text, so a skipped part allocates nothing. A part over the limit of the object is an error and not
//! absent: see [`decode`].

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use crate::{
    decode::{self, Text},
    labels::is_read,
};

/// Longest kept text for users, in bytes.
const LONGEST_TEXT: usize = 4 * 1024;

/// Longest kept end of an output, in bytes.
const LONGEST_OUTPUT: usize = 8 * 1024;

/// Reads null and a value of another shape as the default.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let Text(text) = Text::deserialize(deserializer)?;
    let read = decode::lenient(|| decode::nested(&text).map(Some))?;
    Ok(read.unwrap_or_default())
}

/// Reads the items of a list that have the shape.
pub(crate) fn each<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let mut items = Vec::new();
    each_text(
        deserializer,
        |_, text| {
            decode::take(decode::ELEMENT * size_of::<T>())?;
            decode::nested(text).map(Some)
        },
        |_, item| items.push(item),
    )?;
    Ok(items)
}

/// Reads each item of a list from its index and text, and keeps a selection. Any other value reads as an empty list.
pub(crate) fn each_text<'de, D, T>(
    deserializer: D,
    read: impl Fn(usize, &str) -> serde_json::Result<Option<T>>,
    mut keep: impl FnMut(usize, T),
) -> Result<usize, D::Error>
where
    D: Deserializer<'de>,
{
    struct Items<R, K>(R, K);
    impl<'de, T, R, K> Visitor<'de> for Items<R, K>
    where
        R: Fn(usize, &str) -> serde_json::Result<Option<T>>,
        K: FnMut(usize, T),
    {
        type Value = usize;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<usize, A::Error> {
            let mut count = 0;
            while let Some(Text(text)) = list.next_element()? {
                let read =
                    || (self.0)(count, &text).inspect_err(|_| decode::is_in(format_args!("[{count}]")));
                if let Some(item) = decode::lenient(read)? {
                    (self.1)(count, item);
                }
                count += 1;
            }
            Ok(count)
        }
    }
    let Text(text) = Text::deserialize(deserializer)?;
    if !text.starts_with('[') {
        return Ok(0);
    }
    // The texts themselves are not kept, so they are not counted.
    let read = || {
        let mut reading = serde_json::Deserializer::from_str(&text);
        reading.deserialize_seq(Items(read, &mut keep)).map(Some)
    };
    Ok(decode::lenient(read)?.unwrap_or_default())
}

/// Reads a pause switch: anything except absence and `false` counts as set, so no unknown value is missed.
pub(crate) fn stop<'de, D>(deserializer: D) -> Result<bool, D::Error>
where
    D: Deserializer<'de>,
{
    let Text(text) = Text::deserialize(deserializer)?;
    Ok(!matches!(text.as_ref(), "null" | "false"))
}

/// Reads the beginning of a text for users.
pub(crate) fn shortened<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let Text(json) = Text::deserialize(deserializer)?;
    let whole: String = serde_json::from_str(&json).map_err(D::Error::custom)?;
    let beginning = whole[..whole.floor_char_boundary(LONGEST_TEXT)].to_owned();
    decode::take(beginning.len())?;
    Ok(beginning)
}

/// Reads the beginning of an optional text for users.
pub(crate) fn beginning<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    kept(deserializer, |text| {
        &text[..text.floor_char_boundary(LONGEST_TEXT)]
    })
}

/// Reads the last lines of an output.
pub(crate) fn end<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    kept(deserializer, |text| {
        let begin = text.len().saturating_sub(LONGEST_OUTPUT);
        if begin == 0 {
            return text;
        }
        let end = &text[text.ceil_char_boundary(begin)..];
        // A cut line would read as another line.
        end.split_once('\n').map_or("", |(_, whole)| whole)
    })
}

/// Reads a part of a text; `None` if the value is not a text.
fn kept<'de, D: Deserializer<'de>>(
    deserializer: D,
    part: impl FnOnce(&str) -> &str,
) -> Result<Option<String>, D::Error> {
    let Text(json) = Text::deserialize(deserializer)?;
    // A text without escapes is borrowed.
    let whole = decode::lenient(|| serde_json::from_str::<Option<Cow<'_, str>>>(&json).map(Some))?;
    let part = whole.flatten().map(|whole| part(&whole).to_owned());
    decode::take(part.as_ref().map_or(0, String::len))?;
    Ok(part)
}

/// The labels or annotations that Sluice reads.
pub(crate) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Entries;
    impl<'de> Visitor<'de> for Entries {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("labels or annotations")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = BTreeMap::new();
            while let Some(key) = map.next_key::<String>()? {
                if is_read(&key) {
                    entries.insert(key, map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(entries)
        }
    }
    let Text(text) = Text::deserialize(deserializer)?;
    if !text.starts_with('{') {
        return Ok(BTreeMap::new());
    }
    let entries = decode::lenient(|| {
        serde_json::Deserializer::from_str(&text)
            .deserialize_map(Entries)
            .map(Some)
    })?;
    let entries = entries.unwrap_or_default();
    decode::take(
        entries
            .iter()
            .map(|(key, value)| 128 + key.len() + value.len())
            .sum(),
    )?;
    Ok(entries)
}
