//! Controllers: reconcilers, and the executor of their reads and writes.

pub mod bootstrap;
pub(crate) mod concurrency;
pub mod events;
pub mod executor;
pub mod fan_out;
pub mod gate_in_force;
pub mod gates;
pub mod overrides;
pub mod providers;
pub mod registration;
pub mod releases;
pub mod retrigger;
