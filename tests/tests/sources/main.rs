//! Rules for the sources and the documents of this repository. No component is started.

mod crate_edges;
mod docs;
mod packaging;
mod shape;
