//! What a scenario is written in: a stack with provider, observer and extension, a namespace of its own, Clusters that can be
//! created, upgraded and waited for.

mod cluster;
mod disturb;
mod hook_log;
mod read;
mod relocate;
mod runner;
mod scene;
mod world;

pub use cluster::{Cluster, NewCluster};
pub use disturb::Work;
pub use hook_log::HookAnswer;
pub use runner::{PATIENCE, Scenario, main};
pub use scene::Scene;
pub use world::{Hooks, World, sluice_definitions};

/// Kubernetes versions of scenarios, oldest first. They are *emulated* by one kube-apiserver, see [`crate::components`].
pub const VERSIONS: [&str; 3] = ["v1.34.4", "v1.35.4", "v1.36.3"];
