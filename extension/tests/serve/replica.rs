//! The binary as a process, with an API server that is none or an empty one.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sluice_proto::status::v1::status_service_client::StatusServiceClient;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::authority::{Authority, Mount};
use crate::peer::{Connection, Peer, soon, until};

const BODY: &str = include_str!("../../hooks/tests/hooks/requests/BeforeClusterUpgrade.json");
pub(crate) const PATH: &str =
    "/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclusterupgrade/before-cluster-upgrade";

/// What the process reads its objects from.
pub(crate) enum Api {
    /// Accepts connections and never responds.
    Silent,
    /// Has no objects.
    Empty,
    /// Responds with this.
    Of(Router),
}

/// A running process.
pub(crate) struct Replica {
    process: Process,
    pub(crate) started: Instant,
    hooks: SocketAddr,
    reviews: SocketAddr,
    probes: SocketAddr,
    /// Where it is served.
    status: Option<SocketAddr>,
    authority: String,
    requests: Requests,
    peer: Peer,
    lines: Lines,
    _files: (Mount, TempDir),
}

/// Resident memory, in KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Now.
    pub(crate) resident: u64,
    /// At most.
    pub(crate) peak: u64,
}

/// Request to the API server: its connection, by the port, and its path.
type Requests = Arc<Mutex<Vec<(u16, String)>>>;

/// Ends with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The log, read on demand.
struct Lines {
    stderr: Option<BufReader<ChildStderr>>,
    read: Vec<Value>,
}

impl Lines {
    /// Reads on until a line is wanted. At the end of the log, which is that of the process, there is none.
    fn find(&mut self, wanted: impl Fn(&Value) -> bool) -> Option<Value> {
        let stderr = self.stderr.as_mut()?;
        let mut line = String::new();
        while stderr.read_line(&mut line).unwrap() > 0 {
            let read: Value = serde_json::from_str(&line).unwrap_or_else(|_| json!(line));
            self.read.push(read.clone());
            if wanted(&read) {
                return Some(read);
            }
            line.clear();
        }
        None
    }
}

impl Replica {
    /// Starts a process that listens on the loopback address, and waits until it listens. Its log is not read any further.
    pub(crate) async fn start(api: Api, arguments: &[&str]) -> Self {
        let listening = ["--webhook-host", "127.0.0.1", "--health-addr", "127.0.0.1:0"];
        let spawn = |mut command: Command| command.spawn();
        Self::start_by(api, &[&listening[..], arguments].concat(), spawn).await
    }

    /// The same by `spawn`, with listen addresses in the arguments.
    pub(crate) async fn start_by(
        api: Api,
        arguments: &[&str],
        spawn: impl FnOnce(Command) -> io::Result<Child>,
    ) -> Self {
        let requests = Requests::default();
        let server = serve(api, &requests).await;
        let authority = Authority::new();
        let mount = Mount::new(&authority.sign());
        let files = tempfile::tempdir().unwrap();
        let kubeconfig = files.path().join("kubeconfig");
        std::fs::write(&kubeconfig, self::kubeconfig(server)).unwrap();
        let started = Instant::now();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command
            .args(["serve", "--webhook-port", "0", "--admission-port", "0"])
            .args(["--logging-format", "json"])
            .arg("--webhook-cert-dir")
            .arg(mount.path())
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(arguments)
            .env_clear()
            .stderr(Stdio::piped());
        let child = spawn(command).unwrap();
        let mut process = Process(child);
        let mut lines = Lines {
            stderr: process.0.stderr.take().map(BufReader::new),
            read: Vec::new(),
        };
        let (sender, addresses) = mpsc::channel();
        let listeners = 3 + usize::from(arguments.contains(&"--status-addr"));
        let reading = tokio::task::spawn_blocking(move || {
            for _ in 0..listeners {
                let line = lines.find(|line| line["message"] == "Listening");
                sender
                    .send(line.unwrap_or_else(|| panic!("{:?}", lines.read)))
                    .unwrap();
            }
            lines
        });
        let lines = soon("all listeners", reading).await.unwrap();
        let listening: Vec<Value> = addresses.iter().collect();
        let found = |serves: &str| -> Option<SocketAddr> {
            let line = listening.iter().find(|line| line["serves"] == serves)?;
            Some(line["address"].as_str().unwrap().parse().unwrap())
        };
        let of = |serves| found(serves).unwrap();
        Self {
            process,
            started,
            hooks: of("hooks"),
            reviews: of("admission"),
            probes: of("probes"),
            status: found("status"),
            authority: authority.pem(),
            requests,
            peer: Peer::trusting(&authority).offering(&["h2"]),
            lines,
            _files: (mount, files),
        }
    }

