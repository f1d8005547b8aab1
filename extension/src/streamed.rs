//! Lists that come as the beginning of a watch, one object at a time: no page of whole objects is held in memory, and the API server
//! reads its cache in place of etcd.

use bytes::Bytes;
use futures::stream;
use http::{Request, Uri};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use kube::{
    client::{Body, Client},
    runtime::watcher,
};
use sluice_core::walls::LIST_SECONDS;

use crate::{contract::code, layer::over};

/// What the line of a watch begins with that ends the list. kube-apiserver encodes the fields in this order, and sends no other
/// bookmark before. An object cannot imitate it: its own text comes later in its line.
const BOOKMARK: &[u8] = br#"{"type":"BOOKMARK""#;

/// The client that a watch is to be made with whose configuration asks for streaming lists.
///
/// kube-runtime asks for objects that are as old as the API server likes. This one asks for the newest, gives the list time of its own,
/// and ends the answer behind it: a watch that is short proves an age, and one that begins with a list does not say when it began.
pub(crate) fn streaming(client: Client) -> Client {
    over(client, |client, mut request| async move {
        let streams = streams_list(&request);
        if streams {
            *request.uri_mut() = newest(request.uri())?;
        }
        let answer = client.send(request).await?;
        let list = (streams && answer.status().is_success()).then(Line::default);
        Ok(answer.map(|body| until_bookmark(body, list)))
    })
}

/// Whether a request asks for a list that comes as the beginning of a watch.
pub(crate) fn streams_list(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|pair| pair == "sendInitialEvents=true")
}

/// Whether an API server cannot stream lists: it says that the request is invalid.
pub(crate) fn is_unknown(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(error) if code(error) == Some(422))
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
    list: Option<Line>,
) -> impl hyper::body::Body<Data = Bytes, Error = kube::Error> + Send + 'static {
    StreamBody::new(stream::unfold(Some((body, list)), |rest| async move {
        let (mut body, mut list) = rest?;
        let frame = match body.frame().await?.map(Frame::into_data) {
            Ok(Ok(mut chunk)) => {
                if let Some(end) = list.as_mut().and_then(|line| line.end_of_bookmark(&chunk)) {
                    chunk.truncate(end);
                    return Some((Ok(Frame::data(chunk)), None));
                }
                Ok(Frame::data(chunk))
            }
            Ok(Err(trailers)) => Ok(trailers),
            Err(error) => Err(error),
        };
        Some((frame, Some((body, list))))
    }))
}

/// How the line begins that has not ended yet.
#[derive(Default)]
struct Line(Vec<u8>);

impl Line {
    /// Where the bookmark ends, if it ends in `chunk`.
    fn end_of_bookmark(&mut self, chunk: &[u8]) -> Option<usize> {
        let mut from = 0;
        loop {
            let end = chunk[from..]
                .iter()
                .position(|byte| *byte == b'\n')
                .map(|end| from + end);
            let part = &chunk[from..end.unwrap_or(chunk.len())];
            self.0.extend(part.iter().take(BOOKMARK.len() - self.0.len()));
            from = end? + 1;
            let is_bookmark = self.0 == BOOKMARK;
            self.0.clear();
            if is_bookmark {
                return Some(from);
            }
        }
    }
}

#[cfg(test)]
mod tests;
