//! What the API server has answered since a kind is followed.

use std::time::Duration;

use http::Request;
use kube::{Client, client::Body};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};
use tower::service_fn;

use crate::{
    backoff::HEALTHY,
    freshness::{Freshness, is_watch},
    watch::Seen,
};

/// A watch that has lasted for so long did not begin with an error.
const NO_ERROR: Duration = Duration::from_secs(5);

/// Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    state: watch::Sender<State>,
    /// Which watches were delivered to their end.
    complete: Freshness,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// When all objects were listed last.
    listed: Option<Instant>,
    /// Since when watches are answered.
    watched: Option<Instant>,
    /// Since when there are only errors.
    failing: Option<Instant>,
}

impl State {
    /// Since when there are only errors, unless a watch is answered now.
    fn only_errors(&self) -> Option<Instant> {
        self.failing.filter(|_| self.watched.is_none())
    }

    fn failed(&mut self) {
        let watched = self.watched.take();
        if watched.is_some_and(|since| since.elapsed() >= HEALTHY) {
            self.failing = None;
        }
        if self.listed.is_some() {
            self.failing.get_or_insert_with(Instant::now);
        }
    }
}

impl Answers {
    /// The client that the kind is to be followed with: it notes which watches are answered, of which kube-runtime says nothing.
    pub(super) fn client(&self, client: &Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let (answers, client) = (self.clone(), self.complete.client(client));
        let service = service_fn(move |request: Request<Body>| {
            let (answers, client) = (answers.clone(), client.clone());
            async move {
                let watch = is_watch(&request);
                let answer = client.send(request).await?;
                if watch && answer.status().is_success() {
                    answers.state.send_modify(|state| {
                        state.watched.get_or_insert_with(Instant::now);
                    });
                }
                Ok::<_, kube::Error>(answer)
            }
        });
        Client::new(service, namespace)
    }

    /// To be called with everything that is seen.
    pub(super) fn note<K>(&self, seen: &Seen<'_, K>) {
        match seen {
            Seen::Synced => self.state.send_modify(|state| {
                (state.listed, state.failing) = (Some(Instant::now()), None);
            }),
            Seen::Touched(_) | Seen::Gone(_) => {
                self.state
                    .send_if_modified(|state| state.failing.take().is_some());
            }
            Seen::Failed(_) => self.state.send_modify(State::failed),
            Seen::GivenUp(_) => {}
        }
    }

    /// Returns once a watch is answered, and not with an error.
    pub(super) async fn watched(&self) {
        let mut changes = self.state.subscribe();
        loop {
            let watched = changes.borrow_and_update().watched;
            let Some(since) = watched else {
                let _sender_is_here = changes.changed().await;
                continue;
            };
            if timeout_at(since + NO_ERROR, changes.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Returns once a kind that was listed has brought only errors for `time`. While a watch is answered, its end is waited for.
    pub(super) async fn only_errors(&self, time: Duration) {
        let mut changes = self.state.subscribe();
        loop {
            let state = *changes.borrow_and_update();
            let Some(since) = state.only_errors() else {
                let _sender_is_here = changes.changed().await;
                continue;
            };
            if timeout_at(since + time, changes.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Returns once a kind that was listed may have missed changes for `time`: it was not listed again, and no watch was delivered to
    /// its end. While there are only errors, those decide.
    pub(super) async fn unproven(&self, time: Duration) {
        let mut changes = self.state.subscribe();
        loop {
            let state = *changes.borrow_and_update();
            let proven = state.listed.max(self.complete.proven_at());
            match proven.filter(|_| state.only_errors().is_none()) {
                None => {
                    let _sender_is_here = changes.changed().await;
                }
                Some(proven) if proven.elapsed() >= time => return,
                Some(proven) => sleep_until(proven + time).await,
            }
        }
    }
}
