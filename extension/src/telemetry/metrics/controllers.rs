//! Metrics of controllers, with the names, types and labels of controller-runtime.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Instant;

use crate::queue::metrics::{WorkQueueMetrics, WorkQueues};

/// The buckets of controller-runtime, up to the two minutes that a reconcile may take.
const SECONDS: [f64; 41] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0, 120.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    controller: &'static str,
    result: &'static str,
}

/// Result of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// The next reconcile follows a change.
    Success,
    /// The next reconcile follows after a time, if no change comes first.
    RequeueAfter,
    /// A write conflicted, so the reconcile is repeated.
    Requeue,
    /// The reconcile failed, timed out or panicked.
    Error,
}

impl ReconcileResult {
    const ALL: [Self; 4] = [Self::Success, Self::RequeueAfter, Self::Requeue, Self::Error];

    /// The value of label `result`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::RequeueAfter => "requeue_after",
            Self::Requeue => "requeue",
            Self::Error => "error",
        }
    }
}

#[derive(Debug)]
struct Families {
    total: Family<ResultLabels, Counter>,
    errors: Family<ControllerLabel, Counter>,
    timeouts: Family<ControllerLabel, Counter>,
    panics: Family<ControllerLabel, Counter>,
    seconds: Family<ControllerLabel, Histogram, fn() -> Histogram>,
    max_concurrent: Family<ControllerLabel, Gauge>,
    active: Family<ControllerLabel, Gauge>,
    queues: WorkQueues,
}

/// Metrics of all controllers.
#[derive(Debug)]
pub struct Controllers {
    families: Families,
    /// The controller of Clusters.
    pub cluster: ControllerMetrics,
    /// The controller of all configuration kinds.
    pub provider: ControllerMetrics,
    /// The controller of releases, OSImages and the Packages that bring releases.
    pub release: ControllerMetrics,
    /// The controller of ClusterUpgrades.
    pub cluster_upgrade: ControllerMetrics,
    /// The controller of the status of UpgradeGates.
    pub upgrade_gate: ControllerMetrics,
    /// The controller of the status of UpgradeOverrides.
    pub upgrade_override: ControllerMetrics,
}

impl Default for Controllers {
    fn default() -> Self {
        let families = Families {
            total: Family::default(),
            errors: Family::default(),
            timeouts: Family::default(),
            panics: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            max_concurrent: Family::default(),
            active: Family::default(),
            queues: WorkQueues::default(),
        };
        Self {
            cluster: ControllerMetrics::new("cluster", &families),
            provider: ControllerMetrics::new("provider", &families),
            release: ControllerMetrics::new("release", &families),
            cluster_upgrade: ControllerMetrics::new("clusterupgrade", &families),
            upgrade_gate: ControllerMetrics::new("upgradegate", &families),
            upgrade_override: ControllerMetrics::new("upgradeoverride", &families),
            families,
        }
    }
}

impl Controllers {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let Families {
            total,
            errors,
            timeouts,
            panics,
            seconds,
            max_concurrent,
            active,
            queues,
        } = &self.families;
        registry.register(
            "controller_runtime_reconcile",
            "Reconciles by controller and result",
            total.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Reconciles that failed, timed out or panicked",
            errors.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_timeouts",
            "Reconciles that were canceled after two minutes",
            timeouts.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_panics",
            "Panics of a controller",
            panics.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "Duration of a reconcile, in seconds",
            seconds.clone(),
        );
        registry.register(
            "controller_runtime_max_concurrent_reconciles",
            "Reconciles that may run at the same time; 0 on a replica that does not lead",
            max_concurrent.clone(),
        );
        registry.register(
            "controller_runtime_active_workers",
            "Reconciles that run now",
            active.clone(),
        );
        queues.register(registry);
    }
}

/// Metrics of one controller. Clones share them.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    name: &'static str,
    total: Family<ResultLabels, Counter>,
    errors: Counter,
    timeouts: Counter,
    panics: Counter,
    seconds: Histogram,
    max_concurrent: Gauge,
    active: Gauge,
    /// The work queues of the controller.
    pub queue: WorkQueueMetrics,
}

impl ControllerMetrics {
    /// All series exist from now on, so that alerts see their first increase.
    fn new(name: &'static str, families: &Families) -> Self {
        let label = ControllerLabel { controller: name };
        let metrics = Self {
            name,
            total: families.total.clone(),
            errors: families.errors.get_or_create_owned(&label),
            timeouts: families.timeouts.get_or_create_owned(&label),
            panics: families.panics.get_or_create_owned(&label),
            seconds: families.seconds.get_or_create_owned(&label),
            max_concurrent: families.max_concurrent.get_or_create_owned(&label),
            active: families.active.get_or_create_owned(&label),
            queue: families.queues.of(name),
        };
        for result in ReconcileResult::ALL {
            drop(metrics.total_of(result));
        }
        metrics
    }

    fn total_of(&self, result: ReconcileResult) -> Counter {
        self.total.get_or_create_owned(&ResultLabels {
            controller: self.name,
            result: result.as_str(),
        })
    }

    /// Sets the maximum number of concurrent reconciles.
    pub fn started(&self, max_concurrent: usize) {
        self.max_concurrent
            .set(i64::try_from(max_concurrent).unwrap_or(i64::MAX));
    }

    /// Counts a reconcile that was canceled after its timeout.
    pub fn timed_out(&self) {
        self.timeouts.inc();
    }

    /// Counts a panic of a reconcile or of the controller.
    pub fn panicked(&self) {
        self.panics.inc();
    }

    /// Starts a reconcile.
    #[must_use]
    pub fn begin(&self) -> ActiveReconcile<'_> {
        self.active.inc();
        ActiveReconcile {
            metrics: self,
            began: Instant::now(),
        }
    }
}

/// Running reconcile. One that is dropped before its end counts as active only.
#[derive(Debug)]
pub struct ActiveReconcile<'a> {
    metrics: &'a ControllerMetrics,
    began: Instant,
}

impl ActiveReconcile<'_> {
    /// Counts the result of the reconcile.
    pub fn end(self, result: ReconcileResult) {
        let Self { metrics, began } = &self;
        metrics.seconds.observe(began.elapsed().as_secs_f64());
        metrics.total_of(result).inc();
        if result == ReconcileResult::Error {
            metrics.errors.inc();
        }
    }
}

impl Drop for ActiveReconcile<'_> {
    fn drop(&mut self) {
        self.metrics.active.dec();
    }
}
