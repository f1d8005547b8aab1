//! Shared state of one workload API server, for its clients and watches.

use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use kube::Client;
use sluice_core::{
    cache::Sign,
    workload::{Connection, Weight},
};

use super::pace::Pace;
use crate::{clock::now, kube_client::middleware::middleware, lock::lock};

/// The server did not respond a moment ago, so no request was sent.
#[derive(Debug, thiserror::Error)]
#[error("not asked: it did not answer a moment ago")]
pub(super) struct NotAsked;

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

    /// Returns a client that sends requests only while the server responds.
    pub(super) fn guard(&self, client: Client) -> Client {
        self.over(client, true)
    }

    /// Returns a client that always sends requests, for stores: they have their own delays. Their responses count for the state.
    pub(super) fn listen(&self, client: Client) -> Client {
        self.over(client, false)
    }

    fn over(&self, client: Client, guards: bool) -> Client {
        let server = self.clone();
        middleware(client, move |client, request| {
            let server = server.clone();
            async move {
                if guards && server.known().breaker.is_open(now()) {
                    return Err(NotAsked.into());
                }
                let answer = client.send(request).await;
                if answer.is_err() {
                    server.known().breaker.failed(guards, now());
                } else if server.known().breaker.answered(now()) {
                    // The server responds again.
                    server.pace.wake(Weight::Proof);
                }
                Ok(answer?)
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
    use kube::client::Body;
    use tokio::time::sleep;
    use tower::service_fn;

    use super::*;
    use crate::queue::requeues::{ClusterRef, Requeues};

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

    async fn asks(client: &Client) -> bool {
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
