//! The observer: reads every write of a stack from etcd itself and says when a version was written before its packages were
//! proven.
//!
//! It judges the raw objects by rules of its own and shares no code with the product. All API servers of a stack have one etcd, so
//! one watch sees everything in one order, whatever API server is being replaced meanwhile.

mod cluster;
mod conditions;
mod evidence;
mod feed;
mod key;
mod ledger;
mod milestone;
mod runtime;
#[cfg(test)]
mod tests;
mod violation;
mod workers;

pub use feed::{Change, Revision};
pub use ledger::Ledger;
pub use milestone::{Event, Milestone};
pub use runtime::Observer;
pub use violation::Violation;
