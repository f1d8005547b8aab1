//! Cached objects of the management cluster, and the state of the watches that keep them current.

pub mod contract;
pub mod snapshot;
pub mod stored_kind;
pub mod stores;

mod cached;
mod cached_object;
mod discoveries;
mod followed_store;
mod kind_health;
mod kind_state;
mod named;
mod optional_kind;
mod rollback;
mod sign;
mod waiting;

pub use cached::Cached;
pub use cached_object::{CachedObject, Dictionary};
pub use discoveries::{Discoveries, PERIOD, Turn};
pub use followed_store::{Brought, FollowedStore};
pub use kind_health::{FINDING, KindHealth, LISTING, Verdict};
pub use kind_state::KindState;
pub use named::{NamedKind, NamedKinds, Standing};
pub use optional_kind::{DefinitionRead, OptionalKind, OptionalState, gate_kinds};
pub use rollback::is_earlier;
pub use sign::{Failure, Sign};
pub use waiting::Waiting;
