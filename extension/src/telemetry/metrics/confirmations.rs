//! Metrics of the reads that confirm releases.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use sluice_core::gate::confirmation::ConfirmationResult;

use super::SECONDS;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Metrics of releases that needed a read. Clones share them.
#[derive(Clone, Debug)]
pub struct ConfirmationMetrics {
    results: Family<ResultLabel, Counter>,
    seconds: Histogram,
}

impl Default for ConfirmationMetrics {
    fn default() -> Self {
        Self {
            results: Family::default(),
            seconds: Histogram::new(SECONDS),
        }
    }
}

impl ConfirmationMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        // Series exist from the start, so that alerts see their first increase.
        for result in ConfirmationResult::ALL {
            drop(self.of(result));
        }
        registry.register(
            "sluice_release_confirmations",
            "Releases by the cache that needed a read from the API server, by result: Released, Held by what was read, or not confirmed \
             because the read was Late, Failed, Invalid or Limited",
            self.results.clone(),
        );
        registry.register(
            "sluice_release_confirmation_duration_seconds",
            "Time of the reads that confirm a release, in seconds",
            self.seconds.clone(),
        );
    }

    /// Adds a confirmation.
    pub fn count(&self, result: ConfirmationResult, took: Duration) {
        self.of(result).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    fn of(&self, result: ConfirmationResult) -> Counter {
        let result = result.as_str();
        self.results.get_or_create_owned(&ResultLabel { result })
    }
}
