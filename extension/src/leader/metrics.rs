//! Whether this replica leads, with the name of client-go.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::leader::elector::LEASE;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: &'static str,
}

/// Shows whether this replica leads. Clones share the gauge.
#[derive(Clone, Debug)]
pub struct LeaderMetrics {
    status: Family<NameLabel, Gauge>,
    leads: Gauge,
}

impl Default for LeaderMetrics {
    fn default() -> Self {
        let status = Family::<NameLabel, Gauge>::default();
        let leads = status.get_or_create_owned(&NameLabel { name: LEASE });
        Self { status, leads }
    }
}

impl LeaderMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "leader_election_master_status",
            "1 on the replica that leads, 0 on others",
            self.status.clone(),
        );
    }

    /// Sets whether this replica leads.
    pub fn set(&self, leads: bool) {
        self.leads.set(leads.into());
    }
}
