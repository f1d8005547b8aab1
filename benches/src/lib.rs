//! What the benches measure: the path of one hook call, and bodies of the sizes that callers send.

pub mod answerer;
pub mod body;

pub use answerer::Answerer;
