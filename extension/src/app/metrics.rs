//! Registry of all metrics.

use prometheus_client::registry::Registry;
use sluice_status::StatusMetrics;

use crate::{
    admission::AdmissionMetrics,
    cache::{rollbacks::Rollbacks, undecodable},
    controllers::{providers, registration::RegistrationMetrics, releases},
    hooks::Index,
    kube_client::metrics::RestClientMetrics,
    leader::metrics::LeaderMetrics,
    server::serve,
    telemetry::{
        log::Log,
        metrics::{HookMetrics, ReconcileMetrics},
        process,
    },
};

/// All metrics of the process. `docs/reference/metrics.md` lists them.
pub(super) struct Metrics {
    pub(super) server: serve::Metrics,
    pub(super) hooks: HookMetrics,
    pub(super) configurations: providers::Configurations,
    pub(super) reconciles: ReconcileMetrics,
    pub(super) releases: releases::ReleaseMetrics,
    pub(super) admission: AdmissionMetrics,
    pub(super) status: StatusMetrics,
    pub(super) registration: RegistrationMetrics,
    pub(super) leader: LeaderMetrics,
    pub(super) rest_client: RestClientMetrics,
}

impl Metrics {
    /// Returns all metrics, registered in `registry`.
    pub(super) fn registered(
        log: &Log,
        index: &Index,
        rollbacks: &Rollbacks,
        registry: &mut Registry,
    ) -> Self {
        let metrics = Self {
            server: serve::Metrics::default(),
            hooks: HookMetrics::default(),
            configurations: providers::Configurations::default(),
            reconciles: ReconcileMetrics::default(),
            releases: releases::ReleaseMetrics::default(),
            admission: AdmissionMetrics::default(),
            status: StatusMetrics::default(),
            registration: RegistrationMetrics::default(),
            leader: LeaderMetrics::default(),
            rest_client: RestClientMetrics::default(),
        };
        log.register(registry);
        index.register(registry);
        rollbacks.register(registry);
        metrics.server.register(registry);
        metrics.hooks.register(registry);
        metrics.configurations.register(registry);
        metrics.reconciles.register(registry);
        metrics.releases.register(registry);
        undecodable::register(registry);
        metrics.admission.register(registry);
        metrics.status.register(registry);
        metrics.registration.register(registry);
        metrics.leader.register(registry);
        metrics.rest_client.register(registry);
        process::register(registry);
        metrics
    }
}
