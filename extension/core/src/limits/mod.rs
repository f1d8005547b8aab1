//! Limits that several parts share: backoff, circuit breaker, rate, fair share and cache size.

mod again;
pub(crate) mod backoff;
mod breaker;
mod cap;
mod share;
mod shares;
mod token_bucket;

pub use again::{Again, Retries};
pub use backoff::Backoff;
pub use breaker::Breaker;
pub use cap::{Cap, GivenUp, memory_of};
pub use share::may_have_more;
pub use shares::{Share, Shares};
pub use token_bucket::TokenBucket;
