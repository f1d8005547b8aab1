//! Limits for one server or kind: backoff, circuit breaker and cache size.

mod again;
pub(crate) mod backoff;
mod breaker;
mod cap;
mod share;

pub use again::{Again, Retries};
pub use backoff::Backoff;
pub use breaker::Breaker;
pub use cap::{Cap, GivenUp, memory_of};
pub use share::may_have_more;
