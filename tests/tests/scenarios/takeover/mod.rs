//! Taking over from the addons-manager: running Clusters go on, and nothing of it is left behind.

mod commands;
mod delete;
mod left;
mod management;
mod paused;
mod rest;
mod supervisor;

use anyhow::{Context as _, Result};
use serde_json::Value;
use sluice_tests::scenario::Scene;

pub(crate) use delete::scenario as delete;
pub(crate) use left::{by_the_addons_manager, nothing_is_left};
pub(crate) use management::scenario as management;
pub(crate) use paused::scenario as paused;
pub(crate) use rest::scenario as rest;
pub(crate) use supervisor::scenario as supervisor;

/// Where Sluice is registered.
const REGISTRATION: &str = "/apis/runtime.cluster.x-k8s.io/v1beta2/extensionconfigs/sluice";

/// The ExtensionConfig of Sluice.
async fn registration(scene: &Scene) -> Result<Value> {
    let found = scene.objects().get(REGISTRATION).await?;
    found.context("Sluice is not registered")
}
