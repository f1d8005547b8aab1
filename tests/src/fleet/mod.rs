//! The fleet: generated clusters on a real management API server, and the resources of Sluice for them. `make bench-fleet` runs it.
//!
//! etcd, kube-apiserver and Sluice are the real programs. Cluster API and kapp-controller do not run: what they write is generated. The
//! API servers of all workload clusters are one lightweight listener of the harness.

mod audit;
mod bed;
mod bump;
mod catalogue;
mod cluster;
mod command;
mod copies;
mod gated;
pub mod hooks;
mod installer;
mod kinds;
mod measure;
pub(crate) mod memory;
mod objects;
mod peer;
mod plot;
mod registration;
mod report;
mod seed;
mod workloads;

pub use command::main;

/// Namespace of all clusters of the fleet.
const NAMESPACE: &str = "fleet";

/// Kubernetes version of clusters at rest, and the one of those that are upgraded. Both minors are in the catalogue.
const MINORS: [u16; 2] = [35, 36];

/// The cluster of this number. All names have the same length, so that copies have it, too.
fn name(number: u32) -> String {
    format!("fleet-{number:05}")
}

/// The number of the cluster that `text` names first.
fn number(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("fleet-")?;
    rest.get(..5)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_the_number() {
        assert_eq!(name(17), "fleet-00017");
        assert_eq!(number("fleet-00017-antrea"), Some(17));
        assert_eq!(number("/fleet-50199/api/v1"), Some(50_199));
        assert_eq!(number("sluice-leader"), None);
        assert_eq!(number("fleet-1"), None);
    }
}
