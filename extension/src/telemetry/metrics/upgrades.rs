//! Metrics of upgrades. Labels have bounded sets of values and never name an object.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use sluice_core::{
    gate::index::Counting, gates::reconcile::GateCount, reasons::CheckReason, reconcile::cluster::Count,
};
use sluice_crds::lifecycle::OverriddenGate;

/// Buckets around one second, the usual retry of Cluster API, up to half an hour for a Cluster with rare hook calls.
const LAG_SECONDS: [f64; 12] = [
    0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HookLabel {
    hook: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GateLabel {
    gate: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

/// Reason of a check, of which there are few.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CheckLabel {
    reason: String,
}

impl CheckLabel {
    fn of(reason: CheckReason) -> Self {
        Self {
            reason: reason.as_str().to_owned(),
        }
    }
}

/// Gauges of closed gates, which each replica reports from its cache of ClusterBootstraps. Clones share the gauges.
#[derive(Clone, Debug, Default)]
pub struct HoldMetrics {
    held: Family<HookLabel, Gauge<f64, AtomicU64>>,
    past_deadline: Gauge,
    by_cause: Family<CauseLabel, Gauge>,
}

impl HoldMetrics {
    /// Registers the gauges.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "sluice_gate_longest_hold_seconds",
            "Longest current hold per hook, in seconds",
            self.held.clone(),
        );
        registry.register(
            "sluice_deadline_exceeded_clusters",
            "Clusters with a gate that is held for longer than spec.upgradePolicy.deadline",
            self.past_deadline.clone(),
        );
        registry.register(
            "sluice_held_clusters",
            "Clusters with a gate that is held beyond its deadline, or for ten minutes without one, by cause",
            self.by_cause.clone(),
        );
    }

    /// Sets the gauges from `counting`.
    pub fn show(&self, counting: &Counting, now: jiff::Timestamp) {
        for (hook, lasted) in counting.longest(now) {
            let label = HookLabel { hook: hook.as_str() };
            self.held.get_or_create(&label).set(lasted.as_secs_f64());
        }
        let past = i64::try_from(counting.past_deadline()).unwrap_or(i64::MAX);
        self.past_deadline.set(past);
        for (cause, clusters) in counting.by_cause() {
            let label = CauseLabel {
                cause: cause.as_str(),
            };
            let clusters = i64::try_from(clusters).unwrap_or(i64::MAX);
            self.by_cause.get_or_create(&label).set(clusters);
        }
    }
}

/// Counters of upgrades, which only the leader reconciles. Clones share the counters.
#[derive(Clone, Debug)]
pub struct UpgradeMetrics {
    lag: Histogram,
    ungated: Counter,
    overrides: Family<GateLabel, Counter>,
    audited: Family<CheckLabel, Counter>,
    expression_errors: Family<CheckLabel, Counter>,
    held_by_gates: Gauge,
}

impl Default for UpgradeMetrics {
    fn default() -> Self {
        Self {
            lag: Histogram::new(LAG_SECONDS),
            ungated: Counter::default(),
            overrides: Family::default(),
            audited: Family::default(),
            expression_errors: Family::default(),
            held_by_gates: Gauge::default(),
        }
    }
}

impl UpgradeMetrics {
    /// Registers the counters.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "sluice_gate_release_lag_seconds",
            "Time from the last proof to the control plane at the new version, in seconds",
            self.lag.clone(),
        );
        registry.register(
            "sluice_ungated_versions",
            "Versions that a control plane or workers took while their gate was closed",
            self.ungated.clone(),
        );
        // An alert on an increase needs the series before the first use.
        for gate in OverriddenGate::ALL.map(OverriddenGate::as_str) {
            drop(self.overrides.get_or_create_owned(&GateLabel { gate }));
        }
        registry.register(
            "sluice_upgrade_overrides",
            "Gates that an UpgradeOverride has opened, by gate",
            self.overrides.clone(),
        );
        registry.register(
            "sluice_audit_would_hold",
            "Versions that Cluster API wrote while an UpgradeGate in mode Audit was not proven, by the reason of its check",
            self.audited.clone(),
        );
        // An alert on an increase needs the series before the first error.
        for reason in [CheckReason::ExpressionFailed, CheckReason::ExpressionTooCostly] {
            drop(
                self.expression_errors
                    .get_or_create_owned(&CheckLabel::of(reason)),
            );
        }
        registry.register(
            "sluice_expression_errors",
            "Checks of UpgradeGates whose expression began to fail or to cost too much, by the reason of the check",
            self.expression_errors.clone(),
        );
        registry.register(
            "sluice_gate_held_clusters",
            "Clusters that at least one UpgradeGate holds; 0 on a replica that does not lead",
            self.held_by_gates.clone(),
        );
    }

    /// Sets the number of Clusters that UpgradeGates hold.
    pub fn held_by_gates(&self, clusters: usize) {
        self.held_by_gates
            .set(i64::try_from(clusters).unwrap_or(i64::MAX));
    }

    /// Adds the result of a reconcile of a gated Cluster.
    pub fn count_gated(&self, count: &GateCount) {
        match count {
            GateCount::Released(lag) => self.lag.observe(lag.as_secs_f64()),
            GateCount::AuditWouldHold(reason) => {
                let label = CheckLabel {
                    reason: reason.clone(),
                };
                self.audited.get_or_create(&label).inc();
            }
            GateCount::ExpressionError(reason) => {
                let label = CheckLabel::of(*reason);
                self.expression_errors.get_or_create(&label).inc();
            }
        }
    }

    /// Adds the result of a reconcile.
    pub fn count(&self, count: &Count) {
        match count {
            Count::Released(lag) => self.lag.observe(lag.as_secs_f64()),
            Count::Ungated(_) => {
                self.ungated.inc();
            }
            Count::Overridden(gate) => {
                let label = GateLabel { gate: gate.as_str() };
                self.overrides.get_or_create(&label).inc();
            }
        }
    }
}
