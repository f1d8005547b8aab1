//! Vocabulary of scenarios: a stack with provider, observer and extension, a namespace of its own, Clusters that can be
//! created, upgraded and waited for.

mod cluster;
mod columns;
pub mod deaths;
mod disturb;
mod events;
pub mod flux;
pub mod gates;
mod history;
mod hook_log;
mod lanes;
mod objects;
mod read;
mod recording;
mod relocate;
mod requests;
mod restore;
mod runner;
mod scene;
mod snapshot;
mod table;
pub mod verdict;
mod watch_log;
mod world;
mod writes;

pub use cluster::{Cluster, NewCluster};
pub use columns::{Columns, Row};
pub use disturb::Work;
#[cfg(test)]
pub(crate) use history::tests::{gates as gates_of, records as history_of};
pub use history::{History, Records};
pub use hook_log::HookAnswer;
pub use objects::Objects;
pub use recording::Recording;
pub use requests::Requests;
pub use restore::Backup;
pub use runner::{Installation, Place, Scenario, TIMEOUT, main};
pub use scene::Scene;
pub use snapshot::Snapshot;
pub use table::Table;
pub use verdict::Identity;
pub use watch_log::{WatchLog, Written};
pub use world::{Hooks, World, gate_definitions, sluice_definitions};
pub use writes::{Writes, are_expected};

/// Kubernetes versions of scenarios, oldest first. They are *emulated* by one kube-apiserver, see [`crate::components`].
pub const VERSIONS: [&str; 3] = ["v1.34.4", "v1.35.4", "v1.36.3"];
