//! Figures of one upgrade.

use jiff::Timestamp;

use super::act::Happened;
use crate::objects::Release;
use crate::observer::{Event, Milestone};

/// Seconds from the last proof to the write of the version.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub(super) struct Lag {
    /// Counted from the last proof, whatever else had to end first.
    pub(super) since_proof: f64,
    /// Counted from the last proof or the end of the last disturbance before the write, whichever came later.
    pub(super) since_all_was_good: f64,
}

impl Lag {
    /// The lag of the first write of the version of `release` among `milestones`; none if a package had no proof by then.
    pub(super) fn of(release: &Release, milestones: &[Milestone], happened: &[Happened]) -> Option<Self> {
        let version = release.kubernetes();
        let written = milestones.iter().find(
            |milestone| matches!(&milestone.event, Event::ControlPlaneWritten { version: written } if written == version),
        )?;
        let before = || {
            milestones
                .iter()
                .filter(|milestone| milestone.revision < written.revision)
        };
        let mut proven: Option<Timestamp> = None;
        for package in release.packages() {
            // The latest: a disturbance may have taken earlier ones away.
            let latest = before().rfind(|milestone| {
                matches!(&milestone.event, Event::PackageProven { ref_name, version }
                    if ref_name == package.ref_name() && version == package.version())
            })?;
            proven = proven.max(Some(latest.seen));
        }
        let proven = proven?;
        let good = happened
            .iter()
            .filter(|happened| happened.ended_at < written.revision)
            .map(|happened| happened.ended)
            .chain([proven])
            .max()?;
        let since = |moment: Timestamp| written.seen.duration_since(moment).as_secs_f64();
        Some(Self {
            since_proof: since(proven),
            since_all_was_good: since(good),
        })
    }
}
