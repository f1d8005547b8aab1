//! What keeps the trouble of one server or kind its own: how soon a failure is tried again, whether a server is asked at all, how much
//! of what it says is kept, and for how long that is believed. The binary asks, waits and keeps; what comes next is said here.

mod age;
mod discoveries;
mod followed_kind;
mod followed_store;
mod kind_state;
mod named;
mod sign;
mod waiting;

pub use age::{Age, LIST_SECONDS, RELIST_AFTER, WATCH_SECONDS, WatchAnswer};
pub use discoveries::{Discoveries, Turn};
pub use followed_kind::{Attempts, Ended, FINDING, FollowedKind, LISTING, Next};
pub use followed_store::{Brought, FollowedStore};
pub use kind_state::KindState;
pub use named::{Asker, NamedKind, NamedKinds, Standing};
pub use sign::{Failure, Sign};
pub use waiting::Waiting;
