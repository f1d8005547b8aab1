//! Sluice beside the pause flow of the addons-manager: upgrades in turn, with the same packages and the same delays. `make compare` runs it.
//!
//! Either flow has a management cluster of its own, of the same programs, because Sluice manages every Cluster of its management cluster
//! that has a release. Only one flow upgrades at a time. The observer, which is independent of both, detects early writes. The audit
//! logs of the API servers count requests.

mod command;
pub(crate) mod counts;
mod measure;
mod phases;
mod plan;
mod plot;
mod report;
mod side;
mod stand_in;

pub use command::main;
pub use measure::Upgrade;
pub use side::{Flow, Side};
pub use stand_in::Unpause;
