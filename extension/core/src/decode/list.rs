//! Decoding of a list.

use serde_json::{Value, value::RawValue};
use sluice_crds::decode::Limit;

use super::{Body, Decode as _, Undecodable, undecodable::Fields};

/// Returns the objects of a list, without their `managedFields`. The limit applies to all objects together. `None` if the text is not a
/// list: then the response is not from an API server but, for example, from a proxy. An empty list would mean that no object exists.
///
/// # Errors
/// An undecodable object.
#[must_use]
pub fn list(text: &str, limit: Limit) -> Option<Result<Vec<Value>, Box<Undecodable>>> {
    let fields: Fields<'_> = serde_json::from_str(text).ok()?;
    let kind: String = serde_json::from_str(fields.get("kind")?.get()).ok()?;
    // Go writes an empty list as null.
    let items: Option<Vec<&RawValue>> = serde_json::from_str(fields.get("items")?.get()).ok()?;
    let mut left = limit.memory;
    let mut objects = Vec::new();
    for item in items.unwrap_or_default() {
        let within = Limit {
            memory: left,
            ..limit
        };
        match Body::decode(item.get(), within) {
            Ok((Body(object), memory)) => {
                left -= memory;
                objects.push(object);
            }
            Err(fault) => return Some(Err(Box::new(Undecodable::of(item.get(), &fault)?))),
        }
    }
    kind.ends_with("List").then_some(Ok(objects))
}
