//! The soak of gates: upgrades that wait for a Helm chart of CAAPH or Flux, on a stack without packages. Each meets one disturbance in
//! which a delivery system looks ready for an earlier state, or in which Sluice loses its leader.

mod act;
mod addon;
mod command;
mod disturbance;
mod plan;
mod report;
mod run;
mod stage;

pub(super) use command::{JOBS, plans, soak};
pub(super) use plan::Plan;
