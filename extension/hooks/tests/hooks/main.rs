//! The hook server, called as Cluster API calls it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows test functions, not the helpers that they fail in"
)]

mod bad_input;
mod caller;
mod calls;
mod isolation;
mod plans;
mod properties;
mod replies;
