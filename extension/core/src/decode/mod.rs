//! Objects as they come from an API server, decoded one by one.
//!
//! kube-apiserver takes more than the types of Sluice do: times of the year 9999, and values that are nested deeper than serde_json goes.
//! A tenant may make such an object, and it must be the matter of its own Cluster: what cannot be decoded is
//! [`Undecodable`], and never an error of the list or the watch that brings it. So is what takes more memory than an object of its kind
//! may, see [`Decode`].

mod body;
mod item;
mod limits;
mod list;
mod text;
mod undecodable;

pub use body::{Body, Unspecified};
pub use item::Item;
pub use limits::{Decode, KEPT, OF_TENANT, READ};
pub use list::list;
pub use undecodable::Undecodable;

#[cfg(test)]
mod tests;
