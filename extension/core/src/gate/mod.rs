//! Decisions of hook calls, from cached objects alone.

pub mod decision;
pub mod hook_call;
pub mod index;
pub mod retry;
pub mod stuck;
pub mod unsynced;
