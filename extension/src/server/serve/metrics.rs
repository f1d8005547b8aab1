//! What listeners and hooks count.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Counts of one listener. Clones count together.
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
    /// Makes the counts of the TLS listener visible in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let Self {
            connections,
            accepted,
            closed,
            handshake_failures,
            certificate_reads,
            certificate_errors,
            certificate_end,
        } = self;
        registry.register(
            "sluice_server_connections",
            "Open connections",
            connections.clone(),
        );
        registry.register(
            "sluice_server_connections_accepted",
            "Accepted connections",
            accepted.clone(),
        );
        registry.register(
            "sluice_server_connections_overstayed",
            "Connections closed because the peer was over a limit",
            closed.clone(),
        );
        registry.register(
            "sluice_server_tls_handshake_failures",
            "TLS handshakes that did not succeed",
            handshake_failures.clone(),
        );
        // Named as other managers of Cluster API name them, so that their dashboards work.
        registry.register(
            "certwatcher_read_certificate",
            "Reads of the serving certificate",
            certificate_reads.clone(),
        );
        registry.register(
            "certwatcher_read_certificate_errors",
            "Reads of the serving certificate that kept the served one",
            certificate_errors.clone(),
        );
        registry.register_with_unit(
            "sluice_serving_certificate_not_after_timestamp",
            "End of the served certificate, Unix time",
            Unit::Seconds,
            certificate_end.clone(),
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

/// Counts one connection while it lives.
#[derive(Debug)]
pub(super) struct OpenConnection(Gauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}
