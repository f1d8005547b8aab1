//! Leader election, and whether any replica holds the lease.

pub mod elector;
pub mod leadership;
pub mod metrics;
