//! Caches of the management cluster, filled by lists and watches.

pub mod contract;
pub mod control_plane;
pub mod event_handlers;
#[cfg(test)]
pub(crate) mod frozen;
pub(crate) mod gate_stores;
pub mod kind_watch;
pub mod management_uid;
pub mod rollbacks;
pub mod store;
pub mod stores;
pub(crate) mod streamed;
pub(crate) mod undecodable;
pub mod values_watch;
pub mod watch;
