//! A control plane and infrastructure provider for Cluster API: one real kube-apiserver per Cluster, replaced by another binary
//! when the version changes. The order of its writes is the one in which a real provider's results appear.

mod cluster;
mod condition;
mod config;
mod control_plane;
mod crds;
mod error;
mod kinds;
mod machine;
mod node;
mod owner;
mod patch;
mod runtime;
mod workload;

pub use control_plane::{API_SERVER, CONTROL_PLANE, MANAGEMENT};
pub use crds::{GROUP, INFRASTRUCTURE_GROUP, VERSION, definitions, reader_role};
pub use kinds::{HarnessControlPlane, HarnessControlPlaneSpec, SwapDelay, WorkloadControllers};
pub use runtime::Provider;
pub use workload::Workload;
