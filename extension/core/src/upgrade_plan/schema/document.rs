//! Values of a package as one document.

use serde_json::{Map, Value};

use crate::{packages::build::Values, strict_yaml};

/// Size limit of all values of a package, in bytes.
const LONGEST: usize = 1024 * 1024;

/// Nesting limit.
const MAX_DEPTH: usize = 64;

/// Error for values that are no document. It quotes nothing of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotReadable {
    #[error("they are longer than 1 MiB")]
    TooLong,
    #[error("they are not UTF-8")]
    NotText,
    #[error("line {line} is no YAML of one document without anchors and repeated keys")]
    Malformed { line: u64 },
    #[error("they are no map")]
    NotMap,
}

/// Returns the values of all files. The later of two files wins, as with kapp-controller, and lists replace each other.
pub(super) fn document(values: &Values) -> Result<Value, NotReadable> {
    if values.values().map(Vec::len).sum::<usize>() > LONGEST {
        return Err(NotReadable::TooLong);
    }
    let mut document = Map::new();
    for content in values.values() {
        match read(content)? {
            // A file may consist of comments alone.
            Value::Null => {}
            Value::Object(fields) => merge(&mut document, fields),
            _ => return Err(NotReadable::NotMap),
        }
    }
    Ok(Value::Object(document))
}

fn read(content: &[u8]) -> Result<Value, NotReadable> {
    let text = str::from_utf8(content).map_err(|_| NotReadable::NotText)?;
    // Inline values are JSON, which this parser reads faster.
    if text.starts_with('{')
        && let Ok(value) = serde_json::from_str(text)
    {
        return Ok(value);
    }
    let read = serde_saphyr::from_str_with_options(text, strict_yaml::options(MAX_DEPTH));
    read.map_err(|error| NotReadable::Malformed {
        line: error.location().map_or(0, |location| location.line()),
    })
}

fn merge(into: &mut Map<String, Value>, fields: Map<String, Value>) {
    for (name, value) in fields {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(into)), Value::Object(fields)) => merge(into, fields),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}
