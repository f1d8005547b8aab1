//! Missing or unusable objects: Sluice holds, reports the reason in each promised place, and recovers without intervention.

mod hooks;
mod kubeconfig;
mod release;
mod row;

pub(crate) use row::{gate_names, holds};
pub(crate) use {hooks::scenario as hooks, kubeconfig::scenario as kubeconfig, release::scenario as release};
