//! How much the service is used.

use prometheus_client::{metrics::gauge::Gauge, registry::Registry};

/// Metrics of the status service.
#[derive(Debug, Clone, Default)]
pub struct StatusMetrics {
    pub(super) streams: Gauge,
}

impl StatusMetrics {
    /// Adds them to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "sluice_status_streams",
            "Open streams of the status service",
            self.streams.clone(),
        );
    }
}
