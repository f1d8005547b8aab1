//! What a pass leaves, whether it came to its end or not.

use crate::events::Event;
use std::time::Duration;

use super::LocalState;
use crate::{reasons::Hold, upgrade::record::Ungated, value_kinds::ConfigRef};

/// What is counted of a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Count {
    /// A control plane has taken its version so long after the pass began that saw the last proof.
    Released(Duration),
    /// A version that no open gate has let go.
    Ungated(Ungated),
}

/// What a pass leaves.
#[derive(Debug, Clone, Default)]
pub struct Effects {
    /// What is remembered.
    pub memory: LocalState,
    /// Whether the connection to the workload is to be closed.
    pub disconnect: bool,
    /// Configurations of Sluice whose values are to be computed again.
    pub configurations: Vec<ConfigRef>,
    /// What is to be published.
    pub events: Vec<Event>,
    /// What is counted.
    pub counts: Vec<Count>,
    /// What hooks answer that find no record; `Some(None)` is nothing any more.
    pub note: Option<Option<Hold>>,
}

impl Effects {
    /// What a pass leaves that does nothing.
    #[must_use]
    pub fn of(memory: &LocalState) -> Self {
        Self {
            memory: memory.clone(),
            ..Self::default()
        }
    }
}
