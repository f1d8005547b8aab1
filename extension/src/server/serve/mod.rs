//! Listeners: HTTPS for hooks and admission, plain HTTP for probes and metrics.
//!
//! A [`Server`] is bound first and run later, so that nothing is announced before its socket and certificate exist. Every wait for a peer
//! has a timeout (handshake, head, idle, drain): a stuck peer costs one task for a bounded time and never blocks another peer's
//! request.

mod certificate;
mod config;
mod connection;
mod error;
mod metrics;
mod reload;
mod server;
mod tls;
mod unread;

pub use certificate::CertificateHealth;
pub use config::{CertificateFiles, Config, Limits, TlsConfig, TlsVersion};
pub(crate) use connection::Leaving;
pub use error::Error;
pub use metrics::Metrics;
pub use server::{Drained, Server};
pub(crate) use unread::{PIECE, read_within};
