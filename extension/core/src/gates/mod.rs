//! Gates of add-ons that are no packages: judges of objects, the record of the gates of a Cluster, and the reconcile that writes it.

pub mod compiled;
pub mod expression;
pub mod facts;
pub mod gate_status;
pub mod judge;
pub mod reconcile;
pub mod record;
pub mod selection;

mod selected;
mod status;

/// Maximum number of UpgradeGates in a namespace. A record lists no more.
pub const MAX_GATES: usize = 50;
