//! Parts of the product on real components, without Clusters: definitions, the binary and its replicas, the election.

mod crds;
mod extension;
mod install;
mod leader;
mod standby;
mod status;
