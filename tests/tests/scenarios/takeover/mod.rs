//! Taking over from the addons-manager: running Clusters go on, and nothing of it is left behind.

mod commands;
mod delete;
mod left;
mod paused;
mod rest;

pub(crate) use delete::scenario as delete;
pub(crate) use paused::scenario as paused;
pub(crate) use rest::scenario as rest;
