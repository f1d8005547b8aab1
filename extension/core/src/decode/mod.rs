//! Lenient decoding of the objects of an API server, one by one.
//!
//! kube-apiserver accepts more than the types of Sluice: times of the year 9999, and values beyond the nesting limit of serde_json.
//! A tenant may create such an object, and it must affect the tenant's own Cluster only. So an object that cannot be decoded becomes
//! [`Undecodable`] and never fails its list or watch. The same holds for an object over the memory limit of its kind, see [`Decode`].

mod body;
mod item;
mod limits;
mod list;
mod text;
mod undecodable;

pub use body::{Body, ClusterBody};
pub use item::Item;
pub use limits::{CACHED, Decode, OF_TENANT, READ};
pub use list::list;
pub use undecodable::Undecodable;

#[cfg(test)]
mod tests;
