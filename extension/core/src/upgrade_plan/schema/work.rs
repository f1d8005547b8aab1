//! Bound of a comparison, before it runs.
//!
//! The validator collects all mismatches before the first one is known, each with its path, and below `anyOf` and `oneOf` with a copy of
//! the value.

use serde_json::Value;

/// Maximum work of a comparison, in about 64 bytes of memory, or in comparisons of a value with a schema.
const MOST: usize = 200_000;

/// Bytes of text in one unit of work.
const UNIT: usize = 64;

/// Whether a comparison of `values` with a schema without references is within its limit.
pub(super) fn is_bounded(schema: &Value, values: &Value) -> bool {
    Work(MOST).pair(schema, values, 0, false).is_some()
}

/// Work that is left.
struct Work(usize);

impl Work {
    /// Takes the work of one schema and one value, which has a path of this many bytes. Mismatches may contain a copy of the value.
    fn pair(&mut self, schema: &Value, value: &Value, path: usize, is_copied: bool) -> Option<()> {
        // `additionalProperties` may be a boolean.
        let Value::Object(keywords) = schema else {
            return Some(());
        };
        self.take(1 + path / UNIT)?;
        if is_copied {
            self.take(size(value))?;
        }
        for (keyword, argument) in keywords {
            match keyword.as_str() {
                "enum" | "required" => self.take(size(argument))?,
                "pattern" => self.take(value.as_str().map_or(0, str::len) + size(argument))?,
                "uniqueItems" => self.take(size(value))?,
                "not" => {
                    // A mismatch contains a copy of the schema.
                    self.take(size(argument))?;
                    self.pair(argument, value, path, is_copied)?;
                }
                "allOf" | "anyOf" | "oneOf" => {
                    let is_copied = is_copied || keyword != "allOf";
                    for schema in argument.as_array()? {
                        self.pair(schema, value, path, is_copied)?;
                    }
                }
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        self.pair(argument, item, path + "/000000".len(), is_copied)?;
                    }
                }
                _ => {}
            }
        }
        for (name, value) in value.as_object().into_iter().flatten() {
            self.take(1 + name.len() / UNIT)?;
            let listed = keywords
                .get("properties")
                .and_then(|properties| properties.get(name));
            if let Some(schema) = listed.or_else(|| keywords.get("additionalProperties")) {
                self.pair(schema, value, path + 1 + name.len(), is_copied)?;
            }
        }
        Some(())
    }

    fn take(&mut self, work: usize) -> Option<()> {
        self.0 = self.0.checked_sub(work)?;
        Some(())
    }
}

/// Returns the work to copy a value.
fn size(value: &Value) -> usize {
    let below = match value {
        Value::String(text) => text.len() / UNIT,
        Value::Array(values) => values.iter().map(size).sum(),
        Value::Object(fields) => {
            let of = |(name, value): (&String, &Value)| name.len() / UNIT + size(value);
            fields.iter().map(of).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    1 + below
}
