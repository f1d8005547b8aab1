//! Middleware below a client.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use tower::{BoxError, Service, ServiceExt as _, service_fn};

/// Body of a response. A boxed error would hide from the compiler that a future that collects the body is `Send`.
pub type ResponseBody = UnsyncBoxBody<Bytes, kube::Error>;

/// Response that is on its way.
pub type Pending = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

/// Connections to an API server with middleware. Clones share them.
///
/// Each kube client has a queue of 10 KiB and more. So middleware wraps transports, and only the outermost one becomes a client.
#[derive(Clone)]
pub struct Transport(Arc<Sender>);

/// A transport that is not kept by this reference.
pub(crate) struct WeakTransport(Weak<Sender>);

type Sender = dyn Fn(Request<Body>) -> Pending + Send + Sync;

impl Transport {
    /// Returns a transport that sends requests through `service`.
    pub(crate) fn new<S, B>(service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self(Arc::new(move |request: Request<Body>| -> Pending {
            let pending = service.clone().oneshot(request);
            async move {
                let response = pending.await.map_err(Into::<BoxError>::into)?;
                Ok(response.map(|body| {
                    body.map_err(|error| kube::Error::Service(error.into()))
                        .boxed_unsync()
                }))
            }
            .boxed()
        }))
    }

    /// Returns a reference that does not keep the transport.
    pub(crate) fn downgrade(&self) -> WeakTransport {
        WeakTransport(Arc::downgrade(&self.0))
    }

    /// Sends a request.
    ///
    /// # Errors
    /// There is no response, or middleware refuses the request.
    pub fn send(&self, request: Request<Body>) -> Pending {
        (self.0)(request)
    }

    /// Returns a client that sends its requests here.
    #[must_use]
    pub fn into_client(self) -> Client {
        // No part of Sluice uses the default namespace of a client.
        Client::new(
            service_fn(move |request: Request<Body>| (self.0)(request)),
            "default",
        )
    }
}

impl WeakTransport {
    /// Returns the transport, if a client uses it.
    pub(crate) fn upgrade(&self) -> Option<Transport> {
        self.0.upgrade().map(Transport)
    }

    /// Whether a client uses the transport.
    pub(crate) fn is_used(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl From<Client> for Transport {
    fn from(client: Client) -> Self {
        Self::new(service_fn(move |request: Request<Body>| {
            let client = client.clone();
            async move { client.send(request).await }
        }))
    }
}

/// Returns a transport that hands each request and `inner` to `send`.
pub(crate) fn middleware<A>(
    inner: impl Into<Transport>,
    send: impl Fn(Transport, Request<Body>) -> A + Send + Sync + 'static,
) -> Transport
where
    A: Future<Output = Result<Response<ResponseBody>, BoxError>> + Send + 'static,
{
    let inner = inner.into();
    Transport(Arc::new(move |request| send(inner.clone(), request).boxed()))
}
