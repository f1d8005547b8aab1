//! Findings about the Cluster as a whole.

use kube::ResourceExt as _;
use sluice_crds::{
    foreign::ClusterClass,
    labels::{annotation, name},
    run::PackageState,
};

use super::{
    UpgradePlan,
    finding::{Finding, FindingReason, WarningReason},
};
use crate::{
    packages::bootstrap::too_many,
    protocol::Step,
    reasons::{GateReason, Hold},
    reconcile::cluster::{Context, Facts, NextHop, Unknown},
    upgrade::{
        course::holds::{control_plane, downgrade, endless_rollout, listed, workers},
        hop::{ControlPlanePhase, Plan, Progress},
        record::pause,
    },
    version::{KubernetesVersion, same},
};

/// Returns the findings about the Cluster as a whole.
///
/// # Errors
/// Missing reads.
pub(super) fn findings(context: &Context<'_>, first: &NextHop) -> Step<Vec<Finding>> {
    let facts = context.facts;
    let holds = holds(context, first)?.into_iter();
    let mut findings: Vec<Finding> = holds.map(|hold| Finding::of_hold(None, hold)).collect();
    let warnings = refused(facts, &first.progress).into_iter().chain(warnings(facts));
    let warnings =
        warnings.map(|(reason, message)| Finding::new(None, FindingReason::Warning(reason), message));
    findings.extend(warnings);
    Ok(findings)
}

/// Returns the holds by the Cluster and its ClusterBootstrap, except those of the [steps](super::chain).
fn holds(context: &Context<'_>, first: &NextHop) -> Step<Vec<Hold>> {
    let (facts, progress) = (context.facts, &first.progress);
    let bootstrap = facts.bootstrap.as_deref();
    let bootstrap_paused = bootstrap.is_some_and(|bootstrap| bootstrap.spec.paused);
    let large = bootstrap.and_then(|bootstrap| {
        let (namespace, name) = (&facts.owner.namespace, &facts.owner.name);
        too_many(&bootstrap.spec, &format!("ClusterBootstrap {namespace}/{name}"))
    });
    // Without a control plane there is no step yet.
    let unplanned = first.problem.clone().filter(|_| progress.stage().is_none());
    let holds = [
        pause(facts.record(), progress, &facts.cluster(), bootstrap_paused),
        unobserved(facts).or_else(|| unsettled(facts, progress)),
        downgrade(progress, &facts.topology.version),
        large,
        unplanned,
        first.below_release(context)?,
    ];
    Ok(holds.into_iter().flatten().collect())
}

/// Returns the hold of a Cluster of which too little is known.
fn unobserved(facts: &Facts) -> Option<Hold> {
    facts.unknown.as_ref().map(|unknown| match unknown {
        Unknown::Unreadable(hold) => hold.clone(),
        Unknown::Reading => Hold::new(
            GateReason::APIUnavailable,
            "the kind of the control plane is not listed yet",
        ),
    })
}

/// Returns the hold of a Cluster whose version Cluster API does not change yet: its control plane or its workers have to reach another one
/// first.
fn unsettled(facts: &Facts, progress: &Progress) -> Option<Hold> {
    let to = &facts.topology.version;
    let open = facts.record().filter(|record| record.outcome.is_none());
    let is_under_way = match facts.record() {
        Some(_) => open.is_some_and(|record| same(&record.to, to)),
        // Of a lost record, Cluster API still has the hook that follows the upgrade.
        None => facts.cluster().awaits_hooks,
    };
    match &progress.phase {
        ControlPlanePhase::Creating => control_plane(progress),
        _ if is_under_way || is_unchecked(facts) => None,
        ControlPlanePhase::Rolling { to: taken, .. } => control_plane(progress).filter(|_| !same(taken, to)),
        ControlPlanePhase::Settled { version } if same(version, to) => None,
        ControlPlanePhase::Settled { version } => {
            let other = open.filter(|record| !same(&record.to, version));
            other
                .map(|record| {
                    let text = format!("waiting for the control plane to be at {}", record.to);
                    Hold::new(GateReason::ControlPlaneUpgrading, text)
                })
                .or_else(|| workers(&facts.workers, version))
                .or_else(|| endless_rollout(&facts.workers, version))
                .or_else(|| rolling(facts, version))
        }
    }
}

