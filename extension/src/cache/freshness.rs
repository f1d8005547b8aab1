//! What the watches of a store prove of its age.
//!
//! kube-runtime is silent about the beginning and the end of a watch, so a layer of the client notes them. [`crate::cache::watch`] notes the
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

/// The client that a dated store is to be watched with: it notes when a list is asked for, and watches that end in good order.
pub(crate) fn dating(client: Client, followed: &Arc<Mutex<FollowedStore>>) -> Client {
    let followed = Arc::clone(followed);
    noting(client, move |answer| lock(&followed).watch(answer, now()))
}

/// `client` that notes lists that come as watches, and what becomes of other watches that are answered with success.
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

#[cfg(test)]
pub(crate) mod tests;
