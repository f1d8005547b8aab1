//! What hooks count.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use sluice_hooks::{Answer, Endpoint, Hook, Observer, Outcome};

/// Counts of the hook server. Clones count together.
///
/// The labels are those of `capi_runtime_sdk_requests_total`, which counts the same calls at the caller; no cluster and
/// no text of a peer becomes one.
#[derive(Clone, Debug)]
pub struct HookMetrics {
    requests: Family<RequestLabels, Counter>,
    holds: Family<HoldLabels, Counter>,
    durations: Family<HookLabel, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    hook: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct HoldLabels {
    hook: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct HookLabel {
    hook: &'static str,
}

/// From what an answer takes to what a caller waits for.
fn durations() -> Histogram {
    Histogram::new([
        0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 2.0, 3.0,
    ])
}

impl Default for HookMetrics {
    /// Every hook is there with 0 from the start, so that a rate of change is right for the first call too.
    fn default() -> Self {
        let metrics = Self {
            requests: Family::default(),
            holds: Family::default(),
            durations: Family::new_with_constructor(durations),
        };
        for endpoint in Hook::ALL
            .map(Endpoint::Hook)
            .into_iter()
            .chain([Endpoint::Discovery])
        {
            let hook = endpoint.as_str();
            for outcome in [Outcome::Released, Outcome::Held(""), Outcome::Failed("")] {
                drop(metrics.requests.get_or_create(&RequestLabels {
                    hook,
                    status: outcome.as_str(),
                }));
            }
            drop(metrics.durations.get_or_create(&HookLabel { hook }));
        }
        let unknown = RequestLabels {
            hook: Endpoint::Unknown.as_str(),
            status: Outcome::NotFound.as_str(),
        };
        drop(metrics.requests.get_or_create(&unknown));
        metrics
    }
}

impl HookMetrics {
    /// Makes the counts visible in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let Self {
            requests,
            holds,
            durations,
        } = self;
        registry.register(
            "sluice_hook_requests",
            "Requests of the hook server",
            requests.clone(),
        );
        registry.register("sluice_hook_holds", "Hook calls that were held", holds.clone());
        registry.register_with_unit(
            "sluice_hook_request_duration",
            "From the head of a request to its answer",
            Unit::Seconds,
            durations.clone(),
        );
    }
}

impl Observer for HookMetrics {
    fn answered(&self, answer: &Answer) {
        let Answer {
            endpoint,
            outcome,
            took,
        } = *answer;
        let hook = endpoint.as_str();
        self.requests
            .get_or_create(&RequestLabels {
                hook,
                status: outcome.as_str(),
            })
            .inc();
        self.durations
            .get_or_create(&HookLabel { hook })
            .observe(took.as_secs_f64());
        if let Outcome::Held(reason) = outcome {
            self.holds.get_or_create(&HoldLabels { hook, reason }).inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_names_are_those_of_dashboards() {
        let metrics = HookMetrics::default();
        let took = Duration::from_micros(80);
        let hook = Endpoint::Hook(Hook::BeforeClusterUpgrade);
        metrics.answered(&Answer {
            endpoint: hook,
            outcome: Outcome::Held("PackagesNotReady"),
            took,
        });
        metrics.answered(&Answer {
            endpoint: Endpoint::Unknown,
            outcome: Outcome::NotFound,
            took,
        });

        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();

        for line in [
            r#"sluice_hook_requests_total{hook="BeforeClusterUpgrade",status="Held"} 1"#,
            r#"sluice_hook_requests_total{hook="BeforeClusterUpgrade",status="Released"} 0"#,
            r#"sluice_hook_requests_total{hook="Unknown",status="NotFound"} 1"#,
            r#"sluice_hook_holds_total{hook="BeforeClusterUpgrade",reason="PackagesNotReady"} 1"#,
            r#"sluice_hook_request_duration_seconds_bucket{le="0.0001",hook="BeforeClusterUpgrade"} 1"#,
            r#"sluice_hook_request_duration_seconds_count{hook="Discovery"} 0"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} not in\n{text}");
        }
    }
}
