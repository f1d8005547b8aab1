//! Requests to API servers.

pub mod apply;
pub mod deletion;
pub(crate) mod edit;
pub(crate) mod once_more;
