//! Cluster API's MachinePool, which has the same fields here as a MachineDeployment.

use super::kind::foreign_kind;
use super::machine_deployment::{WorkerSpec, WorkerStatus};

foreign_kind! {
    /// A MachinePool.
    MachinePool in "cluster.x-k8s.io" / "v1beta2", "MachinePool", "machinepools",
    spec: WorkerSpec, status: WorkerStatus
}
