//! Evidence record, hops of an upgrade, the release of each hop, machines of another release, rollbacks and overrides.

pub mod course;
pub mod hop;
pub mod overrides;
pub mod record;
pub mod rollback;
pub mod swap;
pub mod tkr;
