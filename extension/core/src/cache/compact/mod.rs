//! Compact objects in memory: unused fields are dropped, and the rest is compressed.

mod entry;
mod item;
mod kept;
mod objects;
mod packer;
mod recent;

pub use kept::Kept;
pub use objects::{Change, Gone, Listed, Objects};
pub use packer::{Packed, Packer, TooLarge};
pub use recent::Recent;
