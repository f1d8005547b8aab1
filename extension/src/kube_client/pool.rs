//! Connection pool with a limit on idle connections.

use std::time::Duration;

use hyper_rustls::HttpsConnector;
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

use super::connector::Connector;

/// Time after which an idle connection is usually closed. Longer than the resync interval of a hot cluster, 10 s.
pub(crate) const IDLE: Duration = Duration::from_secs(15);

/// Maximum bytes of a response that are read ahead. hyper keeps up to 400 KiB for the life of a connection.
const BUFFER: usize = 64 * 1024;

/// Returns a client with at most `idle` idle connections, each for at most this time. kube's own client keeps each connection of its
/// peak until the server ends it, with 40 KiB and more for each.
/// # Errors
/// The authentication or TLS settings of `config` are invalid.
pub(crate) fn client(config: Config, idle: usize, time: Duration) -> kube::Result<Client> {
    if config.proxy_url.is_some() {
        // Only kube's own client supports proxies. The kubeconfig of an operator may name one.
        return Client::try_from(config);
    }
    let connector = config.rustls_https_connector_with_connector(Connector::direct())?;
    over(connector, config, idle, time)
}

/// Returns such a client with a connector of its own; the TLS settings of `config` are not used.
/// # Errors
/// The authentication settings of `config` are invalid.
pub(crate) fn over(
    connector: HttpsConnector<Connector>,
    config: Config,
    idle: usize,
    time: Duration,
) -> kube::Result<Client> {
    let mut connector = TimeoutConnector::new(connector);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let http = legacy::Builder::new(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(time)
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
