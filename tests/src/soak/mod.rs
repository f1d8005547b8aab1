//! The soak: random upgrades with random disturbances on the real stack. The observer says whether a version was written too
//! early; a deadline says whether an upgrade got stuck.

mod act;
mod bump;
mod command;
mod disturbance;
mod figures;
mod judge;
mod plan;
mod report;
mod run;
mod subject;
mod undisturbed;

use serde_json::{Value, json};

use crate::processes::canary;

pub use command::main;
pub use disturbance::Kind;
pub use plan::Plan;
pub use report::Report;

/// Values of the package that has them in a Secret.
fn values(replicas: u32) -> Value {
    json!({"metricsServer": {"replicas": replicas, "password": canary::VALUES}})
}
