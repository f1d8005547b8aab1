//! Objects as etcd holds them: custom resources as JSON, the built-in kinds in protobuf.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::key::Kind;

/// Prefix of a value in protobuf.
const PROTOBUF: &[u8] = b"k8s\0";

/// Numbers of fields: the object in its envelope, the data of a Secret, key and value of an entry of a map.
const OBJECT: u64 = 2;
const DATA: u64 = 2;
const KEY: u64 = 1;
const VALUE: u64 = 2;

/// The object in a value of etcd; none for an object in protobuf that is not a Secret.
///
/// Of a Secret only the data is read, in base64 as its API server shows it.
pub(super) fn decode(kind: Kind, value: &[u8]) -> Result<Option<Value>> {
    match (value.strip_prefix(PROTOBUF), kind) {
        (None, _) => read(std::str::from_utf8(value)?).map(Some),
        (Some(envelope), Kind::Secret) => secret(envelope).map(Some),
        (Some(_), _) => Ok(None),
    }
}

/// JSON, in which null stands for lists that are nested deeper than they can be read: a tenant may nest them as deeply as kube-apiserver
/// takes them.
fn read(text: &str) -> Result<Value> {
    let error = match serde_json::from_str(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    if let Ok(fields) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(text) {
        let fields = fields
            .iter()
            .map(|(name, value)| Ok((name.clone(), read(value.get())?)));
        return Ok(Value::Object(fields.collect::<Result<_>>()?));
    }
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    if is_json {
        Ok(Value::Null)
    } else {
        Err(error.into())
    }
}

fn secret(envelope: &[u8]) -> Result<Value> {
    let object = last(envelope, OBJECT)?.context("an envelope without an object")?;
    let mut data = BTreeMap::new();
    for (number, entry) in fields(object)? {
        if number == DATA {
            let key = last(entry, KEY)?.context("an entry without a key")?;
            let content = last(entry, VALUE)?.unwrap_or_default();
            data.insert(String::from_utf8(key.to_vec())?, BASE64_STANDARD.encode(content));
        }
    }
    Ok(json!({"data": data}))
}

fn last(message: &[u8], wanted: u64) -> Result<Option<&[u8]>> {
    let found = fields(message)?
        .into_iter()
        .rfind(|(number, _)| *number == wanted);
    Ok(found.map(|(_, content)| content))
}

/// The fields of a message that have a length: strings, bytes and messages.
fn fields(mut message: &[u8]) -> Result<Vec<(u64, &[u8])>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match tag & 7 {
            0 => drop(varint(&mut message)?),
            1 => drop(take(&mut message, 8)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?)?;
                fields.push((tag >> 3, take(&mut message, length)?));
            }
            5 => drop(take(&mut message, 4)?),
            other => bail!("a field of wire type {other}"),
        }
    }
    Ok(fields)
}

fn varint(message: &mut &[u8]) -> Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    bail!("a number of more than ten bytes")
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let (taken, rest) = message
        .split_at_checked(length)
        .context("the value ends in the middle of a field")?;
    *message = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        [&[(number << 3) | 2, length], content].concat()
    }

    fn value() -> Vec<u8> {
        let entry = [field(1, b"values.yaml"), field(2, b"a: 1\n")].concat();
        let secret = [
            field(1, &field(1, b"one-antrea")),
            field(2, &entry),
            field(3, b"Opaque"),
            vec![5 << 3, 1],
        ];
        let meta = [field(1, b"v1"), field(2, b"Secret")].concat();
        let envelope = [field(1, &meta), field(2, &secret.concat())].concat();
        [PROTOBUF, &envelope].concat()
    }

    #[test]
    fn the_data_of_a_secret_is_read_out_of_protobuf() {
        let read = decode(Kind::Secret, &value()).unwrap();
        assert_eq!(read, Some(json!({"data": {"values.yaml": "YTogMQo="}})));
    }

    #[test]
    fn a_secret_that_is_cut_short_is_an_error() {
        let whole = value();
        assert!(decode(Kind::Secret, &whole[..whole.len() - 3]).is_err());
    }

    #[test]
    fn deeply_nested_fields_are_null_and_the_rest_is_read() {
        let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
        let object = format!(r#"{{"spec":{{"a":{deep},"b":1}}}}"#);
        let read = decode(Kind::App, object.as_bytes()).unwrap();
        assert_eq!(read, Some(json!({"spec": {"a": null, "b": 1}})));
        assert!(decode(Kind::App, b"{\"spec\":").is_err());
    }

    #[test]
    fn custom_resources_are_json() {
        let read = decode(Kind::App, br#"{"spec":{}}"#).unwrap();
        assert_eq!(read, Some(json!({"spec": {}})));
    }
}
