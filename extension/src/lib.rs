//! Sluice: the binary crate as a library, so that its parts can be tested.

pub mod health;
pub mod serve;
