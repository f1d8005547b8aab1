//! Holds by packages.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::run::{PackageRecord, PackageState, Phase};

use super::Observed;
use crate::proof::Judgement;
use crate::reasons::{GateReason, Hold};
use crate::upgrade::course::holds::{downgrade, listed};
use crate::upgrade::hop::{Progress, UpgradeDirection};
use crate::upgrade::overrides::Passed;

/// Time that AfterClusterUpgrade waits for packages to settle. It protects nothing, but blocks the next upgrade.
const SETTLING: SignedDuration = SignedDuration::from_mins(30);

/// Returns the hold of invalid inputs of an upgrade, independent of its packages.
pub(super) fn inputs(seen: &Observed<'_>, progress: &Progress, passed: Passed<'_>) -> Option<Hold> {
    if let Some(hold) = downgrade(progress, seen.cluster.topology_version) {
        return Some(hold);
    }
    if let Some(problem) = passed.left(seen.problem.cloned()) {
        return Some(problem);
    }
    if progress.direction == UpgradeDirection::Cancelled {
        return None;
    }
    let tkr = match seen.tkr {
        Ok(tkr) => tkr,
        Err(hold) => return Some(hold.clone()),
    };
    (seen.bootstrap.resolved_tkr != Some(tkr)).then(|| {
        Hold::new(
            GateReason::BootstrapNotMerged,
            format!("waiting for the packages of {tkr} to be in the ClusterBootstrap"),
        )
    })
}

/// Returns the hold of packages of these phases without a proof, except of those that an override passes. A set without packages needs none.
pub(super) fn packages(judged: Option<&[Judgement]>, phases: &[Phase], passed: Passed<'_>) -> Option<Hold> {
    if passed.every() {
        return None;
    }
    let Some(judged) = judged else {
        return Some(unknown());
    };
    let concerned: Vec<&Judgement> = judged
        .iter()
        .filter(|judgement| phases.contains(&judgement.phase) && !passed.passes(&judgement.record.name))
        .collect();
    failed(concerned.iter().map(|judgement| &judgement.record)).or_else(|| {
        let waits = concerned.iter().any(|judgement| !judgement.ready());
        let all = concerned.iter().map(|judgement| &judgement.record);
        waits.then(|| Hold::new(GateReason::PackagesNotReady, waits_for(all)))
    })
}

/// Names all packages of a gate, including the ready ones: the text stays the same until the last of them is ready. Each change of it
/// costs Cluster API a write and a reconcile, and its next call comes a second later. See docs/decisions/0022.
fn waits_for<'a>(packages: impl Iterator<Item = &'a PackageRecord>) -> String {
    let names: Vec<String> = packages.map(named).collect();
    match names.as_slice() {
        [one] => format!("waiting for {one}"),
        several => format!("waiting for all of {}", listed(several)),
    }
}

fn unknown() -> Hold {
    Hold::new(
        GateReason::PackagesUnknown,
        "waiting for Sluice to determine the packages",
    )
}

/// Returns the hold of the first failed package.
pub fn failed<'a>(packages: impl IntoIterator<Item = &'a PackageRecord>) -> Option<Hold> {
    let failed = packages
        .into_iter()
        .find(|package| package.state == PackageState::Failed)?;
    Some(Hold::new(
        GateReason::PackageFailed,
        format!("{} failed to reconcile", named(failed)),
    ))
}

fn named(package: &PackageRecord) -> String {
    format!("{} {}", package.name, package.version)
}

/// Returns the hold of packages that are not fully reconciled, until [`SETTLING`] has elapsed `since` settling began.
pub(super) fn settling(
    judged: Option<&[Judgement]>,
    seen: &Observed<'_>,
    since: Option<&Time>,
) -> Option<Hold> {
    if since.is_some_and(|since| seen.now.duration_since(since.0) >= SETTLING) {
        return None;
    }
    let Some(judged) = judged else {
        return Some(unknown());
    };
    // A package that could not be planned is not among the judged ones.
    if let Some(problem) = seen.problem {
        return Some(problem.clone());
    }
    let unsettled = judged.iter().find(|judgement| !judgement.settled)?;
    Some(Hold::new(
        GateReason::PackagesNotSettled,
        format!(
            "waiting for {} to be reconciled on every node",
            named(&unsettled.record)
        ),
    ))
}
