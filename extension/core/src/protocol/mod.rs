//! What every pass is made of: what it asks for, what it writes, and what it knows.
//!
//! A pass is a function that is called again and again from its beginning. Where an answer is missing it stops and says which; where
//! a write has not been made it stops and says which. The process reads or writes that.

pub(crate) mod context;
mod error;
mod failure;
pub(crate) mod interrupt;
pub(crate) mod read;
mod read_result;
mod request;
mod source;
pub(crate) mod write;

pub use context::{Context, Reconciler};
pub use error::{Error, RECONCILE_TIMEOUT, ReconcileFailure};
pub use failure::Failure;
pub use interrupt::{Done, Interrupt, Step};
pub use read::{
    Contact, Key, LastDriftCheck, ParsedKubeconfig, Read, ReadPhase, ReadPoint, Resource, Server, Watched,
};
pub use read_result::{Object, ReadResult};
pub use source::{Single, Source};
pub use write::{Verb, Write};
