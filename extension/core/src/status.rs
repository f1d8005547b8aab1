//! What the status service says: of which Clusters, to whom, and in which order.

mod access;
mod board;
mod reauthorization;
mod strangers;
mod view;

pub use self::{
    access::{Refusal, User, access_review, allowed, token_review, user},
    board::{Next, Reader, Selection, SnapshotStore},
    reauthorization::{GoesOn, Reauthorization, Reauthorizations},
    strangers::{Strangers, TooMany},
    view::{ClusterView, view},
};
