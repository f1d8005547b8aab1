//! The observer: reads every write of a stack from etcd itself and reports versions that were written before their packages were
//! proven.
//!
//! It judges the raw objects by rules of its own and shares no code with the product. All API servers of a stack have one etcd, so
//! one watch sees everything in one order, even during the replacement of an API server.
//!
//! A package is proven at a version when its PackageInstall and its App report success, by a run that began after the PackageInstall
//! got the current values of the ClusterBootstrap. The observer compares contents.
//!
//! - A version of the control plane needs every package of its release proven, those of phase AfterControlPlane excepted.
//! - On a Supervisor it is enough that a package is applied, unless it has a policy that asks for more. Values that place its pods have to name the
//!   release of the version.
//! - A Cluster that manages itself has its packages on the management API server, and none of kapp-controller.
//! - Once the control plane runs a version, every package has to be proven again, by a run that began after that. The end of the hop
//!   (Cluster API takes AfterControlPlaneUpgrade off its pending hooks), the end of the upgrade, the next version of the control plane
//!   and the workers need it.
//! - MachineDeployments and MachinePools also need a control plane that runs their version, and no package that has failed since.
//! - `TKR_DATA` for a version that machines run, of the Cluster or of a pool, changes only after the packages of the release that the
//!   new entry names are proven. The entry names the release of the label that the Cluster has at that write.
//! - Packages of a ClusterBootstrap go back to those of another release only if its policy asks for it, the ClusterBootstrap had them
//!   before, the label names their release, the control plane is at the target, and Cluster API has reconciled the target. What they
//!   had proven is worth nothing then: hooks that were not passed yet, and workers, need a new proof.
//!
//! - A proof of a package is not needed for a step if the record names an UpgradeOverride that the observer has read: for the UID of the
//!   Cluster, the version, the release and the gate, created by a user after the target was set, and not expired or deleted for
//!   longer than an answer takes. It has to name every package that is not proven. Module `ledger::overrides` has the rule.
//!
//! UpgradeGates have rules of their own, in module `gates`.
//!
//! What came after an answer that could not be called back is in module `answer`.

mod answer;
mod bootstrap;
mod cluster;
mod conditions;
mod evidence;
mod feed;
mod gates;
mod key;
mod ledger;
mod milestone;
mod release_data;
mod runtime;
mod stored;
#[cfg(test)]
mod tests;
mod values;
mod version;
mod violation;
mod workers;

pub use feed::{Change, Revision};
pub use ledger::Ledger;
pub use milestone::{Event, Milestone};
pub use runtime::Observer;
pub use violation::{Rule, Violation};
