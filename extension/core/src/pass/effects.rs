//! What a pass leaves, whether it came to its end or not.

use super::Memory;
use crate::{hold::Hold, providers::ConfigRef};

/// One event for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// What the Cluster waits for.
    Held(Hold),
    /// Something else: reason and note.
    Said(&'static str, String),
}

/// What a pass leaves.
#[derive(Debug, Clone, Default)]
pub struct Effects {
    /// What is remembered.
    pub memory: Memory,
    /// Whether the connection to the workload is to be closed.
    pub disconnect: bool,
    /// Configurations of Sluice whose values are to be computed again.
    pub configurations: Vec<ConfigRef>,
    /// What is to be published.
    pub events: Vec<Event>,
    /// What hooks answer that find no record; `Some(None)` is nothing any more.
    pub note: Option<Option<Hold>>,
}

impl Effects {
    /// What a pass leaves that does nothing.
    #[must_use]
    pub fn of(memory: &Memory) -> Self {
        Self {
            memory: memory.clone(),
            ..Self::default()
        }
    }
}
