//! What the sources and the documents of this repository say. No component is started.

mod crate_edges;
mod docs;
mod packaging;
mod shape;
