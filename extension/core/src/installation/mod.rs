//! ExtensionConfigs: registration of the hooks, and retriggers after failed calls.

pub mod gate_in_force;
pub mod registration;
pub mod retrigger;
