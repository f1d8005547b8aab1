//! Configuration of each listener: address, certificate and limits.

use std::net::SocketAddr;

use super::serving::Serving;
use crate::{
    flags::{AdmissionArgs, Args, WebhookArgs},
    server::{
        health::Health,
        serve::{self, CertificateFiles, Limits, Server, TlsConfig},
    },
};

/// Returns the listener of the admission webhooks. It serves the certificate of the hook server, whose health check covers both.
pub(super) fn admission_config(args: &Args) -> serve::Config {
    let AdmissionArgs {
        admission_port,
        admission_client_ca,
    } = &args.admission;
    let tls = TlsConfig {
        client_ca: admission_client_ca.clone(),
        ..TlsConfig::new(certificate(&args.webhook))
    };
    serve::Config {
        serves: "admission",
        address: SocketAddr::new(args.webhook.webhook_host, *admission_port),
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
pub(super) fn status_config(args: &Args) -> Option<serve::Config> {
    Some(serve::Config {
        serves: "status",
        address: args.status_addr?,
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
    serving: &Serving,
    health: &Health,
    metrics: serve::Metrics,
) -> anyhow::Result<Server> {
    let config = serve::Config {
        serves: "hooks",
        address: SocketAddr::new(args.webhook_host, args.webhook_port),
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
        tls: None,
        limits: Limits::default(),
    }
}
