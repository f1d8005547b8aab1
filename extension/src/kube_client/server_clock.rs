//! Clock of the management API server, from the `Date` header of its responses.

use std::sync::{Arc, Mutex};

use http::{HeaderMap, header::DATE};
use jiff::Timestamp;
use sluice_core::server_time::ServerTime;

use crate::{
    clock::now,
    kube_client::middleware::{Transport, middleware},
    lock::lock,
};

/// Time of the API server. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ServerClock(Arc<Mutex<Option<Last>>>);

/// Last header, which hundreds of responses per second may repeat.
#[derive(Debug)]
struct Last {
    header: Box<[u8]>,
    time: ServerTime,
}

impl ServerClock {
    /// Returns the server time; `None` before the first response with a date.
    #[must_use]
    pub fn now(&self) -> Option<Timestamp> {
        let last = lock(&self.0);
        last.as_ref().map(|last| last.time.at(now()))
    }

    /// Returns a transport that records the time of each response.
    pub(crate) fn noting(&self, inner: impl Into<Transport>) -> Transport {
        let clock = self.clone();
        middleware(inner, move |inner, request| {
            let clock = clock.clone();
            async move {
                let answer = inner.send(request).await?;
                clock.note(answer.headers());
                Ok(answer)
            }
        })
    }

    fn note(&self, headers: &HeaderMap) {
        let Some(date) = headers.get(DATE) else { return };
        let mut last = lock(&self.0);
        if last.as_ref().is_some_and(|last| *last.header == *date.as_bytes()) {
            return;
        }
        let time = date.to_str().ok().and_then(|date| ServerTime::parse(date, now()));
        if let Some(time) = time {
            *last = Some(Last {
                header: date.as_bytes().into(),
                time,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Request, Response};
    use kube::{Client, client::Body};
    use tower::service_fn;

    use super::*;

    /// Returns the time after responses with these headers, each three seconds after the one before.
    async fn after(dates: &'static [&'static str]) -> Option<String> {
        let mut left = dates.iter().copied();
        let server = service_fn(move |_: Request<Body>| {
            let date = left.next().unwrap_or_default();
            let answer = Response::builder()
                .header(DATE, date)
                .status(403)
                .body(Body::empty());
            async move { answer }
        });
        let clock = ServerClock::default();
        let client = clock.noting(Client::new(server, "default"));
        for _ in dates {
            let request = Request::get("/api").body(Body::empty()).unwrap();
            client.send(request).await.unwrap();
            tokio::time::advance(Duration::from_secs(3)).await;
        }
        clock.now().map(|now| now.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_that_of_the_last_answer_and_goes_on() {
        const FIRST: &str = "Thu, 26 Nov 2026 14:08:29 GMT";
        const LATER: &str = "Thu, 26 Nov 2026 15:00:00 GMT";
        assert_eq!(after(&[]).await, None);
        assert_eq!(after(&["soon"]).await, None);
        assert_eq!(after(&[FIRST]).await.as_deref(), Some("2026-11-26T14:08:32Z"));
        // The second response is of the same second, or cached by a proxy.
        assert_eq!(
            after(&[FIRST, FIRST]).await.as_deref(),
            Some("2026-11-26T14:08:35Z")
        );
        assert_eq!(
            after(&[FIRST, LATER]).await.as_deref(),
            Some("2026-11-26T15:00:03Z")
        );
        // It was set back.
        assert_eq!(
            after(&[LATER, FIRST]).await.as_deref(),
            Some("2026-11-26T14:08:32Z")
        );
        assert_eq!(
            after(&[FIRST, "soon"]).await.as_deref(),
            Some("2026-11-26T14:08:35Z")
        );
    }
}
