//! Requests of the harness whose connection broke are made once more. An API server closes connections that were idle for 90 s, and a
//! request may be on its way then.

use std::error::Error;
use std::future::{Ready, ready};
use std::io::{self, ErrorKind};
use std::mem::replace;

use http::{Method, Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::BoxError;
use tower::buffer::BufferLayer;
use tower::retry::{Policy, RetryLayer};

/// A client whose requests are made once more where that does no harm: a creation would find its own object, a deletion none.
pub(crate) fn client(config: Config) -> kube::Result<Client> {
    // A layer that repeats needs a service that can be cloned.
    let shared = BufferLayer::new(1024);
    let again = RetryLayer::new(OnceMore::default());
    Ok(ClientBuilder::try_from(config)?
        .with_layer(&shared)
        .with_layer(&again)
        .build())
}

/// One request.
#[derive(Debug, Clone, Default)]
struct OnceMore {
    made_twice: bool,
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for OnceMore {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Body>,
        outcome: &mut Result<Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        let error = outcome.as_ref().err()?;
        (broke(error.as_ref()) && !replace(&mut self.made_twice, true)).then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        if ![Method::GET, Method::PATCH].contains(request.method()) {
            return None;
        }
        let mut again = Request::new(request.body().try_clone()?);
        request.method().clone_into(again.method_mut());
        request.uri().clone_into(again.uri_mut());
        request.headers().clone_into(again.headers_mut());
        request.extensions().clone_into(again.extensions_mut());
        Some(again)
    }
}

/// Whether an established connection ended.
fn broke(error: &(dyn Error + 'static)) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(
        kind,
        Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof)
    ) || error.source().is_some_and(broke)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use kube::api::{Api, PostParams};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A server that breaks its first `breaks` connections after the request.
    async fn client_of(breaks: usize) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            for connection in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = [0; 4096];
                assert_ne!(stream.read(&mut head).await.unwrap(), 0);
                if connection < breaks {
                    reset(&stream);
                    continue;
                }
                let body = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}"#;
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        client(Config::new(address.parse().unwrap())).unwrap()
    }

    /// The peer does not learn that the connection ends well.
    fn reset(stream: &TcpStream) {
        stream.set_zero_linger().unwrap();
    }

    #[tokio::test]
    async fn idempotent_requests_are_retried() {
        let reads = async |breaks| Api::<Namespace>::all(client_of(breaks).await).get("a").await;
        reads(0).await.unwrap();
        reads(1).await.unwrap();
        reads(2).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_creation_is_not_made_twice() {
        let namespaces = Api::<Namespace>::all(client_of(1).await);
        let namespace = Namespace::default();
        let created = namespaces.create(&PostParams::default(), &namespace).await;
        created.unwrap_err();
    }
}
