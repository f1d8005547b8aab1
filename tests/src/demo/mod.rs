//! The demo: one Cluster, one upgrade, shown as it happens, and a report that a program can read.

mod capture;
mod command;
pub(crate) mod facts;
mod gates;
mod repeat;
pub(crate) mod report;
mod same_kubernetes;
mod standing;
mod story;
mod terminal;
mod upgrade;

pub use command::main;
pub use report::Report;
