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

use serde_json::{Value, json};

pub use command::main;
pub use disturbance::Kind;
pub use plan::Plan;
pub use report::Report;

/// A secret among the values of a package. No log may tell it.
const CANARY: &str = "canary-of-the-soak-3f1c";

/// Values of the package that has them in a Secret.
fn values(replicas: u32) -> Value {
    json!({"metricsServer": {"replicas": replicas, "password": CANARY}})
}
