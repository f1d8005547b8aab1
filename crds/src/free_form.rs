//! Values of any shape that Sluice forwards without reading them.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Unexpected, Visitor},
};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::decode::{self, Text};

/// Limit of all free-form values of one cached object, in bytes.
pub const LONGEST: usize = 32 * 1024;

/// An object of any shape, as text: its fields in their order, without white space.
///
/// A cached object may hold only the digest; then Sluice reads the text from the API server when it is needed.
#[derive(Clone, PartialEq, Eq)]
pub enum FreeForm {
    /// The text.
    Text(Box<str>),
    /// Digest of a text that is too long to cache.
    LeftOut(LeftOut),
}

/// Digest of a text that is not cached. It is serialized as a list, which no API server accepts in this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut(
    /// SHA-256 of the text.
    [u8; 32],
    /// Length of the text, in bytes.
    usize,
);

impl Default for FreeForm {
    fn default() -> Self {
        Self::Text("{}".into())
    }
}

impl FreeForm {
    /// Returns the text; `None` if only its digest is cached.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::LeftOut(_) => None,
        }
    }

    /// Whether the text `whole` has the digest of this value.
    #[must_use]
    pub fn is_of(&self, whole: &Self) -> bool {
        match (self, whole) {
            (Self::LeftOut(left_out), Self::Text(text)) => *left_out == LeftOut::of(text),
            _ => self == whole,
        }
    }

    /// Whether both values have the same text. Either may be a digest.
    #[must_use]
    pub fn has_text_of(&self, other: &Self) -> bool {
        self.is_of(other) || other.is_of(self)
    }

    /// Returns the digest of an object, without its text.
    ///
    /// # Errors
    /// `json` is not an object.
    pub fn digest_of(json: &str) -> serde_json::Result<Self> {
        let mut sink = Sink::new(0);
        let mut reading = serde_json::Deserializer::from_str(json);
        reading.deserialize_map(Rewrite(&mut sink))?;
        let Sink { digest, bytes, .. } = sink;
        Ok(Self::LeftOut(LeftOut(digest.finalize().into(), bytes)))
    }
}

impl LeftOut {
    fn of(text: &str) -> Self {
        Self(Sha256::digest(text).into(), text.len())
    }
}

/// Hides the content, which may be secret.
impl fmt::Debug for FreeForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "FreeForm({} bytes)", text.len()),
            Self::LeftOut(LeftOut(_, bytes)) => write!(f, "FreeForm({bytes} bytes, left out)"),
        }
    }
}

impl Serialize for FreeForm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::Error as _;

        match self {
            Self::Text(text) => {
                let text: &RawValue = serde_json::from_str(text).map_err(S::Error::custom)?;
                text.serialize(serializer)
            }
            Self::LeftOut(left_out) => left_out.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for FreeForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Copies from the text to the sink without building a value.
        let Text(json) = Text::deserialize(deserializer)?;
        if json.starts_with('[')
            && let Ok(left_out) = serde_json::from_str(&json)
        {
            return Ok(Self::LeftOut(left_out));
        }
        if !json.starts_with('{') {
            return Err(D::Error::invalid_type(Unexpected::Other("value"), &"an object"));
        }
        let mut sink = Sink::new(decode::free_form_left());
        let mut reading = serde_json::Deserializer::from_str(&json);
        reading
            .deserialize_map(Rewrite(&mut sink))
            .map_err(D::Error::custom)?;
        let Sink {
            text,
            digest,
            bytes,
            most,
        } = sink;
        if bytes > most {
            return Ok(Self::LeftOut(LeftOut(digest.finalize().into(), bytes)));
        }
        let text = String::from_utf8(text).map_err(D::Error::custom)?;
        decode::keep_free_form(bytes);
        decode::take(bytes)?;
        Ok(Self::Text(text.into_boxed_str()))
    }
}

/// Sink for JSON: keeps the text up to `most` bytes, and always the digest.
struct Sink {
    text: Vec<u8>,
    digest: Sha256,
    bytes: usize,
    most: usize,
}

impl Sink {
    fn new(most: usize) -> Self {
        Self {
            text: Vec::new(),
            digest: Sha256::new(),
            bytes: 0,
            most,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.digest.update(bytes);
        if self.bytes <= self.most {
            self.text.extend_from_slice(bytes);
        } else {
            self.text = Vec::new();
        }
    }

    fn write<E: serde::de::Error>(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), E> {
        serde_json::to_writer(self, value).map_err(E::custom)
    }
}

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Element of a list, and whether it is the first.
struct Element<'a>(&'a mut Sink, bool);

