//! What is counted about reviews. Labels are of bounded sets; no object is ever named.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use sluice_core::admission::Verdict;

/// From 100 µs, where an answer from memory lies, to the 5 s that the API server waits.
const SECONDS: [f64; 11] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.05, 0.25, 1.0, 2.0, 5.0,
];

/// How a review ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Admitted.
    Admitted,
    /// Admitted with warnings.
    Warned,
    /// Refused, with every reason.
    Refused,
    /// The body is no review.
    Malformed,
    /// The body is larger than any review.
    TooLarge,
    /// The body did not arrive in time.
    Late,
    /// Other bodies have all the memory.
    Busy,
    /// Memory is not filled yet.
    Starting,
    /// A bug.
    Failed,
}

impl Outcome {
    pub(super) fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict { faults, .. } if !faults.is_empty() => Self::Refused,
            Verdict { warnings, .. } if !warnings.is_empty() => Self::Warned,
            Verdict { .. } => Self::Admitted,
        }
    }

    /// As metrics and log spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "Admitted",
            Self::Warned => "Warned",
            Self::Refused => "Refused",
            Self::Malformed => "Malformed",
            Self::TooLarge => "TooLarge",
            Self::Late => "Late",
            Self::Busy => "Busy",
            Self::Starting => "Starting",
            Self::Failed => "Failed",
        }
    }

    /// Whether no API server sends such a request.
    pub(super) const fn is_of_the_caller(self) -> bool {
        matches!(self, Self::Malformed | Self::TooLarge | Self::Late | Self::Busy)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    webhook: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookLabel {
    webhook: &'static str,
}

/// Counts reviews. Clones share the counters.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    reviews: Family<Labels, Counter>,
    seconds: Family<WebhookLabel, Histogram, fn() -> Histogram>,
}

impl Default for AdmissionMetrics {
    fn default() -> Self {
        Self {
            reviews: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        }
    }
}

impl AdmissionMetrics {
    /// Makes the counters visible.
    pub fn register(&self, registry: &mut Registry) {
        let Self { reviews, seconds } = self;
        registry.register(
            "sluice_admission_reviews",
            "Reviews by webhook and outcome",
            reviews.clone(),
        );
        registry.register(
            "sluice_admission_review_duration_seconds",
            "Time from a review's head to its answer",
            seconds.clone(),
        );
    }

    pub(super) fn answered(&self, webhook: &'static str, outcome: Outcome, took: Duration) {
        let outcome = outcome.as_str();
        self.reviews.get_or_create(&Labels { webhook, outcome }).inc();
        self.seconds
            .get_or_create(&WebhookLabel { webhook })
            .observe(took.as_secs_f64());
    }
}
