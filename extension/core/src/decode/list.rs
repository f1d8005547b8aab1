//! A list as an API server sends it.

use serde_json::Value;

use super::{Item, Undecodable, undecodable::Fields};

/// The objects of the list in a text, without their `managedFields`. None if the text is no list: something else has answered, such as
/// a proxy, and an empty list would say that nothing is there.
///
/// # Errors
/// An object that cannot be decoded.
#[must_use]
pub fn list(text: &str) -> Option<Result<Vec<Value>, Box<Undecodable>>> {
    let fields: Fields = serde_json::from_str(text).ok()?;
    let kind: String = serde_json::from_str(fields.get("kind")?.get()).ok()?;
    // Go writes a list without items as null.
    let items: Option<Vec<Item<Value>>> = serde_json::from_str(fields.get("items")?.get()).ok()?;
    let items = items.unwrap_or_default().into_iter().map(|item| match item {
        Item::Decoded(object) => Ok(object),
        Item::Undecodable(object) => Err(object),
    });
    kind.ends_with("List").then(|| items.collect())
}
