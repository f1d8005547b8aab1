//! Connections with HTTP/2, and with HTTP/1.1 to servers that negotiate nothing else.

use std::{
    future::pending,
    io,
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use futures::{
    future::join_all,
    stream::{self, BoxStream, StreamExt as _},
};
use http::Version;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde_json::json;
use sluice_core::protocol::ParsedKubeconfig;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::*;
use crate::{
    kube_client::fence::Fence,
    queue::{
        dependents::Dependents,
        requeues::{ClusterRef, Requeues},
    },
    workload::Remotes,
};

/// What API servers negotiate.
const BOTH: [&str; 2] = ["h2", "http/1.1"];

/// Maximum time of a test to wait.
const SOON: Duration = Duration::from_secs(10);

type Frames = StreamBody<BoxStream<'static, Result<Frame<Bytes>, io::Error>>>;

/// API server whose lists are empty, and whose watches have no events. Clones share its connections.
#[derive(Clone, Default)]
struct Server {
    accepted: Arc<AtomicUsize>,
    open: watch::Sender<usize>,
    /// It reads nothing and sends nothing any more.
    stalled: watch::Sender<bool>,
}

impl Server {
    /// Starts the server, which negotiates one of these protocols. Returns its kubeconfig.
    async fn start(&self, protocols: &[&str]) -> WorkloadKubeconfig {
        let authority = Authority::new("one");
        let acceptor = authority.issue("127.0.0.1").negotiating(protocols);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let server = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                server.accepted.fetch_add(1, Relaxed);
                tokio::spawn(server.clone().serve(acceptor.clone(), stream));
            }
        });
        kubeconfig(&url, &authority.pem())
    }

    /// Starts the server and returns a client.
    async fn client(&self, protocols: &[&str]) -> Client {
        client(&self.start(protocols).await, &Proxies::default()).unwrap()
    }

    async fn serve(self, acceptor: TlsAcceptor, stream: TcpStream) {
        let Ok(stream) = acceptor.accept(stream).await else {
            return;
        };
        self.open.send_modify(|open| *open += 1);
        let builder = auto::Builder::new(TokioExecutor::new());
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service_fn(answer)));
        let mut stalled = self.stalled.subscribe();
        let stalls = async { assert!(stalled.wait_for(|stalled| *stalled).await.is_ok()) };
        tokio::select! {
            _ended = &mut connection => {}
            () = stalls => pending().await,
        }
        self.open.send_modify(|open| *open -= 1);
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Relaxed)
    }

    /// Waits until this many connections are open.
    async fn has_open(&self, count: usize) {
        let mut open = self.open.subscribe();
        let reached = timeout(SOON, open.wait_for(|open| *open == count)).await.is_ok();
        assert!(reached, "{} connections are open", *self.open.borrow());
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Frames>, Infallible> {
    let path = request.uri().path();
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch"));
    let frames = if path.starts_with("/endless") {
        stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(&[b' '; 16 * 1024])))).boxed()
    } else if path == "/reset" {
        stream::iter([Err(io::Error::other("the handler was aborted"))]).boxed()
    } else if path == "/half" {
        let half = stream::iter([Ok(Frame::data(Bytes::from_static(b"{")))]);
        half.chain(stream::pending()).boxed()
    } else if path == "/silent" {
        pending().await
    } else if is_watch {
        stream::pending().boxed()
    } else {
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": []});
        stream::iter([Ok(Frame::data(list.to_string().into()))]).boxed()
    };
    Ok(Response::new(StreamBody::new(frames)))
}

