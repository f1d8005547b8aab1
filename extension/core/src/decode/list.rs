//! A list as an API server sends it.

use serde_json::{Value, value::RawValue};
use sluice_crds::decode::{self, Limit};

use super::{Body, Undecodable, undecodable::Fields};

/// The objects of the list in a text, without their `managedFields`, which together are within the limit. None if the text is no list: something else has answered, such as
/// a proxy, and an empty list would say that nothing is there.
///
/// # Errors
/// An object that cannot be decoded.
#[must_use]
pub fn list(text: &str, limit: Limit) -> Option<Result<Vec<Value>, Box<Undecodable>>> {
    let fields: Fields<'_> = serde_json::from_str(text).ok()?;
    let kind: String = serde_json::from_str(fields.get("kind")?.get()).ok()?;
    // Go writes a list without items as null.
    let items: Option<Vec<&RawValue>> = serde_json::from_str(fields.get("items")?.get()).ok()?;
    let mut left = limit.memory;
    let mut objects = Vec::new();
    for item in items.unwrap_or_default() {
        let within = Limit {
            memory: left,
            ..limit
        };
        match decode::from_str::<Body>(item.get(), within) {
            Ok((Body(object), memory)) => {
                left -= memory;
                objects.push(object);
            }
            Err(_) => return Some(Err(Box::new(Undecodable::of::<Body>(item.get(), within)?))),
        }
    }
    kind.ends_with("List").then_some(Ok(objects))
}
