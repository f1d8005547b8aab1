//! Connection pool with a limit on idle connections.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Extensions, Request, Response};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper_rustls::HttpsConnector;
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{
        self,
        connect::{CaptureConnection, HttpInfo, capture_connection},
    },
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
};
use tower::{BoxError, ServiceBuilder, service_fn};

use super::{connector::Connector, middleware::Transport};
use crate::{clock::now, lock::lock};

/// Time after which an idle connection is usually closed. Longer than the resync interval of a hot cluster, 10 s.
pub(crate) const IDLE: Duration = Duration::from_secs(15);

/// Maximum bytes of a response that are read ahead over HTTP/1.1. hyper keeps up to 400 KiB for the life of a connection.
const BUFFER: usize = 64 * 1024;

/// The same for each response over HTTP/2, which limits its speed to one window per round trip.
const STREAM_WINDOW: u32 = 128 * 1024;

/// The same for all responses of an HTTP/2 connection. Watches are read slowly, at most ten at once; other responses have the rest.
const CONNECTION_WINDOW: u32 = 16 * STREAM_WINDOW;

/// Time without received data after which an HTTP/2 connection is pinged, and time for the answer. An unanswered ping ends all its
/// requests and watches.
const PING: Duration = Duration::from_secs(15);

/// Age from which a connection gets no further request. An address may lead to another server meanwhile, which only a new connection
/// shows.
const AGE: Duration = Duration::from_mins(1);

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
        .service(service_fn({
            let ages = Ages::default();
            move |request| send(http.clone(), ages.clone(), request)
        }));
    Ok(Transport::new(service))
}

/// Sends a request.
async fn send(http: Http, ages: Ages, mut request: Request<Body>) -> Result<Response<Answer>, legacy::Error> {
    let mut unanswered = Unanswered(Some(capture_connection(&mut request)));
    let response = http.request(request).await?;
    ages.observe(unanswered.0.as_ref());
    if response.body().is_end_stream() {
        unanswered.0 = None;
    }
    Ok(response.map(|body| Answer { body, unanswered }))
}

/// Connection of a request without a complete response yet. Dropping it means that the request failed or was given up: the connection, or
/// the server behind it, may be gone, so the next request opens another one. Over HTTP/1.1 the connection ends anyway.
struct Unanswered(Option<CaptureConnection>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            poison(connection);
        }
    }
}

/// Ends the use of a connection by further requests: the next one opens another connection.
fn poison(connection: &CaptureConnection) {
    if let Some(connection) = connection.connection_metadata().as_ref() {
        connection.poison();
    }
}

/// Body of a response.
struct Answer {
    body: Incoming,
    unanswered: Unanswered,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let is_over = match &polled {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => self.body.is_end_stream(),
            _ => false,
        };
        if is_over {
            self.unanswered.0 = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// When the last connection was first used, and its local address. HTTP/2 has no other connection.
#[derive(Clone, Default)]
struct Ages(Arc<Mutex<Option<(SocketAddr, Instant)>>>);

impl Ages {
    /// Notes that a connection was used. An old one gets no further request.
    fn observe(&self, connection: Option<&CaptureConnection>) {
        let Some(connection) = connection else { return };
        let Some(address) = local_address(connection) else {
            return;
        };
        let now = now();
        let mut last = lock(&self.0);
        let (_, since) = last
            .filter(|(known, _)| *known == address)
            .unwrap_or((address, now));
        *last = Some((address, since));
        drop(last);
        if now.duration_since(since) >= AGE {
            poison(connection);
        }
    }
}

fn local_address(connection: &CaptureConnection) -> Option<SocketAddr> {
    let mut extras = Extensions::new();
    connection.connection_metadata().as_ref()?.get_extras(&mut extras);
    extras.get::<HttpInfo>().map(HttpInfo::local_addr)
}
