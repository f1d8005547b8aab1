use std::convert::Infallible;

use http::{Request, Response};
use kube::client::Body;
use sluice_core::kubeconfig::Redacted;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

use super::*;
use crate::kube_client::bounded::{NoAnswer, TooLong};

/// Returns the response status that a client reports of a server that runs `serve` after the request. The paused clock advances once the
/// server says so.
async fn answer<F>(serve: impl FnOnce(TcpStream, oneshot::Sender<()>) -> F) -> kube::Result<u16>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = rcgen::generate_simple_self_signed(Vec::new()).unwrap();
    let client = connect(&WorkloadKubeconfig {
        server: format!("http://{}", listener.local_addr().unwrap()),
        certificate_authority: authority.cert.pem().into_bytes(),
        tls_server_name: None,
        credentials: Credentials::Token(Redacted::new("token".to_owned())),
    })
    .unwrap();
    let request = Request::get("/api").body(Body::empty()).unwrap();
    let answer = tokio::spawn(async move { client.send(request).await });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = [0];
    stream.read_exact(&mut head).await.unwrap();
    let (asked, was_asked) = oneshot::channel();
    let serving = tokio::spawn(serve(stream, asked));
    if was_asked.await.is_ok() {
        tokio::time::pause();
    }
    let answer = answer.await.unwrap();
    serving.abort();
    Ok(answer?.status().as_u16())
}

async fn refusal<F>(serve: impl FnOnce(TcpStream, oneshot::Sender<()>) -> F) -> kube::Error
where
    F: Future<Output = ()> + Send + 'static,
{
    answer(serve).await.unwrap_err()
}

fn is<E: std::error::Error + 'static>(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(error) if error.is::<E>())
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let refusal = refusal(|stream, asked| async move {
        asked.send(()).unwrap();
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    assert!(is::<NoAnswer>(&refusal), "{refusal:?}");
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let refusal = refusal(|mut stream, _| async move {
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let nothing = vec![b' '; 64 * 1024];
        while stream.write_all(&nothing).await.is_ok() {}
    })
    .await;
    assert!(is::<TooLong>(&refusal), "{refusal:?}");
}

#[tokio::test]
async fn a_list_of_empty_pages_without_end_is_given_up() {
    let page = tower::service_fn(|_: Request<Body>| async {
        let page = r#"{"metadata":{"resourceVersion":"1","continue":"more"},"items":[]}"#;
        Ok::<_, Infallible>(Response::new(Body::from(page.as_bytes().to_vec())))
    });
    let client = bounded(Client::new(page, "default"), BOUNDS);
    let mut refused = None;
    for page in 0..100 {
        let query = if page == 0 {
            "limit=500"
        } else {
            "limit=500&continue=more"
        };
        let request = Request::get(format!("/apps?{query}"))
            .body(Body::empty())
            .unwrap();
        if let Err(error) = client.send(request).await {
            refused = Some((page, error));
            break;
        }
    }
    let (pages, refusal) = refused.expect("a list that ends");
    assert!(is::<TooLong>(&refusal), "{refusal:?}");
    assert_eq!(pages, BOUNDS.list / BOUNDS.page);
}

/// A retry would find no server.
#[tokio::test]
async fn a_refusal_is_not_retried_inside_a_request() {
    let answer = answer(|mut stream, asked| async move {
        let answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        let _rest = stream.read_to_end(&mut Vec::new()).await;
        let _ended = asked.send(());
    })
    .await;
    assert!(matches!(answer, Ok(503)), "{answer:?}");
}