/// Returns the hold of workers whose machines are being replaced.
fn rolling(facts: &Facts, version: &str) -> Option<Hold> {
    let worker = facts.workers.iter().find(|worker| worker.rolling)?;
    let text = format!("waiting for {} to be at {version}", worker.name);
    Some(Hold::new(GateReason::WorkersUpgrading, text))
}

/// Whether an annotation of the Cluster disables most rules of Cluster API for a change of the version.
fn is_unchecked(facts: &Facts) -> bool {
    let annotations = facts.cluster.annotations();
    annotations.contains_key(annotation::DISABLE_VERSION_CHECK)
}

/// Returns the reason why Cluster API refuses the target, by the ClusterClass.
fn refused(facts: &Facts, progress: &Progress) -> Option<(WarningReason, String)> {
    let from = match &progress.phase {
        ControlPlanePhase::Rolling { to: taken, .. } => taken,
        _ => progress.stage()?,
    };
    let to = &facts.topology.version;
    if same(from, to) {
        return None;
    }
    let class = facts.topology.class_name().unwrap_or_default();
    let namespace = facts.topology.class_namespace().unwrap_or(&facts.owner.namespace);
    let versions = facts
        .class
        .as_deref()
        .map(|class| &class.spec.kubernetes_versions);
    let versions = versions.filter(|versions| !versions.is_empty());
    if let Some(versions) = versions.filter(|versions| !versions.contains(to)) {
        let listed = listed(versions);
        let message =
            format!("ClusterClass {namespace}/{class} lists {listed}, and topology.version is {to}");
        return Some((WarningReason::VersionNotInClass, message));
    }
    let (of_target, of_stage) = (
        to.parse::<KubernetesVersion>().ok()?,
        from.parse::<KubernetesVersion>().ok()?,
    );
    let is_skipped = of_target.minors_ahead_of(&of_stage) > 1;
    let is_refused = is_skipped && facts.plan == Plan::Direct && !is_unchecked(facts);
    is_refused.then(|| {
        let message = format!(
            "topology.version {to} skips a minor version after {from}, and ClusterClass {namespace}/{class} \
             plans no steps"
        );
        (WarningReason::MinorVersionSkipped, message)
    })
}

/// Returns what a user should know before the upgrade.
fn warnings(facts: &Facts) -> Vec<(WarningReason, String)> {
    let packages = facts.record().into_iter().flat_map(|record| &record.packages);
    let failing = packages.filter(|package| package.state == PackageState::Failed);
    let failing = failing.map(|package| {
        let message = format!(
            "{} {} failed to reconcile: {}",
            package.name, package.version, package.reason
        );
        (WarningReason::PackageFailing, message)
    });
    let status = facts.cluster.status.as_ref();
    let conditions = status.into_iter().flat_map(|status| &status.conditions);
    let unhealthy = conditions.filter(|condition| {
        name::HEALTH_CONDITIONS.contains(&condition.type_.as_str()) && !condition.is_true()
    });
    let unhealthy = unhealthy.map(|condition| {
        let message = format!(
            "condition {} of the Cluster is {:.32}",
            condition.type_, condition.status
        );
        (WarningReason::ClusterNotHealthy, message)
    });
    let unchecked = is_unchecked(facts).then(|| {
        let message = format!(
            "annotation {} is set on the Cluster",
            annotation::DISABLE_VERSION_CHECK
        );
        (WarningReason::VersionCheckDisabled, message)
    });
    failing.chain(unhealthy).chain(unchecked).collect()
}

impl UpgradePlan {
    /// Adds the first of these ClusterClasses that lists the target to the finding that the class of the Cluster does not.
    pub fn name_class<'a>(&mut self, classes: impl IntoIterator<Item = &'a ClusterClass>) {
        let reason = FindingReason::Warning(WarningReason::VersionNotInClass);
        let Some(finding) = self.findings.iter_mut().find(|finding| finding.reason == reason) else {
            return;
        };
        let mut classes = classes.into_iter();
        if let Some(class) = classes.find(|class| class.spec.kubernetes_versions.contains(&self.to)) {
            let (namespace, name) = (class.namespace().unwrap_or_default(), class.name_any());
            finding.message = format!("{}; ClusterClass {namespace}/{name} lists it", finding.message);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
