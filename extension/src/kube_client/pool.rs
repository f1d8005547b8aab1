//! Clients that give connections back.

use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
};
use tower::{BoxError, ServiceBuilder};

/// How long a connection that nothing uses is kept. Longer than the time between two looks at a hot cluster, which are 10 s.
const IDLE: Duration = Duration::from_secs(15);

/// What is kept of an answer that has been read but not used yet, in bytes. hyper keeps up to 400 KiB for the life of a connection.
const BUFFER: usize = 64 * 1024;

/// A client that keeps so many connections at most which nothing uses, and none for longer than 15 s. kube's own keeps each one that it
/// has ever needed at the same time, until its server ends it, with 40 KiB and more for each.
///
/// # Errors
/// What `config` says of authentication or TLS cannot be used.
pub(crate) fn client(config: Config, idle: usize) -> kube::Result<Client> {
    if config.proxy_url.is_some() {
        // Only kube's own knows proxies. The kubeconfig of an operator may name one.
        return Client::try_from(config);
    }
    let mut connector = TimeoutConnector::new(config.rustls_https_connector()?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let http = legacy::Builder::new(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(idle)
        .http1_max_buf_size(BUFFER)
        .build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}
