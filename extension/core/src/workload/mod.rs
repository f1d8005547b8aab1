//! Connections to workload API servers: identity, first runs of Apps, and rate limit of event-driven requeues.

mod connection;
mod identity;
mod pace;
mod runs;

pub use connection::{Asking, Connection};
pub use pace::{GAP, MAX_REST, MIN_REST, OWED, OWED_BY_OTHERS, Pace, Weight};
pub use runs::FirstSeenRuns;
