//! HTTPS with certificate rotation, connection limits and drain; endpoints of probes and metrics.

mod exposition;
pub mod health;
pub mod serve;
