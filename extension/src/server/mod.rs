//! HTTPS with certificate rotation, connection limits and drain; health endpoints.

pub mod health;
pub mod serve;
