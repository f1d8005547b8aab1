//! The kinds of requests to an API server.

use http::Request;
use kube::client::Body;

/// Whether a request asks for a list that comes as the beginning of a watch.
pub(crate) fn streams_list(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|pair| pair == "sendInitialEvents=true")
}

/// Whether a request asks for a watch.
pub(crate) fn is_watch(request: &Request<Body>) -> bool {
    let mut pairs = request.uri().query().unwrap_or_default().split('&');
    pairs.any(|pair| pair == "watch=true")
}
