//! Status service: views of Clusters, authorization of callers, and the order of changes.

mod access;
mod reauthorization;
mod snapshot_store;
mod uncached_callers;
mod view;

pub use self::{
    access::{Refusal, User, access_review, allowed, token_review, user},
    reauthorization::{GoesOn, Reauthorization, Reauthorizations},
    snapshot_store::{Next, Reader, Selection, SnapshotStore},
    uncached_callers::{TooMany, UncachedCallers},
    view::{ClusterView, view},
};
