//! Random and named walks of UpgradeGates: the reconcile and the hook decision of the product against models of two API servers, Cluster
//! API, the DaemonSet controller and a system that delivers the add-on: CAAPH v0.6.4, helm-controller v1.6.2, or kustomize-controller
//! v1.9.4 with source-controller v1.9.4. In some walks the gate also checks a CustomResourceDefinition, and an object by an expression.
//!
//! Each step of a walk is one event: reads or a write of a reconcile, a watch event of one kind, a step of a controller, an edit of a user,
//! a refused or unanswered request, a crash. The oracle knows what is deployed and what runs, and reads no status. Invariants:
//! - early: a gate opens only if, for one row of the Kubernetes version, each check of each Enforce gate in the record was true: each object
//!   at some time between the first confirming read and the write, the DaemonSet at some time since its controller counted its Pods last. A
//!   gate that is open, and to which an edited gate is added, needs the same since the start of the reconcile. Cluster API writes a version
//!   only after a hook for which this holds, for each gate and generation in the record;
//! - missing: an opening gate covers each Enforce gate that the caches of the leader show as the API server has it, and that selects the
//!   Cluster by labels that have not changed since the first confirming read;
//! - stale: a hook is released only while the record on the API server has its gate open, is of this Cluster, and lists an Enforce gate;
//!   or while it lists none;
//! - unlisted: each Enforce gate in the cache of the replica that selects the labels of the request is in that record;
//! - foreign: nothing but ClusterUpgrades is written;
//! - audit: a hook is held only if an Enforce gate selects the Cluster, or is in a record;
//! - held: with correct inputs, a fair schedule completes each upgrade within a bound, also beside an Audit gate that is never proven;
//! - settled: afterwards nothing is written.
//!
//! Not promised, and not asserted:
//! - an answer that Cluster API has received is not taken back, and a gate behind a step that was made stays open. A record ends once the
//!   control plane is at the target with all checks proven; later edits of gates do not hold the workers of that target;
//! - a gate that neither the leader, nor the replica, nor the record has seen holds nothing; its condition `InForce` says so;
//! - a Pod that fails after its controller counted it is seen at the next count;
//! - a recorded proof stands while CAAPH or Flux delivers again at the same generation. A run that fails and is repeated between two reads
//!   is not seen, so repeated runs of random walks succeed. Neither is a source that moves away and back, so no tag of a walk returns to an
//!   earlier commit;
//! - a HelmRelease or a Kustomization that outlives its Cluster shows the state of the earlier workload cluster until Flux reconciles it.
//!   In a walk, both are created again with the Cluster.
//!
//! `WALKS` sets the number of walks, `SEED` their random seed.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that runs outside of test functions, too"
)]

mod addons;
mod caaph;
mod capi;
mod defect;
mod flux;
mod helm_controller;
mod kustomize_controller;
mod leader;
mod named;
mod objects;
mod oracle;
mod planted;
mod random;
mod replica;
mod servers;
mod shown;
mod users;
mod walk;
