//! Listener: binds a socket, accepts connections, and drains them at shutdown.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use jiff::Timestamp;
use sluice_hooks::Repeats;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use super::certificate::{self, CertificateHealth, Identity};
use super::connection::{self, Shared};
use super::shares::Shares;
use super::{Config, Error, Limits, Metrics, TlsConfig, reload};

/// Bound listener. Peers wait in its backlog until [`Server::run`].
#[derive(Debug)]
pub struct Server {
    serves: &'static str,
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
    metrics: Metrics,
    tls: Option<Tls>,
}

#[derive(Debug)]
struct Tls {
    config: Arc<TlsConfig>,
    serving: watch::Sender<Identity>,
}

/// Result of the drain of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were closed after the drain timeout.
    pub cut: usize,
}

impl Server {
    /// Reads the certificate, then binds the socket.
    pub async fn bind(config: Config, metrics: Metrics) -> Result<Self, Error> {
        let Config {
            serves,
            address,
            tls,
            limits,
        } = config;
        let tls = tls.map(|config| Tls::load(config, &metrics)).transpose()?;
        let refused = |reason| Error::Bind { address, reason };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self {
            serves,
            listener,
            address,
            limits,
            metrics,
            tls,
        })
    }

    /// Returns the bound address, with the actual port for port 0.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the validity check for readiness; `None` for plain HTTP.
    #[must_use]
    pub fn certificate(&self) -> Option<CertificateHealth> {
        self.tls
            .as_ref()
            .map(|tls| CertificateHealth(tls.serving.subscribe()))
    }

    /// Serves `router` until `shutdown`, then closes the socket and drains requests in flight: HTTP/2 peers get GOAWAY, HTTP/1.1 peers
    /// `connection: close`. Connections that remain after [`Limits::drain`] are closed.
    pub async fn run(self, router: Router, shutdown: CancellationToken) -> Drained {
        let Self {
            serves,
            listener,
            address,
            limits,
            metrics,
            tls,
        } = self;
        info!(%address, serves, tls = tls.is_some(), "Listening");
        let serving = tls.as_ref().map(|tls| tls.serving.subscribe());
        let http2_only = tls.as_ref().is_some_and(|tls| tls.config.http2_only);
        let stop_reload = CancellationToken::new();
        let tasks = TaskTracker::new();
        if let Some(Tls { config, serving }) = tls {
            tasks.spawn(reload::run(config, serving, metrics.clone(), stop_reload.clone()));
        }
        let shared = Arc::new(Shared {
            router,
            limits,
            http2_only,
            metrics,
            refused: Repeats::default(),
            drain: shutdown.clone(),
            abort: CancellationToken::new(),
        });

        accept(listener, &shared, serving, &tasks).await;

        stop_reload.cancel();
        tasks.close();
        let closed = if timeout(limits.drain, tasks.wait()).await.is_ok() {
            0
        } else {
            tasks.len()
        };
        if closed > 0 {
            warn!(%address, serves, connections = closed, "Closing connections after the drain timeout");
            shared.abort.cancel();
            tasks.wait().await;
        }
        info!(%address, serves, "Listener stopped");
        Drained { cut: closed }
    }
}

impl Tls {
    fn load(config: TlsConfig, metrics: &Metrics) -> Result<Self, Error> {
        metrics.certificate_reads.inc();
        let identity = certificate::load(&config).inspect_err(|_| {
            metrics.certificate_errors.inc();
        })?;
        metrics.serving_until(identity.not_after);
        if let Some(end) = identity.not_after.filter(|end| *end <= Timestamp::now()) {
            // Peers refuse it, but a running process reloads a renewed certificate.
            error!(not_after = %end, "Serving an expired certificate");
        }
        Ok(Self {
            config: Arc::new(config),
            serving: watch::Sender::new(identity),
        })
    }
}

async fn accept(
    listener: TcpListener,
    shared: &Arc<Shared>,
    serving: Option<watch::Receiver<Identity>>,
    tasks: &TaskTracker,
) {
    let slots = Arc::new(Semaphore::new(shared.limits.connections));
    let by_address = Shares::default();
    let mut number = 0;
    loop {
        let (slot, tcp, peer) = tokio::select! {
            () = shared.drain.cancelled() => return,
            accepted = next(&listener, &slots, shared) => accepted,
        };
        let Some(share) = by_address.take(peer, &shared.limits) else {
            shared.refuse(peer, "TooManyOfAddress", "it has its share of the connections");
            shared.metrics.connection_closed("TooManyOfAddress");
            continue;
        };
        number += 1;
        let shared = Arc::clone(shared);
        let serving = serving.clone();
        tasks.spawn(async move {
            let open = shared.metrics.connection_opened();
            connection::serve(shared, tcp, serving, share, number).await;
            drop((open, slot));
        });
    }
}

/// Accepts the next connection once a slot is free. Peers beyond the limit wait in the backlog of the socket.
async fn next(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    shared: &Shared,
) -> (Option<OwnedSemaphorePermit>, TcpStream, IpAddr) {
    const LONGEST_PAUSE: Duration = Duration::from_secs(1);
    let slot = Arc::clone(slots).acquire_owned().await.ok();
    let mut pause = Duration::from_millis(50);
    loop {
        match listener.accept().await {
            Ok((tcp, peer)) => return (slot, tcp, peer.ip()),
            // The peer disconnected before it was accepted.
            Err(error) if is_of_the_peer(&error) => {}
            // Usually no file descriptor is left; one becomes free when a connection ends.
            Err(error) => {
                shared.refuse(Ipv4Addr::UNSPECIFIED.into(), "AcceptFailed", error);
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}
