//! Streaming lists: a list arrives as the beginning of a watch, one object at a time. No page of whole objects is in memory, and the API
//! server serves it from its cache instead of etcd.

use crate::kube_client::requests::streams_list;
use crate::kube_client::{
    middleware::{ResponseBody, Transport, middleware},
    responses::code,
};
use futures::stream;
use http::Uri;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use kube::runtime::watcher::{self, Event, InitialListStrategy};

/// Requested duration of a watch that starts with a list and ends after it, in seconds.
const LIST_SECONDS: u32 = 600;

/// Prefix of the watch line that ends the list. kube-apiserver encodes the fields in this order and sends no earlier bookmark. An object
/// cannot imitate it: its own text comes later in its line.
const BOOKMARK: &[u8] = br#"{"type":"BOOKMARK","#;

/// Annotation in that line.
const END: &[u8] = b"\"k8s.io/initial-events-end\"";

/// Prefix of an error line.
const ERROR: &[u8] = br#"{"type":"ERROR","#;

/// Prefix of the line of a deleted object.
const DELETED: &[u8] = br#"{"type":"DELETED","#;

/// Returns the transport for a watch whose configuration requests streaming lists.
///
/// kube-runtime accepts objects of any age. This transport requests the newest, gives the list time of its own, and ends the response behind
/// the list. kube-runtime also misses an object that is deleted while the list is sent, so this transport moves its deletion behind the list.
pub(crate) fn streaming(inner: impl Into<Transport>) -> Transport {
    middleware(inner, |inner, mut request| async move {
        let streams = streams_list(&request);
        if streams {
            *request.uri_mut() = newest(request.uri())?;
        }
        let answer = inner.send(request).await?;
        let list = (streams && answer.status().is_success()).then(Lines::default);
        Ok(answer.map(|body| until_bookmark(body, list)))
    })
}

/// List mode of one watch: streamed if requested. If a streamed list fails for any reason, the next list comes in pages: it reports the
/// cause or fills the store. The list after that is streamed again.
pub(crate) struct Lists {
    wanted: InitialListStrategy,
    strategy: InitialListStrategy,
    listing: Listing,
}

/// Progress of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listing {
    Asked,
    Begun,
    Over,
}

impl Lists {
    pub(crate) fn of(config: &watcher::Config) -> Self {
        Self {
            wanted: config.initial_list_strategy.clone(),
            strategy: config.initial_list_strategy.clone(),
            listing: Listing::Over,
        }
    }

    /// Returns the configuration for the next list.
    pub(crate) fn ask(&mut self, config: &watcher::Config) -> watcher::Config {
        self.listing = Listing::Asked;
        watcher::Config {
            initial_list_strategy: self.strategy.clone(),
            ..config.clone()
        }
    }

    /// Observes `event`. Returns whether kube-runtime starts a list again, as it does silently after a period without events.
    pub(crate) fn begins_again<K>(&mut self, event: &Event<K>) -> bool {
        match event {
            Event::Init if self.listing == Listing::Begun => return self.breaks_off(),
            Event::Init => self.listing = Listing::Begun,
            Event::InitDone => {
                self.listing = Listing::Over;
                self.strategy = self.wanted.clone();
            }
            Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => {}
        }
        false
    }

    /// Returns whether the API server rejects a streaming request as invalid, as one without support does.
    pub(crate) fn cannot_be_streamed(&mut self, error: &watcher::Error) -> bool {
        let invalid = matches!(error, watcher::Error::WatchStartFailed(error) if code(error) == Some(422));
        invalid && self.in_pages()
    }

    /// Observes a failure. Returns whether a streamed list was interrupted: kube-runtime would continue behind an unreadable object and
    /// treat the list as complete.
    pub(crate) fn breaks_off(&mut self) -> bool {
        self.listing != Listing::Over && self.in_pages()
    }

    /// Switches to pages. Returns whether lists were streamed until now.
    fn in_pages(&mut self) -> bool {
        let streams = self.strategy == InitialListStrategy::StreamingList;
        self.strategy = InitialListStrategy::ListWatch;
        streams
    }
}

/// Returns the same request for the newest objects, with enough time for all of them.
fn newest(uri: &Uri) -> Result<Uri, http::Error> {
    let query = uri.query().unwrap_or_default().split('&');
    let kept =
        query.filter(|pair| !pair.starts_with("resourceVersion=") && !pair.starts_with("timeoutSeconds="));
    let kept: Vec<_> = kept.collect();
    let mut parts = uri.clone().into_parts();
    let path = format!("{}?{}&timeoutSeconds={LIST_SECONDS}", uri.path(), kept.join("&"));
    parts.path_and_query = Some(path.parse()?);
    Ok(Uri::from_parts(parts)?)
}

/// Returns the body up to the end of `list`, or all of it without a list.
fn until_bookmark(body: ResponseBody, list: Option<Lines>) -> ResponseBody {
    let frames = stream::unfold(Some((body, list)), |rest| async move {
        let (mut body, mut list) = rest?;
        let Some(frame) = body.frame().await else {
            // kube-runtime would retry at once and report nothing.
            return list.map(|_| {
                (
                    Err(kube::Error::Service("the list ended before its end".into())),
                    None,
                )
            });
        };
        let (Some(lines), Ok(Some(chunk))) = (&mut list, frame.as_ref().map(Frame::data_ref)) else {
            return Some((frame, Some((body, list))));
        };
        let (read, is_over) = lines.read(chunk);
        let rest = (!is_over).then_some((body, list));
        Some((Ok(Frame::data(read.into())), rest))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Line parser of a list.
#[derive(Default)]
struct Lines {
    /// Beginning of the unfinished line.
    begun: Vec<u8>,
    /// All lines from the first deletion on.
    held_back: Vec<u8>,
}

impl Lines {
    /// Returns the lines that end in `chunk`, without those held back until the end of the list, and whether the list is over.
    fn read(&mut self, chunk: &[u8]) -> (Vec<u8>, bool) {
        let mut lines = Vec::with_capacity(self.begun.len() + chunk.len());
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(part);
            if !part.ends_with(b"\n") {
                break;
            }
            if self.begun.starts_with(BOOKMARK) && self.begun.windows(END.len()).any(|text| text == END) {
                lines.append(&mut self.begun);
                lines.append(&mut self.held_back);
                return (lines, true);
            }
            let deletes = !self.held_back.is_empty() || self.begun.starts_with(DELETED);
            let is_held_back = deletes && !self.begun.starts_with(ERROR);
            let lines = if is_held_back {
                &mut self.held_back
            } else {
                &mut lines
            };
            lines.append(&mut self.begun);
        }
        (lines, false)
    }
}

#[cfg(test)]
mod tests;
