//! Time of the last response of the management API server.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::time::Instant;

use crate::{
    kube_client::middleware::{ResponseBody, Transport, middleware},
    lock::lock,
};

/// Time at which the last successful response, or part of a watch, has arrived. Clones share it.
#[derive(Clone, Debug)]
pub struct LastResponse(Arc<Mutex<Instant>>);

impl Default for LastResponse {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl LastResponse {
    /// Returns a transport that notes every successful response.
    pub(crate) fn noting(&self, inner: impl Into<Transport>) -> Transport {
        let last = self.clone();
        middleware(inner, move |inner, request| {
            let last = last.clone();
            async move {
                let answer = inner.send(request).await?;
                // A proxy without an API server, or one that refuses the credentials, says nothing about its objects.
                let counts = answer.status().is_success();
                if counts {
                    last.note();
                }
                Ok(answer.map(|body| last.noting_body(body, counts)))
            }
        })
    }

    /// Returns the time since anything has arrived.
    #[must_use]
    pub fn silent_for(&self) -> Duration {
        lock(&self.0).elapsed()
    }

    fn noting_body(self, body: ResponseBody, counts: bool) -> ResponseBody {
        let chunks = body.into_data_stream();
        let noted = chunks.map(move |chunk| {
            if counts && chunk.is_ok() {
                self.note();
            }
            chunk.map(Frame::data)
        });
        StreamBody::new(noted).boxed_unsync()
    }

    fn note(&self) {
        *lock(&self.0) = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use kube::client::Body;
    use tokio::time::sleep;

    use super::*;
    use crate::kube_client::scripted_server::{Answer, ScriptedServer};

    #[tokio::test(start_paused = true)]
    async fn an_error_response_is_not_noted() {
        let server = ScriptedServer::new(|_| Answer::Refusal(503));
        let last = LastResponse::default();
        let client = last.noting(server.client());
        sleep(Duration::from_secs(10)).await;
        let answer = client.send(Request::new(Body::empty())).await.unwrap();
        assert!(answer.into_body().collect().await.is_ok());
        assert_eq!(last.silent_for(), Duration::from_secs(10));
    }

    /// A watch delivers a bookmark every minute.
    #[tokio::test(start_paused = true)]
    async fn each_part_of_a_watch_is_noted() {
        let server = ScriptedServer::new(|_| Answer::bookmarks(600));
        let last = LastResponse::default();
        let client = last.noting(server.client());
        sleep(Duration::from_secs(100)).await;
        assert_eq!(last.silent_for(), Duration::from_secs(100));
        let answer = client.send(Request::new(Body::empty())).await.unwrap();
        assert_eq!(last.silent_for(), Duration::ZERO);
        let mut parts = answer.into_body().into_data_stream();
        for _ in 0..3 {
            sleep(Duration::from_secs(10)).await;
            parts.next().await.unwrap().unwrap();
            assert_eq!(last.silent_for(), Duration::ZERO);
        }
        sleep(Duration::from_mins(2)).await;
        assert_eq!(last.silent_for(), Duration::from_mins(2), "no part is read");
    }
}
