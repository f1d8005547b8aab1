//! Objects in memory as few bytes: what nothing reads is dropped, and the rest is packed.

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
