//! Peers that exhaust the memory for request bodies.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::{future, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use sluice::server::serve::{Limits, Metrics, Server, TlsConfig};
use sluice_core::gate::decision::Decision;
use sluice_core::gate::hook_call::{HookCall, OwnedHookCall};
use sluice_hooks::{Gate, NoPlan, PlanCall, router};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::authority::{Authority, Mount};
use crate::peer::{Peer, connect_from, loopback, quick, soon, tls};

const BODY: &str = include_str!("../../hooks/tests/hooks/requests/BeforeClusterUpgrade.json");
const PATH: &str = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclusterupgrade/before-cluster-upgrade";

/// Requests at once: with bodies of [`BEGUN`] more than the memory for those of one peer.
const AT_ONCE: usize = 200;

/// The default workers of Cluster API.
const WORKERS: usize = 50;

/// Bytes of a body that does not end.
const BEGUN: usize = 60 * 1024;

struct Releases;

impl Gate for Releases {
    fn decide(&self, _: &HookCall<'_>) -> Decision {
        Decision::Release
    }

    async fn confirm(&self, _: OwnedHookCall, _: IpAddr) -> Decision {
        Decision::Release
    }

    async fn plan(&self, call: PlanCall, _: IpAddr) -> Result<Vec<String>, NoPlan> {
        Ok(vec![call.to])
    }
}

/// A listener of hooks; plain without a certificate.
async fn serve(certificate: Option<TlsConfig>, limits: Limits) -> (SocketAddr, DropGuard) {
    let server = Server::bind(loopback(certificate, limits), Metrics::default())
        .await
        .unwrap();
    let address = server.local_addr();
    let stop = CancellationToken::new();
    tokio::spawn(server.run(router(Releases, ()), stop.clone()));
    (address, stop.drop_guard())
}

/// The usual request, made `bytes` long.
fn padded(bytes: usize) -> Bytes {
    let mut body = BODY.to_owned();
    body.push_str(&" ".repeat(bytes.saturating_sub(body.len())));
    body.into()
}

fn post(body: Bytes) -> Request<Full<Bytes>> {
    Request::post(format!("https://localhost{PATH}"))
        .header("host", "localhost")
        .body(Full::new(body))
        .unwrap()
}

/// The same, sent piece by piece as Go does it: bodies of one connection take turns.
fn in_pieces(bytes: usize) -> Request<impl Body<Data = Bytes, Error = Infallible> + Unpin> {
    let whole = padded(bytes);
    let length = whole.len();
    let pieces = stream::unfold(whole, |mut rest| async move {
        task::yield_now().await;
        let piece = rest.split_to(rest.len().min(16 * 1024));
        (!piece.is_empty()).then(|| (Ok(Frame::data(piece)), rest))
    });
    Request::post(format!("https://localhost{PATH}"))
        .header("content-length", length)
        .body(StreamBody::new(Box::pin(pieces)))
        .unwrap()
}

async fn json(answer: Response<Incoming>) -> Value {
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap()
}

/// Begins bodies and does not end them, on many connections from an address of its own, again and again. Counts the answers, which
/// come when the listener has given up a body.
async fn take_everything(listener: SocketAddr, answered: Arc<AtomicUsize>) {
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        BEGUN + 1
    );
    let begun = Bytes::from([head.into_bytes(), vec![b' '; BEGUN]].concat());
    future::join_all((0..AT_ONCE).map(|_| async {
        loop {
            let mut tcp = connect_from(2, listener).await;
            // What follows of a body that finds no memory is read, for as long as a body may take.
            if tcp.write_all(&begun).await.is_ok() && tcp.read(&mut [0; 64]).await.is_ok() {
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_peer_does_not_take_the_memory_of_all_others() {
    let (listener, _stop) = serve(None, quick()).await;
    let answered = Arc::<AtomicUsize>::default();
    let attack = tokio::spawn(take_everything(listener, Arc::clone(&answered)));
    let tcp = soon("a connection", TcpStream::connect(listener)).await.unwrap();
    let (mut good, connection) = http1::handshake(TokioIo::new(tcp)).await.unwrap();
    tokio::spawn(connection);

    // None of the bodies ends, so that each answer comes after two seconds.
    let mut asked = 0;
    soon("the attack to have lasted", async {
        while answered.load(Ordering::Relaxed) < 2 * AT_ONCE {
            for size in [BODY.len(), 100 * 1024] {
                good.ready().await.unwrap();
                let answer = json(good.send_request(post(padded(size))).await.unwrap()).await;
                assert_eq!(answer["retryAfterSeconds"], 0, "request {asked}: {answer}");
                asked += 1;
            }
        }
    })
    .await;
    attack.abort();
}

/// A connection of HTTP/2 to a listener.
async fn h2<B>(authority: &Authority, listener: SocketAddr) -> http2::SendRequest<B>
where
    B: Body<Data = Bytes, Error = Infallible> + Unpin + Send + 'static,
{
    let stream = Peer::trusting(authority)
        .offering(&["h2"])
        .handshake(listener)
        .await;
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream.unwrap()));
    let (connection, task) = handshake.await.unwrap();
    tokio::spawn(task);
    connection
}

#[tokio::test]
async fn what_cluster_api_sends_at_once_is_all_answered() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let (listener, _stop) = serve(Some(tls(&mount)), quick()).await;
    let connection = h2(&authority, listener).await;
    for size in [15 * 1024, 100 * 1024] {
        let answers = (0..WORKERS).map(|_| {
            let mut connection = connection.clone();
            async move { json(connection.send_request(in_pieces(size)).await.unwrap()).await }
        });
        for answer in soon("the answers", future::join_all(answers)).await {
            assert_eq!(answer["retryAfterSeconds"], 0, "{size} bytes: {answer}");
        }
    }
}

/// Load comes from one address, on more connections than Cluster API has, with as many calls on each from the first moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_from_one_address_is_answered_on_each_of_its_connections() {
    const CONNECTIONS: usize = 40;
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let (listener, _stop) = serve(Some(tls(&mount)), Limits::default()).await;
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = h2(&authority, listener).await;
        for _ in 0..WORKERS {
            let mut connection = connection.clone();
            streams.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let answer = connection.send_request(post(padded(15 * 1024))).await;
                    json(answer.unwrap()).await;
                }
            }));
        }
    }
    for stream in soon("the answers", future::join_all(streams)).await {
        stream.unwrap();
    }
}
