//! Limits of every request to an API server: time until the whole response has arrived, and size of the response.

use std::{
    collections::HashMap,
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, future::Either, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use sluice_core::limits::memory_of;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tower::BoxError;

use crate::{
    kube_client::{
        middleware::{ResponseBody, Transport, middleware},
        requests::is_watch,
    },
    lock::lock,
};

/// Minimum time between two starts of a watch, also when the server ends it at once.
const BETWEEN_WATCHES: Duration = Duration::from_millis(500);

/// Maximum size of an error response, in bytes. Its message is logged and shown.
const REFUSAL: usize = 64 * 1024;

/// Limits of a request to the management API server other than the list or watch of a store. The API server itself gives up after a minute.
pub(crate) const REQUEST: Bounds = Bounds {
    time: Duration::from_secs(30),
    silence: Duration::MAX,
    answer: usize::MAX,
    memory: usize::MAX,
    list: usize::MAX,
    page: 0,
    pace: usize::MAX,
};

/// Limits of a request.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Time from the request to the last byte of the response, or to the header of the response to a watch. A watch ends by itself.
    pub time: Duration,
    /// Time without data after which a watch ends. Other requests may share its connection, so the connection does not end a silent watch.
    pub silence: Duration,
    /// Bytes of a response, or of one event of a watch.
    pub answer: usize,
    /// Approximate memory of a decoded response or event, in bytes: `{}` takes three bytes in a list, and hundreds of times as much as a
    /// field of Rust. Responses to requests with [`DecodedInPart`] have no such limit.
    pub memory: usize,
    /// Bytes of all pages of a list, or of all events of a watch. Watches are short and start again.
    pub list: usize,
    /// Minimum number of those bytes that each page after the first counts: a page may contain only the token of the next page.
    pub page: usize,
    /// Bytes of events that a watch may deliver per second since its start. Sluice reads the rest later.
    pub pace: usize,
}

/// Extension of a request whose response is decoded in small part, within a memory limit of the reader. The managed fields of a Pod alone
/// count more than 64 KiB.
#[derive(Debug, Clone, Copy)]
pub struct DecodedInPart;

/// Extension of a request whose response may have at most this many bytes, if the limit of the client is higher.
#[derive(Debug, Clone, Copy)]
pub struct AtMost(pub usize);

/// The server did not send the whole response, or the next data of a watch, within this time.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
pub struct NoAnswer(Duration);

/// The response is larger than any legitimate one.
#[derive(Debug, thiserror::Error)]
#[error("an answer that takes more than {0} bytes")]
pub struct TooLong(usize);

/// Returns a transport that limits the rate at which each watch starts.
#[must_use]
pub fn paced(inner: impl Into<Transport>) -> Transport {
    let watches = Watches::default();
    middleware(inner, move |inner, request| {
        let watches = watches.clone();
        async move {
            if is_watch(&request) {
                sleep(watches.wait(request.uri().path())).await;
            }
            inner.send(request).await
        }
    })
}

/// Returns a transport with `bounds` on each request.
#[must_use]
pub fn bounded(inner: impl Into<Transport>, bounds: Bounds) -> Transport {
    let pages = Pages::default();
    middleware(paced(inner), move |inner, request| {
        let pages = pages.clone();
        async move {
            let page = Page::of(&request);
            let is_decoded_in_part = request.extensions().get::<DecodedInPart>().is_some();
            let at_most = request.extensions().get::<AtMost>().copied();
            let longest = at_most.map_or(bounds.answer, |AtMost(bytes)| bounds.answer.min(bytes));
            let answer = if is_watch(&request) {
                let head = timeout(bounds.time, inner.send(request)).await;
                let answer = head.map_err(|_| NoAnswer(bounds.time))??;
                if answer.status().is_success() {
                    return Ok(answer.map(|body| with_few_events(body, bounds)));
                }
                // An error response is read like any other.
                Either::Left(std::future::ready(Ok(answer)))
            } else {
                Either::Right(inner.send(request))
            };
            let whole = async {
                let (head, body) = answer.await?.into_parts();
                let limit = if head.status.is_success() {
                    longest
                } else {
                    longest.min(REFUSAL)
                };
                let body = Limited::new(body, limit).collect().await;
                let body = body.map_err(|error| too_long(error, limit))?.to_bytes();
                if !is_decoded_in_part && memory_of(&body) > bounds.memory {
                    return Err(TooLong(bounds.memory).into());
                }
                if let Some(page) = page
                    && pages.add(page, body.len(), bounds.page) > bounds.list
                {
                    return Err(TooLong(bounds.list).into());
                }
                let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
                Ok::<_, BoxError>(Response::from_parts(head, body))
            };
            match timeout(bounds.time, whole).await {
                Ok(answer) => answer,
                Err(_) => Err(NoAnswer(bounds.time).into()),
            }
        }
    })
}

