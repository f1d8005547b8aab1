//! Metadata alone, of whatever is listed or watched: the API server leaves the content of objects out.

use http::{HeaderValue, header::ACCEPT};
use kube::Client;

use crate::kube_client::{middleware::middleware, requests::is_watch};

/// Asks for the metadata of each object of a watch. Without it an API server refuses with 406; it never sends the object in its place.
const OF_OBJECTS: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// The same of a list.
const OF_A_LIST: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");

/// `client` that is answered with metadata alone. kube's own way to ask for it decodes a list as a whole.
pub(super) fn metadata_only(client: Client) -> Client {
    middleware(client, |client, mut request| async move {
        let accept = if is_watch(&request) { OF_OBJECTS } else { OF_A_LIST };
        request.headers_mut().insert(ACCEPT, accept);
        Ok(client.send(request).await?)
    })
}
