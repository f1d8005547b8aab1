//! Counts of faulty releases and of Packages whose releases are not installed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use sluice_core::releases::{Evaluation, InstallReason};

use crate::lock::lock;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Counts of faulty releases, and of Packages whose releases are not installed, on the leader. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct ReleaseMetrics {
    invalid: Family<ReasonLabel, Gauge>,
    failed: Family<ReasonLabel, Gauge>,
    /// Faults by name of the Package.
    faults: Arc<Mutex<HashMap<String, InstallReason>>>,
}

impl ReleaseMetrics {
    /// Registers the counts.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "sluice_invalid_releases",
            "TanzuKubernetesReleases that cannot be used, by the reason of their Valid condition",
            self.invalid.clone(),
        );
        registry.register(
            "sluice_failed_tkr_packages",
            "Packages whose releases are not installed, by the reason of their event",
            self.failed.clone(),
        );
    }

    /// Updates the counts with an evaluation.
    pub(super) fn evaluated(&self, evaluation: &Evaluation) {
        self.invalid.clear();
        for (reason, count) in evaluation.faults() {
            let reason = reason.as_str();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.invalid.get_or_create(&ReasonLabel { reason }).set(count);
        }
    }

    /// Clears the faults of all Packages.
    pub(super) fn forget_packages(&self) {
        lock(&self.faults).clear();
        self.failed.clear();
    }

    /// Sets or clears the fault of a Package.
    pub(super) fn installed(&self, package: &str, fault: Option<InstallReason>) {
        let mut faults = lock(&self.faults);
        let before = match fault {
            Some(reason) => faults.insert(package.to_owned(), reason),
            None => faults.remove(package),
        };
        let of = |reason: InstallReason| {
            let reason = reason.as_str();
            self.failed.get_or_create(&ReasonLabel { reason }).clone()
        };
        if let Some(reason) = before {
            of(reason).dec();
        }
        if let Some(reason) = fault {
            of(reason).inc();
        }
    }
}
