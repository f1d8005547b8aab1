//! Metrics of reviews. Labels have bounded sets of values and never name an object.

use std::time::Instant;

use http::StatusCode;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use sluice_core::admission::Verdict;

use super::Webhook;

/// Buckets from 100 µs, the time of a response from the cache, to the 5 s that the API server waits.
const SECONDS: [f64; 11] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.05, 0.25, 1.0, 2.0, 5.0,
];

/// Outcome of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Admitted.
    Admitted,
    /// Admitted with warnings.
    Warned,
    /// Refused, with every reason.
    Refused,
    /// Refused, because a right of the author is not known.
    Undecided,
    /// The body is no review.
    Malformed,
    /// The body is larger than any review.
    TooLarge,
    /// The body did not arrive in time.
    Late,
    /// Other reviews occupy all memory for bodies, or all lookups.
    Busy,
    /// The caches are not filled yet.
    Starting,
    /// A bug of Sluice.
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

    /// Returns the name in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "Admitted",
            Self::Warned => "Warned",
            Self::Refused => "Refused",
            Self::Undecided => "Undecided",
            Self::Malformed => "Malformed",
            Self::TooLarge => "TooLarge",
            Self::Late => "Late",
            Self::Busy => "Busy",
            Self::Starting => "Starting",
            Self::Failed => "Failed",
        }
    }

    /// Returns whether no API server sends such a request.
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    webhook: &'static str,
    code: u16,
}

/// The status codes of reviews.
const CODES: [StatusCode; 6] = [
    StatusCode::OK,
    StatusCode::BAD_REQUEST,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::INTERNAL_SERVER_ERROR,
    StatusCode::SERVICE_UNAVAILABLE,
];

/// Counts reviews. Clones share the counters.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    reviews: Family<Labels, Counter>,
    requests: Family<CodeLabels, Counter>,
    in_flight: Family<WebhookLabel, Gauge>,
    seconds: Family<WebhookLabel, Histogram, fn() -> Histogram>,
}

impl Default for AdmissionMetrics {
    fn default() -> Self {
        let metrics = Self {
            reviews: Family::default(),
            requests: Family::default(),
            in_flight: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        };
        // Series exist from the start, so that alerts see their first increase.
        for webhook in Webhook::ALL.map(Webhook::name) {
            drop(metrics.in_flight.get_or_create(&WebhookLabel { webhook }));
            drop(metrics.seconds.get_or_create(&WebhookLabel { webhook }));
            for code in CODES.map(|code| code.as_u16()) {
                drop(metrics.requests.get_or_create(&CodeLabels { webhook, code }));
            }
        }
        metrics
    }
}

impl AdmissionMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let Self {
            reviews,
            requests,
            in_flight,
            seconds,
        } = self;
        registry.register(
            "sluice_admission_reviews",
            "Reviews by webhook and outcome",
            reviews.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests",
            "Reviews by webhook and HTTP status code",
            requests.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests_in_flight",
            "Reviews that are being answered",
            in_flight.clone(),
        );
        registry.register(
            "controller_runtime_webhook_latency_seconds",
            "Time from the head of a review to its answer, in seconds",
            seconds.clone(),
        );
    }

    /// Counts a review as in flight until the returned guard is dropped.
    pub(super) fn begin(&self, webhook: &'static str) -> InFlight<'_> {
        let gauge = self.in_flight.get_or_create_owned(&WebhookLabel { webhook });
        gauge.inc();
        InFlight {
            metrics: self,
            webhook,
            gauge,
            began: Instant::now(),
        }
    }
}

/// Review in flight.
#[derive(Debug)]
pub(super) struct InFlight<'a> {
    metrics: &'a AdmissionMetrics,
    webhook: &'static str,
    gauge: Gauge,
    began: Instant,
}

impl InFlight<'_> {
    /// Counts the response.
    pub(super) fn answered(self, outcome: Outcome, code: StatusCode) {
        let (metrics, webhook, code) = (self.metrics, self.webhook, code.as_u16());
        let outcome = outcome.as_str();
        metrics.reviews.get_or_create(&Labels { webhook, outcome }).inc();
        metrics
            .requests
            .get_or_create(&CodeLabels { webhook, code })
            .inc();
        metrics
            .seconds
            .get_or_create(&WebhookLabel { webhook })
            .observe(self.began.elapsed().as_secs_f64());
    }
}

/// Also ends the review of a caller that disconnects.
impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}
