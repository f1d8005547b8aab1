//! Metrics of the status service.

use prometheus_client::{metrics::gauge::Gauge, registry::Registry};

/// Metrics of the status service.
#[derive(Debug, Clone, Default)]
pub struct StatusMetrics {
    pub(super) streams: Gauge,
}

impl StatusMetrics {
    /// Registers the metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "sluice_status_streams",
            "Open streams of the status service",
            self.streams.clone(),
        );
    }
}
