//! The TLS listener and its process, with real peers over loopback; and the verbs of the binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows test functions, not the helpers that they fail in"
)]

mod admission;
mod authority;
mod bodies;
mod certificates;
mod client;
mod drain;
mod frames;
mod hooks;
mod ipv4;
mod limits;
mod memory;
mod peer;
mod process;
mod protocols;
mod replica;
mod scripted;
mod windows;
