//! The kinds of requests to an API server.

use http::Request;
use kube::client::Body;

/// Returns whether a request starts a streaming list.
pub(crate) fn streams_list(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|pair| pair == "sendInitialEvents=true")
}

/// Returns whether a request starts a watch.
pub(crate) fn is_watch(request: &Request<Body>) -> bool {
    let mut pairs = request.uri().query().unwrap_or_default().split('&');
    pairs.any(|pair| pair == "watch=true")
}
