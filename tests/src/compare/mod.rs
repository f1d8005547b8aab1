//! Sluice beside the pause flow of the addons-manager: upgrades in turn, with the same packages and the same delays. `make compare` runs it.
//!
//! Either flow has a management cluster of its own, of the same programs, because Sluice manages every Cluster of its management cluster
//! that has a release. One flow rests while the other one upgrades. What is early is judged by the observer, which knows neither of them;
//! requests are counted by the audit logs of the API servers.

mod command;
mod counts;
mod measure;
mod plan;
mod plot;
mod report;
mod side;
mod stand_in;

pub use command::main;
pub use measure::Upgrade;
pub use side::{Flow, Side};
pub use stand_in::Unpause;
