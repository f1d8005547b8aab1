//! Rules for the sources and the documents of this repository. No component is started.

mod crate_edges;
mod docs;
mod gate_ways;
mod packaging;
mod shape;
