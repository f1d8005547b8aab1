//! Lists that come as the beginning of a watch, one object at a time: no page of whole objects is held in memory, and the API server
//! reads its cache in place of etcd.

use crate::kube_client::requests::streams_list;
use bytes::Bytes;
use futures::stream;
use http::Uri;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use kube::{
    client::{Body, Client},
    runtime::watcher::{self, Event, InitialListStrategy},
};
use sluice_core::cache::LIST_SECONDS;

use crate::kube_client::{middleware::middleware, responses::code};

/// What the line of a watch begins with that ends the list. kube-apiserver encodes the fields in this order, and sends no other
/// bookmark before. An object cannot imitate it: its own text comes later in its line.
const BOOKMARK: &[u8] = br#"{"type":"BOOKMARK","#;

/// The annotation in that line.
const END: &[u8] = b"\"k8s.io/initial-events-end\"";

/// What the line begins with that says what is wrong.
const ERROR: &[u8] = br#"{"type":"ERROR","#;

/// What the line of an object begins with that is gone.
const DELETED: &[u8] = br#"{"type":"DELETED","#;

/// The client that a watch is to be made with whose configuration asks for streaming lists.
///
/// kube-runtime asks for objects that are as old as the API server likes. This one asks for the newest, gives the list time of its own,
/// and ends the answer behind it: a watch that is short proves an age, and one that begins with a list does not say when it began. And kube-runtime
/// does not see an object that is deleted while the list is being sent, so this one has it deleted behind the list.
pub(crate) fn streaming(client: Client) -> Client {
    middleware(client, |client, mut request| async move {
        let streams = streams_list(&request);
        if streams {
            *request.uri_mut() = newest(request.uri())?;
        }
        let answer = client.send(request).await?;
        let list = (streams && answer.status().is_success()).then(Lines::default);
        Ok(answer.map(|body| until_bookmark(body, list)))
    })
}

/// How the lists of one watch come: streamed, if that is asked for. Where one cannot be, the next one comes in pages, whatever the reason:
/// that one says what the matter is, or fills the store. The one after it is streamed again.
pub(crate) struct Lists {
    wanted: InitialListStrategy,
    strategy: InitialListStrategy,
    listing: Listing,
}

/// How far a list is.
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

    /// A list is asked for, so.
    pub(crate) fn ask(&mut self, config: &watcher::Config) -> watcher::Config {
        self.listing = Listing::Asked;
        watcher::Config {
            initial_list_strategy: self.strategy.clone(),
            ..config.clone()
        }
    }

    /// Takes in `event`. Says whether kube-runtime begins a list again, as it does without a word where nothing has come for a while.
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

    /// Whether the API server says that the request for a stream is invalid, as one does that has none.
    pub(crate) fn cannot_be_streamed(&mut self, error: &watcher::Error) -> bool {
        let invalid = matches!(error, watcher::Error::WatchStartFailed(error) if code(error) == Some(422));
        invalid && self.in_pages()
    }

    /// Something failed. Says whether that was a list that was streamed: kube-runtime would go on behind an object that it cannot read, and
    /// take the list for complete.
    pub(crate) fn breaks_off(&mut self) -> bool {
        self.listing != Listing::Over && self.in_pages()
    }

    /// Says whether lists were streamed until now.
    fn in_pages(&mut self) -> bool {
        let streams = self.strategy == InitialListStrategy::StreamingList;
        self.strategy = InitialListStrategy::ListWatch;
        streams
    }
}

/// The same request for the newest objects, with time for all of them.
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

/// The body up to the end of `list`, or all of it if it is none.
fn until_bookmark(
    body: Body,
    list: Option<Lines>,
) -> impl hyper::body::Body<Data = Bytes, Error = kube::Error> + Send + 'static {
    StreamBody::new(stream::unfold(Some((body, list)), |rest| async move {
        let (mut body, mut list) = rest?;
        let Some(frame) = body.frame().await else {
            // kube-runtime would ask again at once, and say nothing.
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
    }))
}

/// The lines of a list.
#[derive(Default)]
struct Lines {
    /// How the line begins that has not ended yet.
    begun: Vec<u8>,
    /// All from the first one on that says that an object is gone.
    held_back: Vec<u8>,
}

impl Lines {
    /// The lines that end in `chunk`, without those that are held back until the list is over, and whether it is.
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
