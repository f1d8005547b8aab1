//! The stand-in for the nodes of a workload cluster: it brings Deployments and DaemonSets to ready after a delay that a scenario
//! chooses, and really runs one of them, kapp-controller.

mod delay;
mod kapp_controller;
mod runtime;
mod workload_kind;

pub use delay::{DELAY_ANNOTATION, Delay, Delays};
pub use kapp_controller::{KAPP_CONTROLLER_START, RunningProcess};
pub use runtime::Kubelet;
