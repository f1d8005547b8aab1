//! The releases of one upgrade, and what each took.

use jiff::Timestamp;
use serde::Serialize;

use super::act::Happened;
use crate::objects::Release;
use crate::observer::{Event, Milestone, Revision};

/// Object of a written version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Part {
    ControlPlane,
    Workers,
}

/// The first write of a version, and the last proof that it waited for. The observer saw both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Released {
    pub(super) part: Part,
    pub(super) proven: Timestamp,
    pub(super) written: Timestamp,
    /// Where it was written.
    pub(super) revision: Revision,
}

impl Released {
    /// The releases of an upgrade to `release` that had their proof before.
    pub(super) fn all(release: &Release, milestones: &[Milestone]) -> Vec<Self> {
        let of = [Self::control_plane, Self::workers];
        of.into_iter().filter_map(|of| of(release, milestones)).collect()
    }

    fn control_plane(release: &Release, milestones: &[Milestone]) -> Option<Self> {
        let version = release.kubernetes();
        let written = milestones.iter().find(
            |milestone| matches!(&milestone.event, Event::ControlPlaneWritten { version: written } if written == version),
        )?;
        let mut proven: Option<Timestamp> = None;
        for package in release.packages() {
            // The latest: a disturbance may have taken earlier ones away.
            let latest = before(milestones, written).rfind(|milestone| {
                matches!(&milestone.event, Event::PackageProven { ref_name, version }
                    if ref_name == package.ref_name() && version == package.version())
            })?;
            proven = proven.max(Some(latest.seen));
        }
        Some(Self {
            part: Part::ControlPlane,
            proven: proven?,
            written: written.seen,
            revision: written.revision,
        })
    }

    fn workers(release: &Release, milestones: &[Milestone]) -> Option<Self> {
        let version = release.kubernetes();
        let written = milestones.iter().find(
            |milestone| matches!(&milestone.event, Event::WorkersWritten { version: written, .. } if written == version),
        )?;
        let proven = before(milestones, written).find(
            |milestone| matches!(&milestone.event, Event::ProvenAgain { version: proven } if proven == version),
        )?;
        Some(Self {
            part: Part::Workers,
            proven: proven.seen,
            written: written.seen,
            revision: written.revision,
        })
    }

    /// Seconds from the last proof to the write.
    pub(super) fn lag(&self) -> f64 {
        self.since(self.proven)
    }

    /// Seconds from `start` to the write.
    pub(super) fn since(&self, start: Timestamp) -> f64 {
        self.written.duration_since(start).as_secs_f64()
    }
}

/// Previous write.
fn before<'a>(
    milestones: &'a [Milestone],
    written: &'a Milestone,
) -> impl DoubleEndedIterator<Item = &'a Milestone> {
    milestones
        .iter()
        .filter(|milestone| milestone.revision < written.revision)
}

/// Seconds from the last proof to the write of the version to the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Lag {
    /// Counted from the last proof, whatever else had to end first.
    pub(super) since_proof: f64,
    /// Counted from the last proof or the end of the last disturbance of this Cluster before the write, whichever came later.
    pub(super) since_all_was_good: f64,
}

impl Lag {
    /// Of a release of the control plane, when this had happened to its Cluster.
    pub(super) fn of(released: &Released, happened: &[Happened]) -> Self {
        let before = happened
            .iter()
            .filter(|happened| happened.ended_at < released.revision);
        let good = before
            .map(|happened| happened.ended)
            .fold(released.proven, Timestamp::max);
        Self {
            since_proof: released.lag(),
            since_all_was_good: released.since(good),
        }
    }
}
