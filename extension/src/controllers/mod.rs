//! Reconcilers: dereference, validate, build, apply, update_status.

pub mod bootstrap;
