//! Plan of an upgrade: its steps with their releases and packages, and the findings that will hold it or that a user should know.
//!
//! The plan folds the functions of the reconcile over the steps, so it has none of their rules of its own. It has three users: the record
//! holds the first step by the findings of the chain, admission refuses a change of version, and `sluice plan` prints all of it. No gate
//! opens by a plan.

mod chain;
mod checks;
mod cluster;
mod finding;
mod packages;
mod run;
mod schema;
mod selection;
mod steps;
mod table;
mod target;
mod usable;
pub mod workload;

use serde::Serialize;
use sluice_crds::run::ClusterBootstrapSpec;

pub use self::{
    checks::IGNORES_SELECTION,
    finding::{Admission, Effect, Finding, FindingReason, WarningReason},
    run::{MAX_ROUNDS, PlanFailed, plan_of},
    schema::{SchemaNotUsable, mismatches},
    steps::{NoRelease, StepsInputs, is_planned_by_sluice, knows_steps, steps, steps_by, steps_of},
    table::{CHECKS, Check, PAGE, with_checks},
    target::{InvalidTarget, Target, TargetInputs, target},
};

pub(crate) use self::steps::ClusterPlan;

use self::chain::Position;
use crate::{
    names,
    packages::bootstrap::{self, Catalogue},
    protocol::Step,
    reasons::Hold,
    reconcile::cluster::{Context, Facts, NextHop, next_hop},
    upgrade::hop::Plan,
};

/// Plan of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpgradePlan {
    /// Version of the control plane.
    pub from: String,
    /// `topology.version`.
    pub to: String,
    /// Steps of the control plane, in order.
    pub hops: Vec<Hop>,
    /// Findings, those of the first step first.
    pub findings: Vec<Finding>,
}

impl UpgradePlan {
    /// Whether a gate will hold the upgrade, or Cluster API refuses it.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.effect == Effect::Blocks)
    }
}

/// One step of the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hop {
    /// Kubernetes version, `v1.35.4+vmware.1`.
    pub version: String,
    /// Name of its TanzuKubernetesRelease; `None` if a finding says why there is none.
    pub release: Option<String>,
    /// Whether the workers upgrade before the next step.
    pub workers: bool,
    /// Packages of the ClusterBootstrap before and after, in the order of writes; none without a release.
    pub packages: Vec<PackageChange>,
}

/// Package at one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageChange {
    /// Name up to the first dot of `spec.refName`, `antrea`.
    pub name: String,
    /// Version before; `None` if the step adds the package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Version after.
    pub to: String,
}

/// Checks that cost more than lookups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// Whether values are compared with schemas.
    pub schemas: bool,
    /// Whether those of Secrets and configurations are, too. They are read.
    pub values: bool,
}

/// Returns the plan of the upgrade of a Cluster to its `topology.version`.
///
/// # Errors
/// Missing reads: templates and Packages; with [`Scope::values`], also the objects with values.
pub fn plan(context: &Context<'_>, scope: Scope) -> Step<UpgradePlan> {
    let first = next_hop(context)?;
    let facts = context.facts;
    let links = chain::links(context, &first, &mut |_| Ok(false))?;
    let mut findings = cluster::findings(context, &first)?;
    for link in &links {
        findings.extend(checks::of_link(facts, link));
        findings.extend(packages::findings(facts, link));
        if scope.schemas {
            findings.extend(schema::findings(context, link, scope)?);
        }
    }
    let hops = links.iter().map(|link| Hop {
        version: link.version.clone(),
        release: link.release.clone().ok(),
        workers: link.workers,
        packages: changes(&facts.catalogue, link.before.as_ref(), link.after.as_ref()),
    });
    let control_plane = facts.control_plane.as_ref();
    let version = control_plane.and_then(|cached| cached.versions.spec_version.clone());
    Ok(UpgradePlan {
        from: version.unwrap_or_default(),
        to: facts.topology.version.clone(),
        hops: hops.collect(),
        findings,
    })
}

/// Returns the hold of an upgrade that could not end.
///
/// Before the packages of the next step are merged, its whole chain is checked. Afterwards only the Kubernetes versions that its packages
/// permit are, until the control plane has the version.
///
/// # Errors
/// Missing reads.
pub(crate) fn refusal(context: &Context<'_>, first: &NextHop) -> Step<Option<Hold>> {
    let Some(stage) = first.progress.stage().filter(|_| chain::is_checked(first)) else {
        return Ok(None);
    };
    match chain::position(context.facts, first) {
        Position::Taken | Position::RollsBack => Ok(None),
        // The step is held already. A release that may not be used is named before what it lacks.
        _ if first.problem.is_some() => {
            let link = chain::link_of_first(context, stage, first);
            Ok(checks::unusable(context.facts, &link))
        }
        Position::Merged => checks::excluded(context, &chain::link_of_first(context, stage, first)),
        Position::Unmerged => {
            let mut hold = None;
            chain::links(context, first, &mut |link| {
                hold = checks::refusal(context, link)?;
                Ok(hold.is_some())
            })?;
            Ok(hold)
        }
    }
}

/// Plans the steps to a target that is not written yet, if an extension plans them and has not planned these: as Sluice will, or else one
/// step. Returns the warning that says so.
pub fn assume_steps(facts: &mut Facts) -> Option<Finding> {
    let to = &facts.topology.version;
    if facts.plan.leads_to(to) {
        return None;
    }
    match &facts.own_steps {
        Some(Ok(steps)) => {
            facts.plan = Plan::Listed(steps.clone());
            return None;
        }
        // The first step says so.
        Some(Err(_)) => return None,
        None => {}
    }
    let message =
        format!("an extension plans the steps to {to} after the change; only the target is checked");
    facts.plan = Plan::Listed(Vec::new());
    let reason = FindingReason::Warning(WarningReason::StepsNotPlanned);
    Some(Finding::new(None, reason, message))
}

/// Returns the packages of a spec with their versions in the spec before.
fn changes(
    catalogue: &Catalogue,
    before: Option<&ClusterBootstrapSpec>,
    after: Option<&ClusterBootstrapSpec>,
) -> Vec<PackageChange> {
    let listed = |spec: Option<&ClusterBootstrapSpec>| -> Vec<(String, String)> {
        let packages = spec.map(bootstrap::packages).unwrap_or_default().into_iter();
        let facts = packages.filter_map(|(_, package)| catalogue.get(&package.ref_name));
        facts
            .map(|facts| (facts.ref_name.clone(), facts.version.clone()))
            .collect()
    };
    let before = listed(before);
    let version_before = |ref_name: &str| {
        let mut before = before.iter();
        before
            .find(|(name, _)| name == ref_name)
            .map(|(_, version)| version.clone())
    };
    let change = |(ref_name, to): (String, String)| PackageChange {
        name: names::short(&ref_name).to_owned(),
        from: version_before(&ref_name),
        to,
    };
    listed(after).into_iter().map(change).collect()
}

#[cfg(test)]
pub(crate) mod tests;
