//! Shared state of one workload API server, for its clients and watches.

use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use sluice_core::{
    cache::Sign,
    workload::{Connection, Weight},
};

use super::pace::Pace;
use crate::{
    clock::now,
    kube_client::{
        cause::{Cause, cause},
        middleware::{Transport, middleware},
    },
    lock::lock,
};

/// The server did not respond a moment ago, so no request was sent.
#[derive(Debug, thiserror::Error)]
#[error("not asked: it did not answer a moment ago")]
pub(super) struct NotAsked {
    /// Cause of the last failure, if TLS or a proxy reported one.
    #[source]
    cause: Option<Cause>,
}

/// State of a server. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Server {
    known: Arc<Mutex<Connection>>,
    pace: Pace,
}

impl Server {
    /// Creates the state of a server without any request. `pace` is that of its Cluster.
    pub(super) fn new(pace: Pace) -> Self {
        Self {
            known: Arc::default(),
            pace,
        }
    }

    /// Returns the current state.
    pub(super) fn known(&self) -> MutexGuard<'_, Connection> {
        lock(&self.known)
    }

    /// Observes an event of the watch of a kind.
    pub(super) fn saw(&self, kind: &str, sign: Sign, weight: Weight) {
        if self.known().saw(kind, sign, Timestamp::now()) {
            self.pace.wake(weight);
        }
    }

    /// Returns a transport that sends requests only while the server responds.
    pub(super) fn guard(&self, inner: impl Into<Transport>) -> Transport {
        self.over(inner, true)
    }

    /// Returns a transport that always sends requests, for stores: they have their own delays. Their responses count for the state.
    pub(super) fn listen(&self, inner: impl Into<Transport>) -> Transport {
        self.over(inner, false)
    }

    fn over(&self, inner: impl Into<Transport>, guards: bool) -> Transport {
        let server = self.clone();
        middleware(inner, move |inner, request| {
            let server = server.clone();
            async move {
                if guards && server.known().breaker.is_open(now()) {
                    let cause = server.known().cause().map(|cause| Cause(cause.to_owned()));
                    return Err(NotAsked { cause }.into());
                }
                let answer = inner.send(request).await;
                if let Err(error) = &answer {
                    server.known().failed(guards, cause(&**error), now());
                } else if server.known().answered(now()) {
                    // The server responds again.
                    server.pace.wake(Weight::Proof);
                }
                answer
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicUsize, Ordering},
        time::Duration,
    };

    use futures::{FutureExt, StreamExt};
    use http::{Request, Response};
    use kube::{Client, client::Body};
    use sluice_core::protocol;
    use tokio::time::sleep;
    use tower::service_fn;

    use super::*;
    use crate::{
        kube_client::responses::failure,
        queue::requeues::{ClusterRef, Requeues},
    };

    /// Server that can be switched off, with a count of its requests.
    #[derive(Clone, Default)]
    struct Switched(Arc<(AtomicBool, AtomicUsize)>);

    impl Switched {
        fn client(&self) -> Client {
            let server = self.clone();
            let service = service_fn(move |_: Request<Body>| {
                let server = server.clone();
                async move {
                    let (off, asked) = &*server.0;
                    asked.fetch_add(1, Ordering::Relaxed);
                    if off.load(Ordering::Relaxed) {
                        return Err("connection refused");
                    }
                    Ok(Response::new(Body::empty()))
                }
            });
            Client::new(service, "default")
        }

        fn switch(&self, off: bool) {
            self.0.0.store(off, Ordering::Relaxed);
        }

        fn asked(&self) -> usize {
            self.0.1.load(Ordering::Relaxed)
        }
    }

    /// The circuit breaker hides the failure, not its cause.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_not_sent_has_the_cause_of_the_last_one() {
        let refusing = service_fn(|_: Request<Body>| async {
            Err::<Response<Body>, _>(rustls::Error::from(rustls::CertificateError::UnknownIssuer))
        });
        let known = Server::new(Pace::new(ClusterRef::new("", "one"), Requeues::default()));
        let client = known.guard(Client::new(refusing, "default")).into_client();
        for is_asked in [true, false, false] {
            let request = Request::get("/api").body(Body::empty()).unwrap();
            let error = client.send(request).await.err().unwrap();
            let failure = failure(protocol::Server::Workload, &error);
            assert_eq!(failure.text.contains("not asked"), !is_asked, "{failure}");
            assert_eq!(
                failure.cause.as_deref(),
                Some("invalid peer certificate: UnknownIssuer")
            );
        }
    }

    async fn asks(client: &Transport) -> bool {
        let request = Request::get("/api").body(Body::empty()).unwrap();
        client.send(request).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_is_asked_seldom() {
        let (server, triggers) = (Switched::default(), Requeues::default());
        let mut requeues = Box::pin(triggers.listen());
        let known = Server::new(Pace::new(ClusterRef::new("", "one"), triggers));
        let (client, store) = (known.guard(server.client()), known.listen(server.client()));
        assert!(asks(&client).await);
        server.switch(true);
        let before = server.asked();
        for _ in 0..600 {
            assert!(!asks(&client).await);
            sleep(Duration::from_secs(1)).await;
        }
        let asked = server.asked() - before;
        assert!((15..60).contains(&asked), "asked {asked} times in ten minutes");
        assert!(requeues.next().now_or_never().is_none());

        server.switch(false);
        assert!(asks(&store).await, "a store always sends requests");
        assert!(
            requeues.next().now_or_never().is_some(),
            "its Cluster is requeued"
        );
        assert!(asks(&client).await, "and all requests are sent again");
    }
}
