//! Evidence record, hops of an upgrade, the release of each hop, and machines of another release.

pub mod course;
pub mod hop;
pub mod record;
pub mod rollback;
pub mod swap;
pub mod tkr;
