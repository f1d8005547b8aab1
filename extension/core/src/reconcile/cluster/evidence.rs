//! Evidence about a package, and its judgement.
//!
//! Evidence has three sources: the watches, the reads before a gate opens, and the lists of a drift check. Each source states what it
//! cannot provide, and a judgement without complete evidence confirms nothing.

use sluice_crds::{
    foreign::{App, PackageInstall},
    run::FirstSeenRun,
};

use super::{Facts, plan::Planned};
use crate::{
    packages::build,
    proof::{self, Judgement, judge_from_record},
    upgrade::record::latch,
};

/// Comparison of an input of a package with the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    AsPlanned,
    Differs,
    /// The source cannot provide it.
    Unknown,
}

impl Input {
    pub(super) fn of(is_as_planned: bool) -> Self {
        if is_as_planned {
            Self::AsPlanned
        } else {
            Self::Differs
        }
    }
}

/// Inputs of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inputs {
    /// Values source and Package on the management cluster. If they differ, the plan itself is outdated.
    pub(super) source: Input,
    /// Values Secret that the PackageInstall names.
    pub(super) values: Input,
    /// Copy of the Package on the workload cluster.
    pub(super) copy: Input,
    /// Steps of the App, compared with the Package.
    pub(super) app: Input,
}

impl Inputs {
    /// Inputs of a source that provides none.
    pub(super) const UNKNOWN: Self = Self {
        source: Input::Unknown,
        values: Input::Unknown,
        copy: Input::Unknown,
        app: Input::Unknown,
    };

    /// Whether an object that the package is deployed from is missing or was altered.
    pub(super) fn are_altered(self) -> bool {
        [self.values, self.copy].contains(&Input::Differs)
    }

    fn are_as_planned(self) -> bool {
        let all = [self.source, self.values, self.copy, self.app];
        all.iter().all(|input| *input == Input::AsPlanned)
    }
}

/// Evidence about one package from one source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Evidence<'a> {
    /// PackageInstall and App; `None` while their API server does not answer.
    pub(super) objects: Option<(Option<&'a PackageInstall>, Option<&'a App>)>,
    /// First run of the App that a watch observed. Without it, the run in `objects` counts as the first one.
    pub(super) first_seen_run: Option<&'a FirstSeenRun>,
    pub(super) inputs: Inputs,
    /// Whether a check before the writes of this reconcile found an input altered.
    pub(super) altered: bool,
}

/// Judges a package.
///
/// Only its recorded entry for the workload cluster with this UID serves as latch, so no judgement confirms itself. Without a response
/// of the workload cluster, the recorded UID is assumed.
pub(super) fn judge(
    facts: &Facts,
    workload_uid: Option<&str>,
    planned: &Planned,
    evidence: &Evidence<'_>,
) -> Judgement {
    let (target, record, inputs) = (planned.target(), facts.record(), evidence.inputs);
    let recorded_uid = record.and_then(|record| record.workload_uid.as_deref());
    let latch = workload_uid
        .or(recorded_uid)
        .and_then(|uid| latch(record, uid, target.name));
    let mut judged = match evidence.objects {
        // Recorded proofs stay valid; the gates limit for how long.
        None => judge_from_record(&target, latch),
        Some((install, app)) => {
            let judged = proof::judge(&target, install, app, latch).noting(evidence.first_seen_run);
            match install {
                Some(found) if !build::specs_match(found, &planned.install(facts)) => {
                    judged.withdrawn_for_install()
                }
                _ => judged,
            }
        }
    };
    if inputs.app == Input::Differs {
        judged = judged.withdrawn_for_app(&planned.package_name);
    }
    let judged = judged.with_repairs(planned.repairs, evidence.altered || inputs.are_altered());
    Judgement {
        confirmed: judged.ready() && evidence.objects.is_some() && inputs.are_as_planned(),
        ..judged
    }
}

#[cfg(test)]
mod tests;
