//! The labels that hook decisions depend on.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use sluice_core::gate::hook_call::LONGEST_LABELS;

use super::error::RequestError;

/// The label that names the TKR of a Cluster.
const TKR: &str = "run.tanzu.vmware.com/tkr";

/// The part of `metadata.labels` that every decision depends on; the rest is skipped without a copy.
#[derive(Debug, Default)]
pub(super) struct Labels<'a> {
    pub(super) tkr: Option<Cow<'a, str>>,
}

impl<'a> Labels<'a> {
    /// Reads the labels from their JSON text.
    pub(super) fn of(text: &'a str) -> Result<Self, RequestError> {
        let place = "in cluster.metadata.labels";
        serde_json::from_str(text).map_err(|error| RequestError::Malformed(format!("{error} {place}")))
    }
}

/// The text as far as a call keeps it. Calls that wait for a read have no share of the memory for bodies any more.
pub(super) fn kept(text: &str) -> &str {
    if text.len() <= LONGEST_LABELS { text } else { "" }
}

impl<'de: 'a, 'a> Deserialize<'de> for Labels<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LabelsVisitor)
    }
}

struct LabelsVisitor;

impl<'de> Visitor<'de> for LabelsVisitor {
    type Value = Labels<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut labels = Labels::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            if key.0 == TKR {
                if labels.tkr.is_some() {
                    return Err(Error::duplicate_field(TKR));
                }
                labels.tkr = Some(map.next_value::<Text<'de>>()?.0);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(labels)
    }
}

/// A string that is borrowed from the body unless it holds an escape.
#[derive(Debug)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}
