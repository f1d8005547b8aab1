//! How old a store is: the [`Age`] that its list and watch prove.
//!
//! kube-runtime is silent about the beginning and the end of a watch, so a layer of the client notes them. [`crate::watch`] notes the
//! rest.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::stream;
use http::Request;
use http_body_util::{BodyExt, StreamBody};
use kube::client::{Body, Client};
use sluice_core::walls::Age;

use crate::{clock::now, layer::over, lock::lock};

/// The age of one store. Clones share it.
///
/// The clock is monotonic and goes on while the process is stopped. It stands still while the whole machine is suspended.
#[derive(Clone, Debug, Default)]
pub struct Freshness(Arc<Mutex<Age>>);

impl Freshness {
    /// For how long the store may have missed changes; none if it was never filled.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        let proven = self.lock().proven();
        proven.map(|proven| now().duration_since(proven))
    }

    /// The client that the store is to be watched with: it notes watches that end in good order.
    #[must_use]
    pub fn client(&self, client: &Client) -> Client {
        let freshness = self.clone();
        noting(client.clone(), move |watched| {
            if let Watched::Ended { asked } = watched {
                freshness.lock().watch_ended(asked, now());
            }
        })
    }

    /// To note what is seen of the store.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Age> {
        lock(&self.0)
    }
}

/// What becomes of a watch that the API server has answered with success.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Watched {
    /// It has begun.
    Begun,
    /// It was asked for then and has ended as the server ends it. kube-runtime reads on only when all that it has read is in the
    /// store, so all is.
    Ended {
        /// When it was asked for.
        asked: Instant,
    },
}

/// `client` that notes what becomes of watches.
pub(crate) fn noting(client: Client, note: impl Fn(Watched) + Clone + Send + Sync + 'static) -> Client {
    over(client, move |client, request| {
        let note = note.clone();
        async move {
            let (asked, watch) = (now(), is_watch(&request));
            let answer = client.send(request).await?;
            let note = Some(note).filter(|_| watch && answer.status().is_success());
            if let Some(note) = &note {
                note(Watched::Begun);
            }
            Ok(answer.map(|body| noting_end(body, note.map(|note| move || note(Watched::Ended { asked })))))
        }
    })
}

/// The body of an answer. `ended` is called where it ends in good order.
fn noting_end(
    body: Body,
    ended: Option<impl FnOnce() + Send + 'static>,
) -> impl hyper::body::Body<Data = Bytes, Error = kube::Error> + Send + 'static {
    StreamBody::new(stream::unfold((body, ended), |(mut body, ended)| async move {
        let Some(frame) = body.frame().await else {
            if let Some(ended) = ended {
                ended();
            }
            return None;
        };
        let ended = ended.filter(|_| frame.is_ok());
        Some((frame, (body, ended)))
    }))
}

/// Whether a request asks for a watch.
pub(crate) fn is_watch(request: &Request<Body>) -> bool {
    let mut pairs = request.uri().query().unwrap_or_default().split('&');
    pairs.any(|pair| pair == "watch=true")
}

#[cfg(test)]
pub(crate) mod tests;
