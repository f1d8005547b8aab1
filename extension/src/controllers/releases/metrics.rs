//! What is wrong with how many releases.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use sluice_core::releases::Survey;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Counts releases that are at fault, on the replica that leads. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct ReleaseMetrics(Family<ReasonLabel, Gauge>);

impl ReleaseMetrics {
    /// Makes the count visible.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "sluice_invalid_releases",
            "TanzuKubernetesReleases that cannot be used, by the reason of their Valid condition",
            self.0.clone(),
        );
    }

    /// Takes in what is said of all releases.
    pub(super) fn surveyed(&self, survey: &Survey) {
        self.0.clear();
        for (reason, count) in survey.faults() {
            let reason = reason.as_str();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.0.get_or_create(&ReasonLabel { reason }).set(count);
        }
    }
}
