//! Reconcilers.

pub mod bootstrap;
pub mod providers;