impl<'de> DeserializeSeed<'de> for Element<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if !self.1 {
            self.0.put(b",");
        }
        Rewrite(self.0).deserialize(deserializer)
    }
}

/// Copies a deserialized value to a sink.
struct Rewrite<'a>(&'a mut Sink);

impl<'de> DeserializeSeed<'de> for Rewrite<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Rewrite<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.0.write(&())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.0.write(&value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.0.write(&value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.0.write(&value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.0.write(&value)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.0.write(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.0.put(b"[");
        let mut is_first = true;
        while list.next_element_seed(Element(self.0, is_first))?.is_some() {
            is_first = false;
        }
        self.0.put(b"]");
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.0.put(b"{");
        let mut is_first = true;
        while let Some(key) = map.next_key::<String>()? {
            if !is_first {
                self.0.put(b",");
            }
            is_first = false;
            self.0.write(&key)?;
            self.0.put(b":");
            map.next_value_seed(Rewrite(self.0))?;
        }
        self.0.put(b"}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{decode::Limit, run::ClusterBootstrap};

    fn bootstrap(inline: &Value) -> String {
        let package = json!({"refName": "a", "valuesFrom": {"inline": inline}});
        json!({"metadata": {"name": "one"}, "spec": {"cni": package}}).to_string()
    }

    fn inline(bootstrap: &ClusterBootstrap) -> &FreeForm {
        let values = bootstrap
            .spec
            .cni
            .as_ref()
            .and_then(|cni| cni.values_from.as_ref());
        values.and_then(|values| values.inline.as_ref()).unwrap()
    }

    #[test]
    fn of_a_long_text_the_digest_is_kept_also_when_it_is_packed() {
        let (short, long) = (json!({"a": "x"}), json!({"a": "x".repeat(LONGEST)}));
        let (limit, whole) = (Limit::projected(1 << 20), Limit::whole(1 << 20));
        let read = |text: &str, limit| decode::from_str::<ClusterBootstrap>(text, limit).unwrap().0;
        let kept = read(&bootstrap(&short), limit);
        assert_eq!(inline(&kept).text(), Some(short.to_string().as_str()));
        let kept = read(&bootstrap(&long), limit);
        assert_eq!(inline(&kept).text(), None);
        let unpacked = read(&serde_json::to_string(&kept).unwrap(), whole);
        assert_eq!(inline(&unpacked), inline(&kept));
        let there = read(&bootstrap(&long), whole);
        assert!(inline(&kept).is_of(inline(&there)));
        let edited = read(&bootstrap(&json!({"a": "y".repeat(LONGEST)})), whole);
        assert!(!inline(&kept).is_of(inline(&edited)));
    }

    #[test]
    fn a_digest_is_that_of_the_text_without_white_space() {
        let read = |text: &str| serde_json::from_str::<FreeForm>(text).unwrap();
        let digest = FreeForm::digest_of(r#"{ "a" : [1.50, "\u00e9"] }"#).unwrap();
        assert_eq!(digest.text(), None);
        for (text, is_same) in [
            (r#"{"a":[1.5,"é"]}"#, true),
            (r#"{"a":[1.5,"e"]}"#, false),
            ("{}", false),
        ] {
            assert_eq!(digest.has_text_of(&read(text)), is_same, "{text}");
            assert_eq!(read(text).has_text_of(&digest), is_same, "{text}");
            assert_eq!(FreeForm::digest_of(text).unwrap().has_text_of(&digest), is_same);
        }
        assert!(FreeForm::digest_of("[1]").is_err());
    }

    /// Any text of a user stays a text.
    #[test]
    fn an_object_is_never_taken_for_a_digest() {
        let (left_out, there) = (LeftOut::of("{}"), Limit::projected(1 << 20));
        let spoof = serde_json::to_value(left_out).unwrap();
        assert!(spoof.is_array(), "the definition takes objects alone");
        for object in [
            json!({"digest": spoof[0], "bytes": 2}),
            json!({"left_out": spoof}),
        ] {
            let (kept, _) = decode::from_str::<ClusterBootstrap>(&bootstrap(&object), there).unwrap();
            assert_eq!(inline(&kept).text(), Some(object.to_string().as_str()));
        }
        for value in [json!("a"), json!(1), json!([]), json!([[1], 2])] {
            assert!(
                decode::from_str::<ClusterBootstrap>(&bootstrap(&value), there).is_err(),
                "{value}"
            );
        }
    }

    #[test]
    fn a_number_is_written_as_it_was_read() {
        let text = r#"{"a":6.768924344479586e-13,"b":0.1,"c":12345678901234567890}"#;
        let read: FreeForm = serde_json::from_str(text).unwrap();
        assert_eq!(read.text(), Some(text));
    }
}
