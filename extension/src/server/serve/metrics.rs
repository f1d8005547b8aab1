//! Metrics of listeners.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Reasons of closed connections.
const CLOSED: [&str; 4] = ["Drain", "Head", "Idle", "TooManyOfAddress"];

/// Reasons of failed TLS handshakes.
const FAILED_HANDSHAKE: [&str; 2] = ["Refused", "Timeout"];

/// Counters of one listener. Clones share the counters.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    connections: Gauge,
    accepted: Counter,
    closed: Family<ReasonLabel, Counter>,
    handshake_failures: Family<ReasonLabel, Counter>,
    pub(super) certificate_reads: Counter,
    pub(super) certificate_errors: Counter,
    certificate_end: Gauge<f64, AtomicU64>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

impl Metrics {
    /// Registers the metrics of the TLS listener in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        // Series exist from the start, so that alerts see their first increase.
        for reason in CLOSED {
            drop(self.closed.get_or_create(&ReasonLabel { reason }));
        }
        for reason in FAILED_HANDSHAKE {
            drop(self.handshake_failures.get_or_create(&ReasonLabel { reason }));
        }
        registry.register(
            "sluice_server_open_connections",
            "Open connections",
            self.connections.clone(),
        );
        registry.register(
            "sluice_server_accepted_connections",
            "Accepted connections",
            self.accepted.clone(),
        );
        registry.register(
            "sluice_server_closed_connections",
            "Connections that the server closed, by reason",
            self.closed.clone(),
        );
        registry.register(
            "sluice_server_tls_handshake_failures",
            "Failed TLS handshakes, by reason",
            self.handshake_failures.clone(),
        );
        // Same names as in other managers of Cluster API, so that their dashboards work.
        registry.register(
            "certwatcher_read_certificate",
            "Reads of the serving certificate",
            self.certificate_reads.clone(),
        );
        registry.register(
            "certwatcher_read_certificate_errors",
            "Failed reads of the serving certificate, after which the previous one stays in use",
            self.certificate_errors.clone(),
        );
        registry.register_with_unit(
            "sluice_certificate_expiration_timestamp",
            "End of the served certificate, as Unix time in seconds",
            Unit::Seconds,
            self.certificate_end.clone(),
        );
    }

    pub(super) fn connection_opened(&self) -> OpenConnection {
        self.accepted.inc();
        self.connections.inc();
        OpenConnection(self.connections.clone())
    }

    pub(super) fn connection_closed(&self, reason: &'static str) {
        self.closed.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub(super) fn handshake_failed(&self, reason: &'static str) {
        self.handshake_failures
            .get_or_create(&ReasonLabel { reason })
            .inc();
    }

    pub(super) fn serving_until(&self, end: Option<Timestamp>) {
        let seconds = end.map_or(Duration::ZERO, |end| {
            end.duration_since(Timestamp::UNIX_EPOCH)
                .try_into()
                .unwrap_or_default()
        });
        self.certificate_end.set(seconds.as_secs_f64());
    }
}

/// Counts an open connection until it is dropped.
#[derive(Debug)]
pub(super) struct OpenConnection(Gauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}
