//! A total deadline on every request that is not a watch.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use tokio::time::timeout;
use tower::service_fn;

use crate::freshness::is_watch;

/// The server did not answer a request in full within this time.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
pub(super) struct NoAnswer(Duration);

/// `client` with a deadline from asking until the last byte of the answer. Watches have none: they end by themselves, and the
/// connection ends one that is silent.
#[must_use]
pub(super) fn with_deadline(client: Client, limit: Duration) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            if is_watch(&request) {
                return client.send(request).await.map_err(tower::BoxError::from);
            }
            let whole = async {
                let (head, body) = client.send(request).await?.into_parts();
                let body = body.collect().await?.to_bytes();
                Ok::<_, kube::Error>(http::Response::from_parts(head, Body::from(body)))
            };
            match timeout(limit, whole).await {
                Ok(answer) => answer.map_err(tower::BoxError::from),
                Err(_) => Err(NoAnswer(limit).into()),
            }
        }
    });
    Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use http::Response;
    use http_body_util::StreamBody;
    use hyper::body::{Bytes, Frame};
    use rstest::rstest;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// A server that sends the head of its answer after `head`, and never the end of it if `drips`.
    fn server(head: Duration, drips: bool) -> Client {
        let service = service_fn(move |_: Request<Body>| async move {
            sleep(head).await;
            let frames = stream::unfold(0, move |frame| async move {
                if frame > 0 && !drips {
                    return None;
                }
                sleep(Duration::from_secs(1)).await;
                Some((
                    Ok::<_, Infallible>(Frame::data(Bytes::from_static(b" "))),
                    frame + 1,
                ))
            });
            Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
        });
        Client::new(service, "default")
    }

    #[rstest]
    #[case::answers(Duration::from_secs(2), false, "", true)]
    #[case::never_answers(Duration::MAX, false, "", false)]
    #[case::never_ends(Duration::ZERO, true, "", false)]
    #[tokio::test(start_paused = true)]
    async fn a_request_ends(
        #[case] head: Duration,
        #[case] drips: bool,
        #[case] query: &str,
        #[case] answered: bool,
    ) {
        let client = with_deadline(server(head, drips), Duration::from_secs(10));
        let began = Instant::now();
        let request = Request::get(format!("/api?{query}")).body(Body::empty()).unwrap();
        assert_eq!(client.send(request).await.is_ok(), answered);
        assert!(began.elapsed() <= Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_may_take_longer() {
        let client = with_deadline(server(Duration::from_secs(30), true), Duration::from_secs(10));
        let request = Request::get("/api?watch=true").body(Body::empty()).unwrap();
        assert!(client.send(request).await.is_ok());
    }
}
