//! Tests of the service through its clients.

mod bounds;
mod panics;
mod reauthorization;
mod rig;
mod wire;
