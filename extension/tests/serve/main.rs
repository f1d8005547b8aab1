//! The TLS listener, met by real peers over loopback.

mod authority;
mod certificates;
mod drain;
mod limits;
mod peer;
mod protocols;
