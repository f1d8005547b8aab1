//! The demo: one Cluster, one upgrade, shown as it happens, and a report that a program can read.

mod command;
mod facts;
mod repeat;
mod report;
mod standing;
mod story;
mod terminal;
mod upgrade;

pub use command::main;
pub use report::Report;
