//! Tests of the service through its clients.

mod bounds;
mod looks;
mod panics;
mod rig;
mod wire;
