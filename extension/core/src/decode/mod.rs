//! Objects as they come from an API server, decoded one by one.
//!
//! kube-apiserver takes more than the types of Sluice do: times of the year 9999, and values that are nested deeper than serde_json goes.
//! A tenant may make such an object, and it must be the matter of its own Cluster: what cannot be decoded is
//! [`Undecodable`], and never an error of the list or the watch that brings it.

mod item;
mod list;
mod text;
mod undecodable;

pub use item::Item;
pub use list::list;
pub use undecodable::Undecodable;

#[cfg(test)]
mod tests;
