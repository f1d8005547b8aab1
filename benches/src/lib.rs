//! Subjects of the benches, and the load that they put on hooks.
//!
//! [`load`] is the driver behind `sluice-bench load`, [`echo`] the least that a server can do, [`listen`] what it
//! and the pause flow of `peers/pause-flow` serve with. [`answerer`] is the path of one hook call
//! without the network, and [`body`] makes bodies of the sizes that callers send. [`catalogue`] has releases
//! with their images.

pub mod answerer;
pub mod body;
pub mod catalogue;
pub mod compare;
pub mod echo;
pub mod listen;
pub mod load;

pub use answerer::Answerer;
