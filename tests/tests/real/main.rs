//! Parts of the product on real components, without Clusters: definitions, the binary and its replicas, the election. And what the
//! comparison with the pause flow calls early.

mod crds;
mod extension;
mod leader;
mod pause_flow;
mod standby;
