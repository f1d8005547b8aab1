//! Decisions of hook calls: holds from cached objects, releases from objects read after the call.

pub mod confirmation;
pub mod decision;
pub mod flights;
pub mod hook_call;
pub mod index;
pub mod plan_call;
pub mod retry;
pub mod stuck;
