//! The soak: random upgrades with random disturbances on the real stack. The observer reports versions that were written too
//! early; a deadline detects a stuck upgrade. Module `gates` does the same for charts that a gate waits for.

mod act;
mod bump;
mod command;
mod disturbance;
mod figures;
mod gates;
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
