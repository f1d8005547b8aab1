//! What each listener is given: where, with which certificate, with which limits.

use std::{net::SocketAddr, time::Duration};

use super::serving::Serving;
use crate::{
    flags::{AdmissionArgs, Args, WebhookArgs},
    server::{
        health::Health,
        serve::{self, CertificateFiles, Limits, Server, TlsConfig},
    },
};

/// The listener of the admission webhooks. It serves the certificate of hooks, whose health is checked there.
pub(super) fn reviews_at(args: &Args) -> serve::Config {
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
        // API servers are few. They send one review at a time over each connection, with HTTP/1.1.
        limits: Limits {
            connections: 128,
            streams: 16,
            send_buffer: 1024,
            ..Limits::default()
        },
    }
}

/// The listener of the status service, if there is to be one. It serves the certificate of hooks, too.
pub(super) fn status_at(args: &Args) -> Option<serve::Config> {
    Some(serve::Config {
        serves: "status",
        address: args.status_addr?,
        // gRPC is HTTP/2, and only there a connection that lasts can be asked to go.
        tls: Some(TlsConfig {
            http2_only: true,
            ..TlsConfig::new(certificate(&args.webhook))
        }),
        limits: Limits {
            connections: 128,
            // Watches last long, and begin again wherever they are cut.
            age: Duration::from_hours(1),
            // There may be thousands of streams that are not read. One message of each waits, however long it is.
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
