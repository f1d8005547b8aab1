//! Cached objects of the management cluster, and the state of the watches that keep them current.

pub mod compact;
pub mod contract;
pub mod stored_kind;
pub mod stores;

mod discoveries;
mod followed_kind;
mod followed_store;
mod kind_state;
mod named;
mod rollback;
mod sign;
mod waiting;

pub use discoveries::{Discoveries, Turn};
pub use followed_kind::{Attempts, Ended, FINDING, FollowedKind, LISTING, Next};
pub use followed_store::{Brought, FollowedStore};
pub use kind_state::KindState;
pub use named::{Asker, NamedKind, NamedKinds, Standing};
pub use rollback::is_earlier;
pub use sign::{Failure, Sign};
pub use waiting::Waiting;
