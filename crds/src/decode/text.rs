//! The text of a value.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};

/// serde_json's name for a value as text. [`serde_json::value::RawValue`] requests it, but only as borrowed or as owned text, not as
/// either.
pub(super) const TOKEN: &str = "$serde_json::private::RawValue";

/// The text of a value: a slice of the input, without a copy, if the input is a text.
#[derive(Debug)]
pub struct Text<'de>(pub Cow<'de, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole;
        impl<'de> Visitor<'de> for Whole {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any JSON")
            }

            /// For a deserializer that does not know the name, such as one of YAML.
            fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
                let value = serde_json::Value::deserialize(value)?;
                Ok(Text(Cow::Owned(value.to_string())))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let key: Option<Part<'de>> = map.next_key()?;
                key.filter(|Part(key)| key == TOKEN)
                    .ok_or_else(|| A::Error::custom("no text of a value"))?;
                let Part(text) = map.next_value()?;
                Ok(Text(text))
            }
        }
        deserializer.deserialize_newtype_struct(TOKEN, Whole)
    }
}

/// A text, borrowed if possible.
pub(super) struct Part<'de>(pub(super) Cow<'de, str>);

impl<'de> Deserialize<'de> for Part<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Part<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Part(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Part(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(Part(Cow::Owned(text)))
            }
        }
        deserializer.deserialize_str(Any)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_of_a_value_is_borrowed_from_text_and_written_of_a_value() {
        let text = r#"[1, {"a":"é\u00e9"}]"#;
        let read: Text<'_> = serde_json::from_str(text).unwrap();
        assert!(matches!(read.0, Cow::Borrowed(read) if read == text));
        let value = json!([1, {"a": "b"}]);
        assert_eq!(Text::deserialize(&value).unwrap().0, value.to_string());
        assert_eq!(Text::deserialize(value.clone()).unwrap().0, value.to_string());
        let read: Text<'_> = serde_saphyr::from_str("[1, {a: b}]").unwrap();
        assert_eq!(read.0, value.to_string());
    }
}
