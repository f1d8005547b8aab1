//! Logs and metrics of the process.

pub mod log;
pub mod metrics;
pub mod process;
