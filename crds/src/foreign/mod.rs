//! Kinds of Cluster API and Carvel, reduced to the fields that Sluice reads or writes.
//!
//! They are read leniently: a field that is missing or of the wrong type reads as absent and never hides the fields
//! beside it. Absence can only hold an upgrade; the switches whose absence could let one go (`paused`, `canceled`)
//! read as set when they are neither true nor false.

pub mod cluster;
pub mod cluster_class;
pub mod condition;
pub mod control_plane;
pub mod machine_deployment;
pub mod machine_pool;
pub mod packaging;

mod kind;
pub(crate) mod lenient;
mod topology;
mod variables;

pub use cluster::{Cluster, ClusterV1Beta1};
pub use cluster_class::ClusterClass;
pub use condition::Condition;
pub use control_plane::ControlPlane;
pub use machine_deployment::MachineDeployment;
pub use machine_pool::MachinePool;
pub use packaging::{App, Package, PackageInstall};
