//! Reconcilers.

pub mod bootstrap;
pub mod providers;
pub mod releases;
