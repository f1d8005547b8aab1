//! Metrics of hooks and reconciles. Labels have bounded sets of values and never name an object.

mod confirmations;
mod controllers;
mod upgrades;

use std::sync::{Arc, LazyLock};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use sluice_hooks::{Answer, Observer, Outcome};

pub use self::{
    confirmations::ConfirmationMetrics,
    controllers::{ActiveReconcile, ControllerMetrics, Controllers, ReconcileResult},
    upgrades::{HoldMetrics, UpgradeMetrics},
};

/// Buckets from 50 µs, the time of a response from the cache, to the 3 s that Cluster API waits.
const SECONDS: [f64; 12] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 1.0, 3.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HookLabels {
    hook: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HookLabel {
    hook: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Counters of hook calls. Clones share the counters.
#[derive(Clone, Debug)]
pub struct HookMetrics {
    requests: Family<HookLabels, Counter>,
    seconds: Family<HookLabel, Histogram, fn() -> Histogram>,
    held: Family<ReasonLabel, Counter>,
}

impl Default for HookMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            held: Family::default(),
        }
    }
}

impl HookMetrics {
    /// Registers the counters.
    pub fn register(&self, registry: &mut Registry) {
        let Self {
            requests,
            seconds,
            held,
        } = self;
        registry.register(
            "sluice_hook_requests",
            "Hook calls by hook and status",
            requests.clone(),
        );
        registry.register(
            "sluice_hook_request_duration_seconds",
            "Time from the head of a hook call to its answer, in seconds",
            seconds.clone(),
        );
        registry.register("sluice_hook_holds", "Held hook calls by reason", held.clone());
    }
}

impl Observer for HookMetrics {
    fn answered(&self, answer: &Answer) {
        let hook = answer.endpoint.as_str();
        self.requests
            .get_or_create(&HookLabels {
                hook,
                status: answer.outcome.as_str(),
            })
            .inc();
        self.seconds
            .get_or_create(&HookLabel { hook })
            .observe(answer.took.as_secs_f64());
        if let Outcome::Held(reason) = answer.outcome {
            let reason = reason.as_str();
            self.held.get_or_create(&ReasonLabel { reason }).inc();
        }
    }
}

/// Counter of the whole process, because a watch may panic anywhere.
static WATCH_PANICS: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Counts a watch that panicked and is restarted.
pub fn watch_panicked() {
    WATCH_PANICS.inc();
}

/// Counts reconciles, and the panics of watches. Clones share the counters.
#[derive(Clone, Debug, Default)]
pub struct ReconcileMetrics {
    cut_off: Counter,
    /// Metrics of controller-runtime.
    pub controllers: Arc<Controllers>,
    /// Metrics of upgrades.
    pub upgrades: UpgradeMetrics,
}

impl ReconcileMetrics {
    /// Registers the counters.
    pub fn register(&self, registry: &mut Registry) {
        self.upgrades.register(registry);
        self.controllers.register(registry);
        registry.register(
            "sluice_slow_reconciles_canceled",
            "Reconciles of a Cluster that were canceled at the limit for slow Clusters",
            self.cut_off.clone(),
        );
        registry.register(
            "sluice_watch_panics",
            "Watches that panicked and were restarted",
            WATCH_PANICS.clone(),
        );
    }

    /// Counts a canceled slow reconcile.
    pub fn cut_off(&self) {
        self.cut_off.inc();
    }
}
