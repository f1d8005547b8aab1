//! One workload API server as its clients and watches see it: they share what is known of it.

use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use kube::Client;
use sluice_core::{
    cache::Sign,
    workload::{Connection, Weight},
};

use super::pace::Pace;
use crate::{clock::now, kube_client::middleware::middleware, lock::lock};

/// The server did not answer a moment ago, so it was not asked.
#[derive(Debug, thiserror::Error)]
#[error("not asked: it did not answer a moment ago")]
pub(super) struct NotAsked;

/// What is known of a server. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Server {
    known: Arc<Mutex<Connection>>,
    pace: Pace,
}

impl Server {
    /// A server that was never asked. `pace` is that of the Cluster that waits for it.
    pub(super) fn new(pace: Pace) -> Self {
        Self {
            known: Arc::default(),
            pace,
        }
    }

    /// What is known of it now.
    pub(super) fn known(&self) -> MutexGuard<'_, Connection> {
        lock(&self.known)
    }

    /// Takes in what the watch of a kind has seen.
    pub(super) fn saw(&self, kind: &str, sign: Sign, weight: Weight) {
        if self.known().saw(kind, sign, Timestamp::now()) {
            self.pace.wake(weight);
        }
    }

    /// A client that asks only while the server answers.
    pub(super) fn guard(&self, client: Client) -> Client {
        self.over(client, true)
    }

    /// A client that always asks, for stores: they have delays of their own. What they are answered counts.
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
                    // It answers again.
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

    /// A server that can be switched off, and how often it was asked.
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
        let mut woken = Box::pin(triggers.listen());
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
        assert!(woken.next().now_or_never().is_none());

        server.switch(false);
        assert!(asks(&store).await, "a store always asks");
        assert!(woken.next().now_or_never().is_some(), "its Cluster is woken");
        assert!(asks(&client).await, "and everything is asked again");
    }
}
