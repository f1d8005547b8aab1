//! What is known of one upgrade when it is over.

use jiff::Timestamp;

use crate::observer::{Event, Milestone, Violation};
use crate::scenario::HookAnswer;

/// The observer's milestones, the extension's answers, and what was asked for.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) packages: Vec<PackageChange>,
    /// Since the change of version.
    pub(super) milestones: Vec<Milestone>,
    pub(super) violations: Vec<Violation>,
    /// Since the change of version.
    pub(super) answers: Vec<HookAnswer>,
    pub(super) began: Timestamp,
    pub(super) ended: Timestamp,
}

/// A package that the upgrade moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackageChange {
    pub(super) ref_name: String,
    pub(super) from: String,
    pub(super) to: String,
}

impl PackageChange {
    pub(super) fn short(&self) -> &str {
        self.ref_name.split('.').next().unwrap_or_default()
    }
}

impl Facts {
    pub(super) fn find(&self, wanted: impl Fn(&Event) -> bool) -> Option<&Milestone> {
        self.milestones.iter().find(|milestone| wanted(&milestone.event))
    }

    /// The first proof of a package.
    pub(super) fn proof(&self, of: &str, at: &str) -> Option<&Milestone> {
        self.find(|event| {
            matches!(event, Event::PackageProven { ref_name, version } if ref_name == of && version == at)
        })
    }
}
