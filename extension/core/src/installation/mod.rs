//! ExtensionConfigs: registration of the hooks, and retriggers after failed calls.

pub mod registration;
pub mod retrigger;
