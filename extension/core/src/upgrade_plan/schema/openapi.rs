//! Schemas of OpenAPI 3.0 as JSON Schema of draft 4, from which OpenAPI 3.0 took its keywords.

use serde_json::{Map, Value, json};

use super::SchemaNotUsable;

/// Keywords without schemas that mean the same in both. Annotations, formats and extensions are left out.
const PLAIN: [&str; 14] = [
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "uniqueItems",
];

/// Keywords with a list of schemas for the same value.
const LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Nesting limit of schemas, with their references.
const MAX_DEPTH: usize = 64;

/// Memory limit of the result with the paths of its schemas, in bytes. References multiply schemas.
const LARGEST: usize = 4 * 1024 * 1024;

/// Memory of one schema without its path, in bytes.
const NODE: usize = 128;

/// Maximum number of patterns, and their size limit in bytes.
const MOST_PATTERNS: usize = 100;
const LONGEST_PATTERN: usize = 4 * 1024;

/// Returns the same schema as JSON Schema without references. They are replaced by what they refer to, so that none is left to follow.
pub(super) fn json_schema(schema: &Value) -> Result<Value, SchemaNotUsable> {
    let mut rewrite = Rewrite {
        root: schema,
        left: LARGEST,
        patterns_left: MOST_PATTERNS,
    };
    rewrite.schema(schema, 0, 0)
}

struct Rewrite<'a> {
    root: &'a Value,
    /// Memory that is left, in bytes.
    left: usize,
    patterns_left: usize,
}

impl<'a> Rewrite<'a> {
    /// Rewrites a schema at this depth, with a path of this many bytes.
    fn schema(&mut self, schema: &'a Value, depth: usize, path: usize) -> Result<Value, SchemaNotUsable> {
        if depth > MAX_DEPTH {
            return Err(SchemaNotUsable::TooDeep);
        }
        self.take(NODE + path)?;
        let fields = schema
            .as_object()
            .ok_or_else(|| invalid("a schema is no object"))?;
        if let Some(reference) = fields.get("$ref") {
            return self.schema(self.referenced(reference)?, depth + 1, path);
        }
        let mut new = self.plain(fields)?;
        if let Some(Value::Object(properties)) = fields.get("properties") {
            let mut all = Map::new();
            for (name, property) in properties {
                let path = path + "/properties/".len() + name.len();
                all.insert(name.clone(), self.schema(property, depth + 1, path)?);
            }
            new.insert("properties".to_owned(), Value::Object(all));
        }
        match fields.get("additionalProperties") {
            None | Some(Value::Null) => {}
            Some(Value::Bool(others)) => {
                new.insert("additionalProperties".to_owned(), Value::Bool(*others));
            }
            Some(others) => {
                let others = self.schema(others, depth + 1, path + "/additionalProperties".len())?;
                new.insert("additionalProperties".to_owned(), others);
            }
        }
        for keyword in ["items", "not"] {
            if let Some(below) = fields.get(keyword) {
                let below = self.schema(below, depth + 1, path + 1 + keyword.len())?;
                new.insert(keyword.to_owned(), below);
            }
        }
        for keyword in LISTS {
            let Some(list) = fields.get(keyword) else { continue };
            let list = list
                .as_array()
                .ok_or_else(|| invalid("a list of schemas is no list"))?;
            let path = path + "/allOf/0000".len();
            let list = list.iter().map(|schema| self.schema(schema, depth + 1, path));
            let list: Result<Vec<Value>, _> = list.collect();
            new.insert(keyword.to_owned(), list?.into());
        }
        let is_combined = new.contains_key("not") || LISTS.iter().any(|keyword| new.contains_key(*keyword));
        if is_nullable(fields) && is_combined {
            return Ok(json!({"anyOf": [{"enum": [null]}, new]}));
        }
        Ok(Value::Object(new))
    }

    /// Returns the keywords without schemas.
    fn plain(&mut self, fields: &Map<String, Value>) -> Result<Map<String, Value>, SchemaNotUsable> {
        let mut new = Map::new();
        for keyword in PLAIN {
            let Some(value) = fields.get(keyword) else {
                continue;
            };
            self.take(memory(value))?;
            if keyword == "pattern" {
                let is_long = value
                    .as_str()
                    .is_some_and(|pattern| pattern.len() > LONGEST_PATTERN);
                let left = self.patterns_left.checked_sub(1).filter(|_| !is_long);
                self.patterns_left = left.ok_or(SchemaNotUsable::TooMuchWork)?;
            }
            new.insert(keyword.to_owned(), value.clone());
        }
        let is_nullable = is_nullable(fields);
        if let Some(kind) = fields.get("type") {
            let kind = if is_nullable {
                json!([kind, "null"])
            } else {
                kind.clone()
            };
            new.insert("type".to_owned(), kind);
        }
        if let Some(Value::Array(values)) = new.get_mut("enum")
            && is_nullable
            && !values.contains(&Value::Null)
        {
            values.push(Value::Null);
        }
        if let Some(Value::Array(required)) = fields.get("required") {
            let has_default = |name: &Value| {
                let properties = fields.get("properties").zip(name.as_str());
                let property = properties.and_then(|(properties, name)| properties.get(name));
                property.is_some_and(|property| property.get("default").is_some())
            };
            // A package fills in its defaults.
            let required: Vec<Value> = required
                .iter()
                .filter(|name| !has_default(name))
                .cloned()
                .collect();
            self.take(required.iter().map(memory).sum())?;
            if !required.is_empty() {
                new.insert("required".to_owned(), required.into());
            }
        }
        Ok(new)
    }

    /// Returns the schema of this document that a reference leads to.
    fn referenced(&self, reference: &Value) -> Result<&'a Value, SchemaNotUsable> {
        let pointer = reference
            .as_str()
            .and_then(|reference| reference.strip_prefix('#'));
        let pointer = pointer.ok_or(SchemaNotUsable::Remote)?;
        self.root.pointer(pointer).ok_or(SchemaNotUsable::Dangling)
    }

    fn take(&mut self, bytes: usize) -> Result<(), SchemaNotUsable> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or(SchemaNotUsable::TooMuchWork)?;
        Ok(())
    }
}

fn is_nullable(fields: &Map<String, Value>) -> bool {
    fields.get("nullable") == Some(&Value::Bool(true))
}

fn invalid(why: &str) -> SchemaNotUsable {
    SchemaNotUsable::Invalid(why.to_owned())
}

/// Returns the approximate memory of a value, in bytes.
fn memory(value: &Value) -> usize {
    const ENTRY: usize = 32;
    let below = match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(memory).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| name.len() + memory(value))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    ENTRY + below
}
