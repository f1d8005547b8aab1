//! Facts of one finished upgrade.

use jiff::Timestamp;

use crate::objects::Release;
use crate::observer::{Event, Milestone, Revision, Violation};
use crate::scenario::HookAnswer;

/// The observer's milestones, the extension's responses, and the requested upgrade.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) packages: Vec<PackageChange>,
    /// Since the change of version.
    pub(crate) milestones: Vec<Milestone>,
    pub(crate) violations: Vec<Violation>,
    /// Since the change of version.
    pub(crate) answers: Vec<HookAnswer>,
    pub(crate) began: Timestamp,
    pub(crate) ended: Timestamp,
}

/// A package that the upgrade moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackageChange {
    pub(crate) ref_name: String,
    pub(crate) from: String,
    pub(crate) to: String,
}

impl PackageChange {
    /// The packages that an upgrade from one release to another moves.
    pub(crate) fn between(old: &Release, new: &Release) -> Vec<Self> {
        let both = old.packages().zip(new.packages());
        both.map(|(old, new)| Self {
            ref_name: new.ref_name().to_owned(),
            from: old.version().to_owned(),
            to: new.version().to_owned(),
        })
        .collect()
    }

    pub(crate) fn short(&self) -> &str {
        self.ref_name.split('.').next().unwrap_or_default()
    }
}

impl Facts {
    pub(crate) fn find(&self, wanted: impl Fn(&Event) -> bool) -> Option<&Milestone> {
        self.milestones.iter().find(|milestone| wanted(&milestone.event))
    }

    /// The first proof of a package after a revision.
    pub(crate) fn proof(&self, of: &PackageChange, since: Revision) -> Option<&Milestone> {
        self.milestones.iter().find(|milestone| {
            milestone.revision > since
                && matches!(&milestone.event, Event::PackageProven { ref_name, version }
                    if *ref_name == of.ref_name && *version == of.to)
        })
    }

    /// The proof that came last among the first proofs of all packages; none if a package has none.
    pub(crate) fn last_proof(&self) -> Option<&Milestone> {
        let proofs: Option<Vec<&Milestone>> = self
            .packages
            .iter()
            .map(|package| self.proof(package, 0))
            .collect();
        proofs?.into_iter().max_by_key(|proof| proof.revision)
    }

    /// The write of the version to the control plane.
    pub(crate) fn control_plane_written(&self) -> Option<&Milestone> {
        self.find(|event| matches!(event, Event::ControlPlaneWritten { version } if *version == self.to))
    }

    /// The proof of the last package on the new control plane.
    pub(crate) fn proven_again(&self) -> Option<&Milestone> {
        self.find(|event| matches!(event, Event::ProvenAgain { version } if *version == self.to))
    }

    /// The first write of the version to workers.
    pub(crate) fn workers_written(&self) -> Option<&Milestone> {
        self.find(|event| matches!(event, Event::WorkersWritten { version, .. } if *version == self.to))
    }
}
