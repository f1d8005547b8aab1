//! Results of a complete or interrupted reconcile.

use crate::events::Event;
use std::time::Duration;

use sluice_crds::lifecycle::OverriddenGate;

use super::LocalState;
use crate::{held_cause::Probe, reasons::Hold, upgrade::record::Ungated, value_kinds::ConfigRef};

/// Counter update of a reconcile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Count {
    /// Release lag: time from the start of the reconcile that observed the last proof until the control plane reached its version.
    Released(Duration),
    /// A version that no open gate released.
    Ungated(Ungated),
    /// A gate that an override has opened.
    Overridden(OverriddenGate),
}

/// Results of a reconcile.
#[derive(Debug, Clone, Default)]
pub struct Effects {
    /// Local state to keep for the next reconcile.
    pub local: LocalState,
    /// Whether to close the connection to the workload.
    pub disconnect: bool,
    /// Configurations of Sluice to recompute.
    pub configurations: Vec<ConfigRef>,
    /// Events to publish.
    pub events: Vec<Event>,
    /// Counter updates.
    pub counts: Vec<Count>,
    /// Object that the API server returned at an earlier resourceVersion than the cache had.
    pub rolled_back: Option<String>,
    /// Difference between a read and the cache that has lasted for so long that its event is lost.
    pub outdated: Option<String>,
    /// Hold for hook calls without a record; `Some(None)` removes it.
    pub note: Option<Option<Hold>>,
    /// Probe to start for a held gate.
    pub probe: Option<Probe>,
}

impl Effects {
    /// Returns the results of a reconcile without any action.
    #[must_use]
    pub fn of(local: &LocalState) -> Self {
        Self {
            local: local.clone(),
            ..Self::default()
        }
    }
}
