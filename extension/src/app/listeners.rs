//! Configuration of each listener: address, certificate and limits.

use std::{
    cell::LazyCell,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use tokio::net::TcpSocket;
use tracing::warn;

use super::serving::Serving;
use crate::{
    flags::{Args, ListenAddress, WebhookArgs},
    server::{
        health::Health,
        serve::{self, CertificateFiles, Limits, Server, TlsConfig},
    },
};

/// Listen addresses of the process.
pub(super) struct Addresses {
    pub(super) hooks: SocketAddr,
    pub(super) admission: SocketAddr,
    pub(super) probes: SocketAddr,
    pub(super) status: Option<SocketAddr>,
}

impl Addresses {
    pub(super) fn of(args: &Args) -> Self {
        // One line in the log, only if a listener needs it.
        let all = LazyCell::new(all_addresses);
        let resolve = |address: ListenAddress| address.resolve(|| *all);
        Self {
            hooks: resolve(args.hook_address()),
            admission: resolve(args.admission_address()),
            probes: resolve(args.health_addr),
            status: args.status_addr.map(resolve),
        }
    }
}

/// Returns the address that stands for all addresses of the host. Listeners on `::` accept IPv4, too.
fn all_addresses() -> IpAddr {
    match ipv6() {
        Ok(()) => Ipv6Addr::UNSPECIFIED.into(),
        Err(error) => {
            warn!(%error, "Listening on IPv4 only, because the host has no IPv6");
            Ipv4Addr::UNSPECIFIED.into()
        }
    }
}

/// Tries an IPv6 socket on all addresses.
///
/// # Errors
/// The host has no IPv6 sockets, or no IPv6 address for them.
fn ipv6() -> io::Result<()> {
    let bound = TcpSocket::new_v6()?.bind((Ipv6Addr::UNSPECIFIED, 0).into());
    match bound {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Err(error),
        // The listeners report any other error.
        _ => Ok(()),
    }
}

/// Returns the listener of the admission webhooks. It serves the certificate of the hook server, whose health check covers both.
pub(super) fn admission_config(args: &Args, address: SocketAddr) -> serve::Config {
    let tls = TlsConfig {
        client_ca: args.admission.admission_client_ca.clone(),
        ..TlsConfig::new(certificate(&args.webhook))
    };
    serve::Config {
        serves: "admission",
        address,
        flags: "--webhook-host or --admission-port",
        tls: Some(tls),
        // A management cluster has few API servers. Over HTTP/1.1 each sends one review at a time per connection.
        limits: Limits {
            connections: 128,
            streams: 16,
            send_buffer: 1024,
            ..Limits::default()
        },
    }
}

/// Returns the listener of the status service, if enabled. It serves the certificate of the hook server, too.
pub(super) fn status_config(args: &Args, address: Option<SocketAddr>) -> Option<serve::Config> {
    Some(serve::Config {
        serves: "status",
        address: address?,
        flags: "--status-addr",
        // gRPC requires HTTP/2, the only version in which a server can ask a long-lived connection to close (GOAWAY).
        tls: Some(TlsConfig {
            http2_only: true,
            ..TlsConfig::new(certificate(&args.webhook))
        }),
        limits: Limits {
            connections: 128,
            // Thousands of streams may stay unread. One message of each waits in the server, whatever its size.
            send_buffer: 1024,
            ..Limits::default()
        },
    })
}

fn certificate(args: &WebhookArgs) -> CertificateFiles {
    CertificateFiles {
        dir: args.webhook_cert_dir.clone(),
        cert_name: args.webhook_cert_name.clone(),
        key_name: args.webhook_key_name.clone(),
    }
}

pub(super) async fn hooks(
    args: &WebhookArgs,
    address: SocketAddr,
    serving: &Serving,
    health: &Health,
    metrics: serve::Metrics,
) -> anyhow::Result<Server> {
    let config = serve::Config {
        serves: "hooks",
        address,
        flags: "--webhook-host or --webhook-port",
        tls: Some(TlsConfig::new(certificate(args))),
        limits: Limits::default(),
    };
    let server = serving.bind(config, metrics).await?;
    if let Some(certificate) = server.certificate() {
        health.check("certificate", move || certificate.check(jiff::Timestamp::now()));
    }
    Ok(server)
}

pub(super) fn plain(address: SocketAddr) -> serve::Config {
    serve::Config {
        serves: "probes",
        address,
        flags: "--health-addr",
        tls: None,
        limits: Limits::default(),
    }
}
