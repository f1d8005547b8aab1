//! Parts of the product on real components, without Clusters: definitions, the binary and its replicas, the election,
//! version ranges.

mod crds;
mod example_gates;
mod examples;
mod extension;
mod gate_admission;
mod gate_definitions;
mod install;
mod install_gates;
mod install_wrong;
mod leader;
mod override_admission;
mod policies;
mod ranges;
mod standby;
mod status;
