//! Connection pool with a limit on idle connections.

use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{
        self,
        connect::{CaptureConnection, capture_connection},
    },
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
};
use tower::{BoxError, ServiceBuilder, service_fn};

use super::{connector::Connector, middleware::Transport};

/// Time after which an idle connection is usually closed. Longer than the resync interval of a hot cluster, 10 s.
pub(crate) const IDLE: Duration = Duration::from_secs(15);

/// Maximum bytes of a response that are read ahead over HTTP/1.1. hyper keeps up to 400 KiB for the life of a connection.
const BUFFER: usize = 64 * 1024;

/// The same for each response over HTTP/2.
const STREAM_WINDOW: u32 = 64 * 1024;

/// The same for all responses of an HTTP/2 connection. Watches are read slowly, at most ten at once; other responses have the rest.
const CONNECTION_WINDOW: u32 = 16 * STREAM_WINDOW;

/// Time without received data after which an HTTP/2 connection is pinged, and time for the answer. An unanswered ping ends all its
/// requests and watches.
const PING: Duration = Duration::from_secs(15);

/// Client of hyper, whose clones share connections.
type Http = legacy::Client<TimeoutConnector<HttpsConnector<Connector>>, Body>;

/// Returns a transport with at most `idle` idle connections, each for at most this time. kube's own client keeps each connection of its
/// peak until the server ends it, with 40 KiB and more for each.
/// # Errors
/// The authentication or TLS settings of `config` are invalid.
pub(crate) fn transport(config: Config, idle: usize, time: Duration) -> kube::Result<Transport> {
    if config.proxy_url.is_some() {
        // Only kube's own client supports proxies. The kubeconfig of an operator may name one.
        return Client::try_from(config).map(Transport::from);
    }
    let connector = config.rustls_https_connector_with_connector(Connector::direct())?;
    over(connector, &config, idle, time)
}

/// Returns such a transport with a connector of its own; the TLS settings of `config` are not used. Connections use HTTP/2 if TLS negotiates
/// it: all requests share one then, as long as it is in use.
/// # Errors
/// The authentication settings of `config` are invalid.
pub(crate) fn over(
    connector: HttpsConnector<Connector>,
    config: &Config,
    idle: usize,
    time: Duration,
) -> kube::Result<Transport> {
    let mut connector = TimeoutConnector::new(connector);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let http: Http = legacy::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(time)
        .pool_max_idle_per_host(idle)
        .http1_max_buf_size(BUFFER)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PING)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(service_fn(move |request| send(http.clone(), request)));
    Ok(Transport::new(service))
}

/// Sends a request.
async fn send(http: Http, mut request: Request<Body>) -> Result<Response<Incoming>, legacy::Error> {
    let mut unanswered = Unanswered(Some(capture_connection(&mut request)));
    let answer = http.request(request).await;
    unanswered.0 = None;
    answer
}

/// Connection of a request without a response yet. Dropping it means that the request was given up: the connection, or the server behind it,
/// may be gone, so the next request opens another one. Over HTTP/1.1 the connection ends anyway.
struct Unanswered(Option<CaptureConnection>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        let Some(captured) = &self.0 else { return };
        if let Some(connection) = captured.connection_metadata().as_ref() {
            connection.poison();
        }
    }
}
