//! Reads, writes and context of every reconcile.
//!
//! A reconcile is a function that the executor calls again from its start. It stops at a missing result or an outstanding write and
//! returns it. The executor then performs the read or write.

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
    Contact, Key, LastDriftCheck, ParsedKubeconfig, Read, ReadPhase, ReadPoint, Resource, SecretVersion,
    Server, Watched,
};
pub use read_result::{Object, ReadResult};
pub use request::virtual_machine;
pub use source::{Single, Source};
pub use write::{Verb, Write};
