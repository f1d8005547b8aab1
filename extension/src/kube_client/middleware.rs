//! Middleware of a client.

use bytes::Bytes;
use http::{Request, Response};
use kube::{Client, client::Body};
use tower::{BoxError, service_fn};

/// Returns a client that hands each request and `client` to `send`.
pub(crate) fn middleware<A, B>(
    client: Client,
    send: impl Fn(Client, Request<Body>) -> A + Send + 'static,
) -> Client
where
    A: Future<Output = Result<Response<B>, BoxError>> + Send + 'static,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let namespace = client.default_namespace().to_owned();
    Client::new(
        service_fn(move |request| send(client.clone(), request)),
        namespace,
    )
}