    /// The addresses of all listeners.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let always = [self.hooks, self.reviews, self.probes];
        always.into_iter().chain(self.status).collect()
    }

    /// The status and text of a probe.
    pub(crate) async fn probe(&self, path: &str) -> (u16, String) {
        let stream = soon("the probe port", TcpStream::connect(self.probes))
            .await
            .unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get(path).header("host", "localhost");
        let request = request.body(Full::<bytes::Bytes>::default()).unwrap();
        let answer = soon(path, sender.send_request(request)).await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&text).into_owned())
    }

    /// Repeats a probe until its response has `status`.
    pub(crate) async fn until(&self, path: &str, status: u16) -> String {
        let what = format!("{path} to be answered with {status}");
        until(&what, || self.probe(path), |answer| answer.0 == status)
            .await
            .1
    }

    pub(crate) async fn connect(&self) -> Connection {
        soon("the hook port", self.peer.connect(self.hooks))
            .await
            .unwrap()
    }

    /// A connection to the port of the admission webhooks.
    pub(crate) async fn connect_for_reviews(&self) -> Option<Connection> {
        soon("the admission port", self.peer.connect(self.reviews))
            .await
            .ok()
    }

    /// A connection to the status service that offers these protocols.
    pub(crate) async fn connect_to_status(&self, protocols: &[&str]) -> std::io::Result<Connection> {
        let peer = self.peer.clone().offering(protocols);
        soon("the status port", peer.connect(self.status.unwrap())).await
    }

    /// A client of the status service.
    pub(crate) async fn status_client(&self) -> StatusServiceClient<Channel> {
        let _installed_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&self.authority))
            .domain_name("localhost");
        let endpoint = Endpoint::from_shared(format!("https://{}", self.status.unwrap())).unwrap();
        let connecting = endpoint.tls_config(tls).unwrap().connect().await;
        StatusServiceClient::new(connecting.unwrap())
    }

    /// The ports of connections to the API server: those of requests to a path that ends so, and those of all others.
    pub(crate) fn connections(&self, path: &str) -> (BTreeSet<u16>, BTreeSet<u16>) {
        let requests = self.requests.lock().unwrap();
        let (those, others): (Vec<_>, Vec<_>) = requests.iter().partition(|(_, asked)| asked.ends_with(path));
        let ports = |requests: Vec<&(u16, String)>| requests.iter().map(|(port, _)| *port).collect();
        (ports(those), ports(others))
    }

    /// A TLS connection to the hook port, on which nothing was sent.
    pub(crate) async fn handshake(&self) -> TlsStream<TcpStream> {
        soon("the hook port", self.peer.handshake(self.hooks))
            .await
            .unwrap()
    }

    /// Sends bytes to the hook port that are no handshake, and waits for its end of the connection.
    pub(crate) async fn send_plain(&self, bytes: &[u8]) {
        let mut tcp = TcpStream::connect(self.hooks).await.unwrap();
        tcp.write_all(bytes).await.unwrap();
        let _ = soon("the end of a connection", tcp.read_to_end(&mut Vec::new())).await;
    }

    /// The status of a call with any path, method and body, on a connection of its own.
    pub(crate) async fn call(&self, request: http::request::Builder, body: &'static str) -> u16 {
        let request = request.body(Full::from(body)).unwrap();
        let answer = self.connect().await.send(request).await.unwrap();
        answer.status().as_u16()
    }

    /// Calls BeforeClusterUpgrade for the Cluster of this name, on a connection of its own.
    pub(crate) async fn ask(&self, cluster: &str) -> Value {
        ask(&mut self.connect().await, cluster).await
    }

    /// What its process takes, as Linux says.
    pub(crate) fn memory(&self) -> Memory {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).unwrap();
        let kibibytes = |field: &str| {
            let mut lines = status.lines().filter_map(|line| line.strip_prefix(field));
            let value = lines.next().and_then(|value| value.trim().strip_suffix(" kB"));
            value
                .unwrap_or_else(|| panic!("{field} in {status}"))
                .parse()
                .unwrap()
        };
        Memory {
            resident: kibibytes("VmRSS:"),
            peak: kibibytes("VmHWM:"),
        }
    }

    /// Has the peak counted from now on.
    pub(crate) fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.process.0.id()), "5").unwrap();
    }

    pub(crate) fn terminate(&self) {
        let process = i32::try_from(self.process.0.id()).unwrap();
        kill(Pid::from_raw(process), Signal::SIGTERM).unwrap();
    }

    /// Waits for the end of the process while nothing reads its log.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(40);
        loop {
            if let Some(status) = self.process.0.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the process does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Every line of the log of a process that has ended.
    pub(crate) fn log(&mut self) -> &[Value] {
        let end = self.lines.find(|_| false);
        assert_eq!(end, None);
        &self.lines.read
    }
}

