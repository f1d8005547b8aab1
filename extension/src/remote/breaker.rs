//! What keeps a workload API server that does not answer from taking time: it is asked at growing delays, and not in between.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::Request;
use kube::{Client, client::Body};
use tokio::time::Instant;
use tower::{BoxError, service_fn};

use super::pace::Pace;
use crate::backoff::Backoff;

/// How long a server that did not answer once is left alone.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// The longest time that it is left alone.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// The server did not answer a moment ago, so it was not asked.
#[derive(Debug, thiserror::Error)]
#[error("not asked: it did not answer a moment ago")]
pub(super) struct NotAsked;

/// Whether a server is asked. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Breaker {
    state: Arc<Mutex<State>>,
    pace: Pace,
}

#[derive(Debug)]
struct State {
    backoff: Backoff,
    /// The server is left alone until then.
    until: Option<Instant>,
    /// It did not answer the last request, of a pass or of a store.
    silent: bool,
    answered: Option<Instant>,
}

impl Breaker {
    /// A server that was never asked. `pace` is that of the Cluster that waits for it.
    pub(super) fn new(pace: Pace) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                backoff: Backoff::new(MIN_DELAY, MAX_DELAY),
                until: None,
                silent: false,
                answered: None,
            })),
            pace,
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
        let namespace = client.default_namespace().to_owned();
        let breaker = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (breaker, client) = (breaker.clone(), client.clone());
            async move {
                if guards && breaker.is_open() {
                    return Err(NotAsked.into());
                }
                let answer = client.send(request).await;
                match &answer {
                    Ok(_) => breaker.answered(),
                    Err(_) => breaker.failed(guards),
                }
                answer.map_err(BoxError::from)
            }
        });
        Client::new(service, namespace)
    }

    /// When the server answered last.
    pub(super) fn last_answer(&self) -> Option<Instant> {
        self.state().answered
    }

    fn is_open(&self) -> bool {
        self.state().until.is_some_and(|until| Instant::now() < until)
    }

    fn failed(&self, opens: bool) {
        let mut state = self.state();
        state.silent = true;
        // Requests that were sent side by side fail together, and are one failure.
        let is_open = state.until.is_some_and(|until| Instant::now() < until);
        if opens && !is_open {
            let distance = state.backoff.failed();
            state.until = Some(Instant::now() + distance);
        }
    }

    fn answered(&self) {
        let mut state = self.state();
        state.backoff.reset();
        state.answered = Some(Instant::now());
        state.until = None;
        let answers_again = std::mem::take(&mut state.silent);
        drop(state);
        if answers_again {
            self.pace.wake();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use futures::{FutureExt, StreamExt};
    use http::Response;
    use kube::runtime::reflector::ObjectRef;
    use tokio::time::sleep;

    use super::*;
    use crate::triggers::Triggers;

    /// A server that can be switched off, and how often it was asked.
    #[derive(Clone, Default)]
    struct Server(Arc<(AtomicBool, AtomicUsize)>);

    impl Server {
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
        let (server, triggers) = (Server::default(), Triggers::default());
        let mut woken = Box::pin(triggers.listen());
        let breaker = Breaker::new(Pace::new(triggers.of(ObjectRef::new("one"))));
        let (client, store) = (breaker.guard(server.client()), breaker.listen(server.client()));
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

    /// Requests that are under way together fail together.
    #[tokio::test(start_paused = true)]
    async fn requests_that_fail_side_by_side_are_one_failure() {
        let server = Server::default();
        let breaker = Breaker::new(Pace::new(Triggers::default().of(ObjectRef::new("one"))));
        let client = breaker.guard(server.client());
        server.switch(true);
        let before = server.asked();
        futures::future::join_all((0..20).map(|_| asks(&client))).await;
        assert_eq!(
            server.asked() - before,
            20,
            "none has failed yet when they are sent"
        );
        sleep(Duration::from_secs(2)).await;
        server.switch(false);
        assert!(asks(&client).await, "it is asked again after the first delay");
    }
}
