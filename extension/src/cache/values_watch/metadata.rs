//! Metadata-only lists and watches: the API server leaves out the content of objects.

use http::{HeaderValue, header::ACCEPT};

use crate::kube_client::{
    middleware::{Transport, middleware},
    requests::is_watch,
};

/// Requests the metadata of each object of a watch. An API server without support refuses with 406; it never sends the full object instead.
const OF_OBJECTS: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// Requests the metadata of each object of a list.
const OF_A_LIST: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");

/// Returns a transport that requests metadata only. kube's own way decodes a list as a whole.
pub(super) fn metadata_only(inner: impl Into<Transport>) -> Transport {
    middleware(inner, |inner, mut request| async move {
        let accept = if is_watch(&request) { OF_OBJECTS } else { OF_A_LIST };
        request.headers_mut().insert(ACCEPT, accept);
        inner.send(request).await
    })
}