/// Calls BeforeClusterUpgrade for the Cluster of this name.
pub(crate) async fn ask(connection: &mut Connection, cluster: &str) -> Value {
    let mut body: Value = serde_json::from_str(BODY).unwrap();
    body["cluster"]["metadata"]["name"] = json!(cluster);
    body["cluster"]["metadata"]["uid"] = json!(format!("uid of {cluster}"));
    let request = Request::post(format!("https://localhost{PATH}"))
        .header("host", "localhost")
        .body(Full::new(body.to_string().into()))
        .unwrap();
    let answer = soon("an answer", connection.send(request)).await.unwrap();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap()
}

fn kubeconfig(server: SocketAddr) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": format!("http://{server}")}}],
        "users": [{"name": "it", "user": {}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    })
    .to_string()
}

async fn serve(api: Api, requests: &Requests) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    match api {
        Api::Silent => {
            tokio::spawn(async move {
                let mut held = Vec::new();
                while let Ok((peer, _)) = listener.accept().await {
                    held.push(peer);
                }
            });
        }
        Api::Of(router) => {
            tokio::spawn(async move { axum::serve(listener, router).await });
        }
        Api::Empty => {
            let requests = Arc::clone(requests);
            let router = Router::new().fallback(
                |ConnectInfo(peer): ConnectInfo<SocketAddr>, uri: Uri| async move {
                    let asked = (peer.port(), uri.path().to_owned());
                    requests.lock().unwrap().push(asked);
                    empty(&uri)
                },
            );
            let service = router.into_make_service_with_connect_info::<SocketAddr>();
            tokio::spawn(async move { axum::serve(listener, service).await });
        }
    }
    address
}

/// Lists are empty and come in pages, watches bring nothing.
pub(crate) fn empty(uri: &Uri) -> Response {
    if uri
        .query()
        .is_some_and(|query| query.contains("sendInitialEvents=true"))
    {
        let status =
            json!({"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "message": ""});
        return (StatusCode::UNPROCESSABLE_ENTITY, status.to_string()).into_response();
    }
    if uri.query().is_some_and(|query| query.contains("watch=true")) {
        return Response::new(Body::from_stream(stream::pending::<
            Result<bytes::Bytes, Infallible>,
        >()));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": []});
    Response::new(Body::from(list.to_string()))
}
