//! Evidence record, hops of an upgrade and the release of each hop.

pub mod hop;
pub mod record;
pub mod tkr;
