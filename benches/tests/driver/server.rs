//! A runtime extension with configurable responses.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::NamedTempFile;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

const HOLD: &str = r#"{"status":"Success","message":"wait","retryAfterSeconds":5}"#;

/// What it does with a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behaviour {
    Holds,
    Answers(&'static str),
    Code(u16),
    Slow(Duration),
    /// The tenth call is answered after so long, and so is all that comes meanwhile.
    StallsOnce(Duration),
    Closes,
    Hangs,
    HangsInDiscovery,
}

impl Behaviour {
    /// The same with every second call only.
    pub(crate) const fn every_other(self) -> (Self, bool) {
        (self, true)
    }
}

impl From<Behaviour> for (Behaviour, bool) {
    fn from(behaviour: Behaviour) -> Self {
        (behaviour, false)
    }
}

/// What it has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) before: u64,
    pub(crate) after: u64,
    /// Calls in flight at most.
    pub(crate) at_once: u64,
    pub(crate) content_type: bool,
}

/// A running server; it ends with this.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) ca: NamedTempFile,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    behaviour: Behaviour,
    every_other: bool,
    calls: AtomicU64,
    in_flight: AtomicU64,
    stalled: AtomicBool,
    seen: Mutex<Seen>,
}

impl Server {
    pub(crate) fn start(behaviour: impl Into<(Behaviour, bool)>) -> Self {
        let (behaviour, every_other) = behaviour.into();
        let state = Arc::new(State {
            behaviour,
            every_other,
            calls: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            stalled: AtomicBool::new(false),
            seen: Mutex::default(),
        });
        let (config, ca) = certificates();
        let (stop, stopped) = oneshot::channel();
        let (started, address) = mpsc::channel();
        let serving = Arc::clone(&state);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                started.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    () = accept(listener, TlsAcceptor::from(Arc::new(config)), serving) => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        Self {
            url: format!("https://{}", address.recv().unwrap()),
            ca,
            state,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        *self.state.seen.lock().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        tokio::spawn(serve(tcp, acceptor.clone(), Arc::clone(&state)));
    }
}

async fn serve(tcp: TcpStream, acceptor: TlsAcceptor, state: Arc<State>) {
    tcp.set_nodelay(true).unwrap();
    let Ok(tls) = acceptor.accept(tcp).await else {
        return;
    };
    let is_h2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let cut = Arc::new(Notify::new());
    let service = service_fn({
        let cut = Arc::clone(&cut);
        move |request| answer(request, Arc::clone(&state), Arc::clone(&cut))
    });
    let io = TokioIo::new(tls);
    let served = async {
        if is_h2 {
            let _ended = http2::Builder::new(TokioExecutor::new())
                .serve_connection(io, service)
                .await;
        } else {
            let _ended = http1::Builder::new().serve_connection(io, service).await;
        }
    };
    tokio::select! {
        () = served => {}
        () = cut.notified() => {}
    }
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<State>,
    cut: Arc<Notify>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let json = |text: &str| Ok(Response::new(Full::new(Bytes::copy_from_slice(text.as_bytes()))));
    let path = request.uri().path().to_owned();
    if path.ends_with("/discovery") && path.starts_with("/hooks") {
        if matches!(state.behaviour, Behaviour::HangsInDiscovery) {
            std::future::pending::<()>().await;
        }
        return json(
            r#"{"status":"Success","handlers":[
                {"name":"one","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"BeforeClusterUpgrade"}},
                {"name":"two","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"AfterClusterUpgrade"}}]}"#,
        );
    }
    {
        let in_flight = state.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        let mut seen = state.seen.lock().unwrap();
        seen.at_once = seen.at_once.max(in_flight);
        seen.content_type |= request.headers().contains_key(CONTENT_TYPE);
        match path.as_str() {
            "/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclusterupgrade/one" => seen.before += 1,
            "/hooks.runtime.cluster.x-k8s.io/v1alpha1/afterclusterupgrade/two" => seen.after += 1,
            _ => {}
        }
    }
    let is_known = path.starts_with("/hooks");
    let _body = request.into_body().collect().await;
    let number = state.calls.fetch_add(1, Ordering::Relaxed);
    let behaves = !state.every_other || number % 2 == 1;
    let outcome = match state.behaviour {
        _ if !is_known => Err(404),
        _ if !behaves => Ok(HOLD),
        Behaviour::Holds | Behaviour::HangsInDiscovery => Ok(HOLD),
        Behaviour::Answers(text) => Ok(text),
        Behaviour::Code(code) => Err(code),
        Behaviour::Slow(time) => {
            sleep(time).await;
            Ok(HOLD)
        }
        Behaviour::StallsOnce(time) => {
            if number == 10 {
                state.stalled.store(true, Ordering::Relaxed);
                sleep(time).await;
                state.stalled.store(false, Ordering::Relaxed);
            }
            while state.stalled.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(1)).await;
            }
            Ok(HOLD)
        }
        Behaviour::Closes => {
            cut.notify_one();
            std::future::pending::<()>().await;
            Ok(HOLD)
        }
        Behaviour::Hangs => {
            std::future::pending::<()>().await;
            Ok(HOLD)
        }
    };
    state.in_flight.fetch_sub(1, Ordering::Relaxed);
    match outcome {
        Ok(text) => json(text),
        Err(code) => {
            let mut answer = json("404 page not found\n")?;
            *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
            Ok(answer)
        }
    }
}

/// A server's settings, and the file of the authority that signed its certificate.
fn certificates() -> (ServerConfig, NamedTempFile) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &authority).unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], private)
            .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let ca = NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), authority.pem()).unwrap();
    (config, ca)
}
