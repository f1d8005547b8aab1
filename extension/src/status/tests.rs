//! The service as clients meet it.

mod bounds;
mod looks;
mod panics;
mod rig;
mod wire;
