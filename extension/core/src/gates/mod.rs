//! Gates of add-ons that are no packages: judges of objects, and the record of the gates of a Cluster.

pub mod compiled;
pub mod judge;
pub mod record;
pub mod selection;
