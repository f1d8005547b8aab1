//! Limits towards one server or kind: backoff, circuit breaker, and the size of what is kept.

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
