//! Clients of API servers: kubeconfig, limits, middleware, connection pool and write fence.

pub mod bounded;
pub(crate) mod cause;
pub(crate) mod connector;
pub(crate) mod extension_configs;
pub mod fence;
pub(crate) mod kubeconfig;
pub mod last_response;
pub mod metrics;
pub mod middleware;
pub(crate) mod pool;
#[cfg(test)]
pub(crate) mod proxy_server;
pub(crate) mod requests;
pub(crate) mod responses;
#[cfg(test)]
pub(crate) mod scripted_server;
pub mod server_clock;
#[cfg(test)]
pub(crate) mod tls_server;