fn too_long(error: BoxError, limit: usize) -> BoxError {
    if error.is::<http_body_util::LengthLimitError>() {
        TooLong(limit).into()
    } else {
        error
    }
}

/// Returns whether a response exceeded its size limit.
#[must_use]
pub fn is_too_long(error: &(dyn Error + 'static)) -> bool {
    let mut sources = std::iter::successors(Some(error), |error| (**error).source());
    sources.any(<dyn Error>::is::<TooLong>)
}

/// Returns the body of a watch, throttled to `bounds`. It ends at an event that is too long, or at one too many, or when it is silent.
fn with_few_events(body: ResponseBody, bounds: Bounds) -> ResponseBody {
    let (chunks, began) = (body.into_data_stream(), Instant::now());
    let events = stream::try_unfold(
        (chunks, Open::default(), 0),
        move |(mut chunks, mut open, all)| async move {
            let Ok(chunk) = timeout(bounds.silence, chunks.next()).await else {
                return Err(kube::Error::Service(NoAnswer(bounds.silence).into()));
            };
            let Some(chunk) = chunk.transpose()? else {
                return Ok(None);
            };
            open.add(&chunk);
            let all = all + chunk.len();
            for (bytes, limit) in [
                (open.bytes, bounds.answer),
                (open.memory, bounds.memory),
                (all, bounds.list),
            ] {
                if bytes > limit {
                    return Err(kube::Error::Service(TooLong(limit).into()));
                }
            }
            sleep_until(began + time_of(all, bounds.pace)).await;
            Ok(Some((Frame::data(chunk), (chunks, open, all))))
        },
    );
    StreamBody::new(events).boxed_unsync()
}

/// Returns the time that this many bytes take at a pace.
fn time_of(bytes: usize, pace: usize) -> Duration {
    let millis = bytes.saturating_mul(1000) / pace.max(1);
    Duration::from_millis(millis.try_into().unwrap_or(u64::MAX))
}

/// Bytes since the last end of a line.
#[derive(Default)]
struct Open {
    bytes: usize,
    memory: usize,
}

impl Open {
    fn add(&mut self, chunk: &Bytes) {
        let begins = chunk.iter().rposition(|byte| *byte == b'\n');
        if begins.is_some() {
            *self = Self::default();
        }
        let open = &chunk[begins.map_or(0, |end| end + 1)..];
        self.bytes += open.len();
        self.memory += memory_of(open);
    }
}

/// Page of a list that a request reads.
struct Page {
    path: String,
    first: bool,
}

impl Page {
    /// Returns `None` for a request that reads no list: only the few lists are tracked, not the unlimited number of object names.
    fn of(request: &Request<Body>) -> Option<Self> {
        let query = request.uri().query().unwrap_or_default();
        let asks = |field: &str| query.split('&').any(|pair| pair.starts_with(field));
        let first = !asks("continue=");
        (asks("limit=") || !first).then(|| Self {
            path: request.uri().path().to_owned(),
            first,
        })
    }
}

/// Time of the last start of each watch. kube-runtime restarts an ended watch at once.
#[derive(Clone, Default)]
struct Watches(Arc<Mutex<HashMap<String, Instant>>>);

impl Watches {
    /// Returns the delay before a watch may start now.
    fn wait(&self, path: &str) -> Duration {
        let mut opened = lock(&self.0);
        let now = Instant::now();
        let next = opened
            .get(path)
            .map_or(now, |last| now.max(*last + BETWEEN_WATCHES));
        opened.insert(path.to_owned(), next);
        next.duration_since(now)
    }
}

/// Bytes of the pages of each list in progress.
#[derive(Clone, Default)]
struct Pages(Arc<Mutex<HashMap<String, usize>>>);

impl Pages {
    /// Adds a page, which counts at least `least` bytes unless it is the first. Returns the total bytes of the list.
    fn add(&self, page: Page, bytes: usize, least: usize) -> usize {
        let mut lists = lock(&self.0);
        let total = lists.entry(page.path).or_default();
        *total = if page.first {
            bytes
        } else {
            total.saturating_add(bytes.max(least))
        };
        *total
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::ready};

    use kube::Client;
    use tower::service_fn;

    use super::*;
    use rstest::rstest;

    const BOUNDS: Bounds = Bounds {
        time: Duration::from_secs(10),
        silence: Duration::from_secs(45),
        answer: 1000,
        memory: 1000 * (1 + 640),
        list: 1500,
        page: 0,
        pace: usize::MAX,
    };

    /// Server that sends the response head after `head`, and never the end of the body if `drips`.
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
    #[case::never_answers_a_watch(Duration::MAX, false, "watch=true", false)]
    #[case::never_ends(Duration::ZERO, true, "", false)]
    #[tokio::test(start_paused = true)]
    async fn a_request_ends(
        #[case] head: Duration,
        #[case] drips: bool,
        #[case] query: &str,
        #[case] answered: bool,
    ) {
        let client = bounded(server(head, drips), BOUNDS);
        let began = Instant::now();
        let request = Request::get(format!("/api?{query}")).body(Body::empty()).unwrap();
        assert_eq!(client.send(request).await.is_ok(), answered);
        assert!(began.elapsed() <= Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_may_take_longer() {
        let client = bounded(server(Duration::from_secs(5), true), BOUNDS);
        let request = Request::get("/api?watch=true").body(Body::empty()).unwrap();
        let mut events = client.send(request).await.unwrap().into_body();
        for _ in 0..30 {
            assert!(events.frame().await.unwrap().is_ok(), "one per second");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_watch_ends() {
        let silent = service_fn(|_: Request<Body>| async {
            let frames = stream::pending::<Result<Frame<Bytes>, Infallible>>();
            Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
        });
        let watched = bounded(Client::new(silent, "default"), BOUNDS);
        let request = Request::get("/api?watch=true").body(Body::empty()).unwrap();
        let (mut events, began) = (watched.send(request).await.unwrap().into_body(), Instant::now());
        let error = events.frame().await.unwrap().unwrap_err();
        let kube::Error::Service(error) = error else {
            panic!("{error:?}");
        };
        assert!(error.is::<NoAnswer>(), "{error:?}");
        assert_eq!(began.elapsed(), BOUNDS.silence);
    }

    #[rstest]
    #[case::an_object("/api/v1/namespaces/a/secrets/b", None)]
    #[case::a_whole_list("/api/v1/secrets?labelSelector=a", None)]
    #[case::the_first_page("/api/v1/secrets?limit=500", Some(true))]
    #[case::another_page("/api/v1/secrets?continue=a", Some(false))]
    fn only_pages_of_lists_are_counted(#[case] uri: &str, #[case] first: Option<bool>) {
        let request = Request::get(uri).body(Body::empty()).unwrap();
        assert_eq!(Page::of(&request).map(|page| page.first), first);
    }

    /// Server that responds with `length` bytes, in lines of `line` bytes.
    fn long(length: usize, line: usize) -> Client {
        let service = service_fn(move |request: Request<Body>| async move {
            let refused = request
                .uri()
                .query()
                .is_some_and(|query| query.contains("refused"));
            let text: Vec<u8> = (1..=length)
                .map(|byte| if byte % line == 0 { b'\n' } else { b' ' })
                .collect();
            let chunks: Vec<_> = text
                .chunks(100)
                .map(|chunk| Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(chunk))))
                .collect();
            let answer = Response::builder().status(if refused { 500 } else { 200 });
            Ok::<_, Infallible>(answer.body(StreamBody::new(stream::iter(chunks))).unwrap())
        });
        Client::new(service, "default")
    }

    async fn reads(client: &Transport, query: &str) -> bool {
        let request = Request::get(format!("/api?{query}")).body(Body::empty()).unwrap();
        match client.send(request).await {
            Ok(answer) => answer.into_body().collect().await.is_ok(),
            Err(_) => false,
        }
    }

    #[rstest]
    #[case::an_answer("limit=500", 1000, 1000, true)]
    #[case::a_long_answer("limit=500", 1001, 1001, false)]
    #[case::many_events("watch=true", 1500, 900, true)]
    #[case::too_many_events("watch=true", 1501, 900, false)]
    #[case::a_long_event("watch=true", 1500, 1200, false)]
    #[case::an_event_without_end("watch=true", 1500, 6000, false)]
    #[case::a_long_refusal_of_a_watch("watch=true&refused", 5000, 900, false)]
    #[tokio::test]
    async fn an_answer_has_a_longest_length(
        #[case] query: &str,
        #[case] length: usize,
        #[case] line: usize,
        #[case] read: bool,
    ) {
        assert_eq!(reads(&bounded(long(length, line), BOUNDS), query).await, read);
    }

    /// Server that responds with this many empty items, as a list or as one event.
    fn empty_items(count: usize) -> Client {
        let service = service_fn(move |_: Request<Body>| async move {
            let chunks: Vec<_> = (0..count)
                .map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{},"))))
                .collect();
            Ok::<_, Infallible>(Response::new(StreamBody::new(stream::iter(chunks))))
        });
        Client::new(service, "default")
    }

    #[rstest]
    #[case::list("limit=500")]
    #[case::watch("watch=true")]
    #[tokio::test]
    async fn what_takes_more_memory_than_bytes_is_counted(#[case] query: &str) {
        let bounds = Bounds {
            memory: 10_000,
            ..BOUNDS
        };
        assert!(reads(&bounded(empty_items(14), bounds), query).await);
        assert!(!reads(&bounded(empty_items(15), bounds), query).await);
    }

    #[tokio::test]
    async fn memory_of_a_response_that_is_decoded_in_part_is_not_counted() {
        let bounds = Bounds {
            memory: 1000,
            ..BOUNDS
        };
        let client = bounded(empty_items(300), bounds);
        assert!(!reads(&client, "limit=500").await);
        let mut request = Request::get("/api?limit=500").body(Body::empty()).unwrap();
        request.extensions_mut().insert(DecodedInPart);
        assert!(client.send(request).await.is_ok());
    }

    #[rstest]
    #[case::success(200, true)]
    #[case::refusal(403, false)]
    #[tokio::test]
    async fn a_refusal_is_short(#[case] status: u16, #[case] read: bool) {
        let service = service_fn(move |_: Request<Body>| async move {
            let body = Full::new(Bytes::from(vec![b' '; REFUSAL + 1]));
            let answer = Response::builder().status(status);
            Ok::<_, Infallible>(answer.body(body).unwrap())
        });
        let bounds = Bounds {
            answer: usize::MAX,
            memory: usize::MAX,
            list: usize::MAX,
            ..BOUNDS
        };
        let client = bounded(Client::new(service, "default"), bounds);
        assert_eq!(reads(&client, "limit=500").await, read);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_at_once_is_not_opened_at_once() {
        for client in [bounded(long(10, 10), BOUNDS), paced(long(10, 10))] {
            let began = Instant::now();
            for _ in 0..10 {
                assert!(reads(&client, "watch=true").await);
            }
            assert_eq!(began.elapsed(), BETWEEN_WATCHES * 9);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_come_at_a_pace() {
        let client = bounded(long(1500, 100), Bounds { pace: 100, ..BOUNDS });
        let began = Instant::now();
        assert!(reads(&client, "watch=true").await);
        assert_eq!(began.elapsed(), Duration::from_secs(15));
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_is_known_by_its_error() {
        let client = bounded(long(1501, 100), BOUNDS).into_client();
        let request = Request::get("/api?watch=true").body(Vec::new()).unwrap();
        let events = client.request_events::<serde_json::Value>(request).await.unwrap();
        let errors: Vec<kube::Error> = events.filter_map(|event| ready(event.err())).collect().await;
        assert!(errors.iter().any(|error| is_too_long(error)), "{errors:?}");
    }

    #[tokio::test]
    async fn a_list_has_a_longest_length() {
        let client = bounded(long(700, 700), BOUNDS);
        for _ in 0..2 {
            assert!(reads(&client, "limit=500").await);
            assert!(reads(&client, "limit=500&continue=a").await);
            assert!(!reads(&client, "limit=500&continue=b").await, "three pages");
        }
    }
}