/// Sends a request.
async fn get(client: &Client, uri: &str) -> kube::Result<Response<Body>> {
    client.send(Request::get(uri).body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn requests_and_watches_share_a_connection() {
    let server = Server::default();
    let client = server.client(&BOTH).await;
    assert_eq!(get(&client, "/api").await.unwrap().version(), Version::HTTP_2);
    let requests = ["/installs?watch=true", "/apps?watch=true", "/api", "/apps"];
    let responses = join_all(requests.map(|uri| get(&client, uri))).await;
    for response in &responses {
        assert_eq!(response.as_ref().unwrap().version(), Version::HTTP_2);
    }
    assert_eq!(server.accepted(), 1);
}

/// Each of them may start a handshake. The first connection serves all.
#[tokio::test]
async fn first_requests_leave_one_connection() {
    let server = Server::default();
    let client = server.client(&BOTH).await;
    let responses = join_all(["/api", "/apps", "/installs"].map(|uri| get(&client, uri))).await;
    assert!(responses.iter().all(Result::is_ok), "{responses:?}");
    server.has_open(1).await;
    let accepted = server.accepted();
    assert!(get(&client, "/api").await.is_ok());
    assert_eq!(server.accepted(), accepted);
}

#[rstest]
#[case::negotiated(&["http/1.1"])]
#[case::without_negotiation(&[])]
#[tokio::test]
async fn other_servers_get_http_1_1(#[case] protocols: &[&str]) {
    let server = Server::default();
    let client = server.client(protocols).await;
    let watch = get(&client, "/apps?watch=true").await.unwrap();
    for _ in 0..2 {
        let response = get(&client, "/apps").await.unwrap();
        assert_eq!(response.version(), Version::HTTP_11);
    }
    assert!(server.accepted() > 1, "the watch has a connection of its own");
    drop(watch);
}

/// Its network may lose each packet.
#[tokio::test]
async fn a_stalled_server_ends_requests_and_watches() {
    let server = Server::default();
    let client = server.client(&BOTH).await;
    let mut events = get(&client, "/apps?watch=true").await.unwrap().into_body();
    server.stalled.send_replace(true);
    tokio::time::pause();
    let began = Instant::now();
    let refusal = get(&client, "/api").await.unwrap_err();
    assert!(is::<NoAnswer>(&refusal), "{refusal:?}");
    assert!(began.elapsed() < BOUNDS.time + Duration::from_secs(1));
    assert!(events.frame().await.unwrap().is_err());
    assert!(began.elapsed() < SILENCE, "{:?}", began.elapsed());
}

/// The server behind the connection may be gone, and a proxy may lead a new one to another server.
#[tokio::test]
async fn a_request_after_one_that_was_given_up_has_another_connection() {
    let server = Server::default();
    let client = server.client(&BOTH).await;
    let mut events = get(&client, "/apps?watch=true").await.unwrap().into_body();
    let late = timeout(Duration::from_millis(100), get(&client, "/silent")).await;
    assert!(late.is_err(), "it is answered");
    assert_eq!(server.accepted(), 1);
    assert!(get(&client, "/api").await.is_ok());
    assert!(get(&client, "/api").await.is_ok());
    assert_eq!(server.accepted(), 2);
    let event = timeout(Duration::from_millis(100), events.frame()).await;
    assert!(event.is_err(), "the watch goes on");
    drop(events);
    server.has_open(1).await;
}

/// A load balancer may lead another connection to a server that answers.
#[rstest]
#[case::reset("/reset")]
#[case::stalled("/half")]
#[case::endless("/endless")]
#[tokio::test]
async fn a_request_after_an_incomplete_response_has_another_connection(#[case] uri: &str) {
    let server = Server::default();
    let client = server.client(&BOTH).await;
    let request = Request::get(uri).body(Vec::new()).unwrap();
    let incomplete = timeout(Duration::from_millis(500), client.request_text(request)).await;
    assert!(!matches!(incomplete, Ok(Ok(_))));
    assert_eq!(server.accepted(), 1);
    assert!(get(&client, "/api").await.is_ok());
    assert!(get(&client, "/api").await.is_ok());
    assert_eq!(server.accepted(), 2);
}

/// Its address may lead to another server meanwhile. A watch keeps it in use.
#[tokio::test]
async fn an_old_connection_gets_no_request() {
    let server = Server::default();
    let client = server.client(&BOTH).await;
    let watch = get(&client, "/apps?watch=true").await.unwrap();
    let later = Duration::from_secs(20);
    for connections in [1, 1, 2, 2, 2] {
        tokio::time::pause();
        tokio::time::advance(later).await;
        tokio::time::resume();
        assert!(get(&client, "/api").await.is_ok());
        assert!(get(&client, "/api").await.is_ok());
        assert_eq!(server.accepted(), connections);
    }
    drop(watch);
    server.has_open(1).await;
}

/// The controller of gates may connect first.
#[tokio::test]
async fn clients_of_a_cluster_share_a_connection() {
    let server = Server::default();
    let kubeconfig = server.start(&BOTH).await;
    let (triggers, dependents) = (Requeues::default(), Dependents::default());
    let remotes = Remotes::new("tkg-system".to_owned(), triggers, dependents, Fence::open());
    let by = ParsedKubeconfig {
        digest: "digest".to_owned(),
        parsed: kubeconfig.clone(),
    };
    let first = remotes.client("uid", &by).unwrap();
    assert!(get(&first, "/api").await.is_ok());
    let cluster = ClusterRef::new("team-a", "one");
    let remote = remotes.open("uid", &cluster, &kubeconfig, "digest").unwrap();
    assert!(get(&remote.client, "/api").await.is_ok());
    assert!(get(&remotes.client("uid", &by).unwrap(), "/api").await.is_ok());
    assert_eq!(server.accepted(), 1);
    let another = remotes.client("another", &by).unwrap();
    assert!(get(&another, "/api").await.is_ok());
    assert_eq!(server.accepted(), 2);
    drop(remote);
    remotes.close("uid");
    let reopened = remotes.open("uid", &cluster, &kubeconfig, "digest").unwrap();
    assert!(get(&reopened.client, "/api").await.is_ok());
    assert!(server.accepted() > 2, "another server may answer");
}

/// Two watches of stores, and eight of checked objects.
#[tokio::test]
async fn watches_that_are_read_slowly_delay_no_request() {
    let server = Server::default();
    let client = server.client(&BOTH).await;
    let mut unread = Vec::new();
    for number in 0..10 {
        let uri = format!("/endless/{number}?watch=true");
        unread.push(get(&client, &uri).await.unwrap());
    }
    // Their windows fill up.
    sleep(Duration::from_millis(100)).await;
    let response = timeout(SOON, get(&client, "/api")).await;
    assert!(response.is_ok_and(|response| response.is_ok()));
    assert_eq!(server.accepted(), 1);
    drop(unread);
}

#[tokio::test]
async fn a_closed_connection_ends() {
    let server = Server::default();
    let kubeconfig = server.start(&BOTH).await;
    let (triggers, dependents) = (Requeues::default(), Dependents::default());
    let remotes = Remotes::new("tkg-system".to_owned(), triggers, dependents, Fence::open());
    let cluster = ClusterRef::new("team-a", "one");
    let remote = remotes.open("uid", &cluster, &kubeconfig, "digest").unwrap();
    let filled = async {
        while !remote.is_filled() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, filled).await.unwrap();
    server.has_open(1).await;
    drop(remote);
    remotes.close("uid");
    server.has_open(0).await;
}
