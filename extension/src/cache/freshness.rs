//! Age of a store as proven by its watches.
//!
//! kube-runtime does not report the beginning and end of a watch, so a client middleware notes them. [`crate::cache::watch`] notes the
//! rest.

use crate::kube_client::requests::is_watch;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use kube::client::{Body, Client};
use sluice_core::cache::{FollowedStore, WatchAnswer};

use crate::{
    clock::now,
    kube_client::{middleware::middleware, requests::streams_list},
    lock::lock,
};

/// Returns the client of a dated store: it notes requests for lists, and watches that end cleanly.
pub(crate) fn dating(client: Client, followed: &Arc<Mutex<FollowedStore>>) -> Client {
    let followed = Arc::clone(followed);
    noting(client, move |answer| lock(&followed).watch(answer, now()))
}

/// Returns a `client` that notes streamed lists, and the outcome of other watches with a success response.
pub(crate) fn noting(client: Client, note: impl Fn(WatchAnswer) + Clone + Send + Sync + 'static) -> Client {
    middleware(client, move |client, request| {
        let note = note.clone();
        async move {
            let (asked, lists) = (now(), streams_list(&request));
            if lists {
                note(WatchAnswer::Lists);
            }
            let watch = is_watch(&request) && !lists;
            let answer = client.send(request).await?;
            let note = Some(note).filter(|_| watch && answer.status().is_success());
            if let Some(note) = &note {
                note(WatchAnswer::Begun);
            }
            Ok(answer
                .map(|body| noting_end(body, note.map(|note| move || note(WatchAnswer::Ended { asked })))))
        }
    })
}

/// Returns the body of a response. Calls `ended` when it ends cleanly.
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

#[cfg(test)]
pub(crate) mod tests;
