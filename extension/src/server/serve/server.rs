//! Listener: binds a socket, accepts connections, and drains them at shutdown.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::serve::Listener;
use jiff::Timestamp;
use sluice_core::limits::{Share, Shares};
use sluice_hooks::{Peer, Repeats};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use super::certificate::{self, CertificateHealth, Identity};
use super::connection::{self, Shared};
use super::{Config, Error, Limits, Metrics, TlsConfig, reload};

/// Connections that wait to be accepted, as in the standard library.
const BACKLOG: u32 = 128;

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
    #[expect(
        clippy::unused_async,
        reason = "a socket belongs to the runtime that polls this"
    )]
    pub async fn bind(config: Config, metrics: Metrics) -> Result<Self, Error> {
        let Config {
            serves,
            address,
            flags,
            tls,
            limits,
        } = config;
        let tls = tls.map(|config| Tls::load(config, &metrics)).transpose()?;
        let refused = |reason| Error::Bind {
            address,
            flags,
            reason,
        };
        let listener = listen(address).map_err(refused)?;
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
    /// `connection: close`. Each connection closes itself after [`Limits::drain`] at the latest.
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
            http: connection::http(&limits),
            http2_only,
            metrics,
            refused: Repeats::default(),
            drain: shutdown,
            cut: AtomicUsize::new(0),
        });

        accept(listener, &shared, serving, &tasks).await;

        stop_reload.cancel();
        tasks.close();
        tasks.wait().await;
        let cut = shared.cut.load(Ordering::Relaxed);
        if cut > 0 {
            warn!(%address, serves, connections = cut, "Closed connections after the drain timeout");
        }
        info!(%address, serves, "Listener stopped");
        Drained { cut }
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

/// Binds a socket. Like in Go, all IPv6 addresses include those of IPv4, whatever the default of the host (`net.ipv6.bindv6only`).
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(address) => {
            let socket = TcpSocket::new_v6()?;
            if address.ip().is_unspecified() {
                SockRef::from(&socket).set_only_v6(false)?;
            }
            socket
        }
    };
    // A restarted process takes its port back at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections until the shutdown of the listener.
async fn accept(
    mut listener: TcpListener,
    shared: &Arc<Shared>,
    serving: Option<watch::Receiver<Identity>>,
    tasks: &TaskTracker,
) {
    let slots = Arc::new(Semaphore::new(shared.limits.connections));
    let connections = Shares::of(shared.limits.connections);
    loop {
        // Peers beyond the limit wait in the backlog of the socket.
        let next = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot, Listener::accept(&mut listener).await)
        };
        let (slot, (tcp, peer)) = tokio::select! {
            () = shared.drain.cancelled() => return,
            accepted = next => accepted,
        };
        let Some(share) = share_of(&connections, peer.ip()) else {
            shared.refuse(
                peer.ip().to_canonical(),
                "TooManyOfAddress",
                "it has its share of the connections",
            );
            shared.metrics.connection_closed("TooManyOfAddress");
            continue;
        };
        let shared = Arc::clone(shared);
        let serving = serving.clone();
        tasks.spawn(async move {
            let open = shared.metrics.connection_opened();
            connection::serve(&shared, tcp, serving, share.value()).await;
            drop((open, share, slot));
        });
    }
}

/// Takes one more connection of an address, with the memory share of its request bodies.
fn share_of(connections: &Shares<IpAddr, Peer>, address: IpAddr) -> Option<Share<IpAddr, Peer>> {
    let address = address.to_canonical();
    connections.take_with(&address, || Peer::at(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_same_over_both_versions_of_ip() {
        let connections = Shares::of(4);
        let take = |address: &str| share_of(&connections, address.parse().unwrap());
        let own = [take("192.0.2.1"), take("::ffff:192.0.2.1")];
        assert!(own.iter().all(Option::is_some));
        assert!(take("::ffff:192.0.2.1").is_none());
        assert!(take("2001:db8::1").is_some());
    }
}
