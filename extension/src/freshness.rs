//! How old a store is: since when it has missed no change, as complete answers of the API server prove.
//!
//! A list proves that nothing was missed until it was asked for, once all of it is in the store. So does a watch, once it has
//! ended as the server ends it: whatever had happened before it was asked for has been delivered by then. Its beginning
//! proves nothing, because the connection may break before what happened meanwhile is delivered, and neither does an
//! event, which may be the first of many that are outstanding or may have waited in a buffer.
//!
//! kube-runtime is silent about the end of a watch, so a layer of the client notes it. [`crate::watch`] notes the rest.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use http::Request;
use http_body_util::{BodyExt, StreamBody};
use kube::client::{Body, Client};
use tokio::time::Instant;
use tower::service_fn;

/// What a watch is asked to last, in seconds. An idle store is at most two watches old, so [`RELIST_AFTER`] leaves room for
/// one that breaks.
pub const WATCH_SECONDS: u32 = 10;

/// A store of this age is listed again, whatever its watch seems to do, so that it is current before its age is over the limit.
pub const RELIST_AFTER: Duration = Duration::from_secs(30);

/// A watch of [`WATCH_SECONDS`] has lasted at least so long at its end. A server may end one early, when it stops or when its
/// reader is too slow, and then not all was delivered.
const COMPLETE: Duration = Duration::from_secs(9);

/// The age of one store. Clones share it.
///
/// The clock is monotonic and goes on while the process is stopped. It stands still while the whole machine is suspended.
#[derive(Clone, Debug, Default)]
pub struct Freshness(Arc<Mutex<Proven>>);

#[derive(Debug, Default)]
struct Proven {
    /// Nothing that happened before was missed.
    since: Option<Instant>,
    /// When something went wrong last: no proof that was under way then counts.
    doubted: Option<Instant>,
}

impl Freshness {
    /// For how long the store may have missed changes; none if it was never filled.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.proven_at().map(|since| since.elapsed())
    }

    /// The client that the store is to be watched with: it notes watches that end in good order.
    #[must_use]
    pub fn client(&self, client: &Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let (freshness, client) = (self.clone(), client.clone());
        let service = service_fn(move |request: Request<Body>| {
            let (freshness, client) = (freshness.clone(), client.clone());
            async move {
                let asked = Instant::now();
                let watch = is_watch(&request);
                let answer = client.send(request).await?;
                let counts = watch && answer.status().is_success();
                Ok::<_, kube::Error>(answer.map(|body| noting(body, counts.then_some((freshness, asked)))))
            }
        });
        Client::new(service, namespace)
    }

    /// All that happened before `asked` is in the store.
    pub(crate) fn proven(&self, asked: Instant) {
        let mut proven = self.lock();
        let certain = proven.doubted.is_none_or(|doubted| doubted < asked);
        if certain && proven.since.is_none_or(|since| since < asked) {
            proven.since = Some(asked);
        }
    }

    /// Something went wrong: what was asked for until now proves nothing any more.
    pub(crate) fn doubted(&self) {
        self.lock().doubted = Some(Instant::now());
    }

    pub(crate) fn proven_at(&self) -> Option<Instant> {
        self.lock().since
    }

    fn lock(&self) -> MutexGuard<'_, Proven> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a request asks for a watch.
pub(crate) fn is_watch(request: &Request<Body>) -> bool {
    let mut pairs = request.uri().query().unwrap_or_default().split('&');
    pairs.any(|pair| pair == "watch=true")
}

/// The body of an answer. kube-runtime reads on only when all that it has read is in the store, so at the end all is.
fn noting(
    body: Body,
    proof: Option<(Freshness, Instant)>,
) -> impl hyper::body::Body<Data = Bytes, Error = kube::Error> + Send + 'static {
    StreamBody::new(stream::unfold((body, proof), |(mut body, proof)| async move {
        let frame = body.frame().await;
        if let (None, Some((freshness, asked))) = (&frame, &proof)
            && asked.elapsed() >= COMPLETE
        {
            freshness.proven(*asked);
        }
        let proof = proof.filter(|_| matches!(frame, Some(Ok(_))));
        frame.map(|frame| (frame, (body, proof)))
    }))
}

#[cfg(test)]
pub(crate) mod tests;
