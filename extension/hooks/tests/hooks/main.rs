//! The hook server, called as Cluster API calls it.

mod bad_input;
mod caller;
mod calls;
mod isolation;
mod properties;
mod replies;
