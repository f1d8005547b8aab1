//! Clusters on a Supervisor: whether a Cluster is on one, and what its packages get there (`addons-manager.md` §3.6).
//!
//! The answer is recorded before the first package is written, and stays. Another one would redeploy every package of the Cluster.

use sluice_crds::{
    labels::label,
    run::{Outcome, Readiness, SupervisorAnswer},
};

use super::{
    Context, Facts, Failure, Interrupt, ReadResult, Server, Step, context::unexpected, read::Read,
    validate::Validated,
};
use crate::{
    packages::build::Owner,
    rbac::missing_rule,
    reasons::{GateReason, Hold},
    resolver::unlabelled_nodes,
    upgrade::hop::WorkerFacts,
};

/// Kind of the infrastructure on a Supervisor, and on vSphere without one.
const KIND: &str = "VSphereCluster";

/// Returns group and name of the VSphereCluster of a Cluster, if its infrastructure is one.
fn infrastructure(facts: &Facts) -> Option<String> {
    let reference = facts.cluster.spec.infrastructure_ref.as_ref()?;
    // A definition of v1beta1 does not bound these names.
    (reference.kind == KIND).then(|| format!("{:.253}/{:.253}", reference.group(), reference.name))
}

/// Whether a Cluster is on a Supervisor; `None` without an answer about its current infrastructure.
pub(super) fn recorded(facts: &Facts) -> Option<bool> {
    let Some(infrastructure) = infrastructure(facts) else {
        return Some(false);
    };
    let answer = facts.record()?.supervisor.as_ref()?;
    (answer.infrastructure == infrastructure).then_some(answer.found)
}

/// Asks whether the namespace of a Cluster has a VirtualMachine of it. The workload cluster has answered before, so its machines exist.
///
/// # Errors
/// Returns a [`Hold`] without a definite answer.
pub(super) fn ask(context: &Context<'_>) -> Step<SupervisorAnswer> {
    let facts = context.facts;
    let found = match context.answer(Read::VirtualMachines(facts.owner.namespace.clone())) {
        Ok(ReadResult::Listed(machines)) => !machines.is_empty(),
        // The API server does not serve the kind.
        Ok(ReadResult::Absent) => false,
        Ok(_) => return Err(unexpected(Server::Management)),
        Err(Interrupt::Failed(failure)) => return Err(unknown(facts, &failure).into()),
        Err(stop) => return Err(stop),
    };
    Ok(SupervisorAnswer {
        infrastructure: infrastructure(facts).unwrap_or_default(),
        found,
    })
}

/// Returns the hold of a Cluster without a definite answer. Its message is constant as long as the code is.
fn unknown(facts: &Facts, failure: &Failure) -> Hold {
    let Owner { namespace, name, .. } = &facts.owner;
    let why = match failure.code {
        Some(403) => {
            let rule = missing_rule("get and list", "vmoperator.vmware.com", "virtualmachines");
            format!("error 403; {rule}")
        }
        Some(code) => format!("error {code}; Sluice retries"),
        None => "the management API server gives no complete answer; Sluice retries".to_owned(),
    };
    let message = format!(
        "Cluster {namespace}/{name}: spec.infrastructureRef names a VSphereCluster, which is on a Supervisor if namespace {namespace} has a \
         VirtualMachine of the Cluster; VirtualMachines cannot be listed: {why}"
    );
    Hold::new(GateReason::SupervisorUnknown, message)
}

/// What the packages of a Cluster on a Supervisor get.
#[derive(Debug)]
pub(super) struct OnSupervisor {
    /// Release whose label the Nodes of the hop have.
    pub(super) release: String,
    /// Hold of packages that select Nodes, if those of the hop do not get the label.
    pub(super) unlabelled: Option<Hold>,
    /// Required readiness of packages without a policy.
    pub(super) readiness: Readiness,
}

impl OnSupervisor {
    /// Returns what the packages of the hop get. The label of the Cluster names the release of the target, which no Node of a hop before has.
    pub(super) fn of(facts: &Facts, validated: &Validated) -> Self {
        let resolved = facts.resolved_release();
        let (release, unlabelled) = match &validated.release {
            Ok(release) => (release.as_str(), unlabelled(facts, validated, release)),
            // Nothing is written, and the packages stay those of the ClusterBootstrap.
            Err(_) => (resolved.release().unwrap_or(&facts.label), None),
        };
        Self {
            release: release.to_owned(),
            unlabelled,
            // DaemonSets replace their Pods only on new Nodes, so no run completes before.
            readiness: if are_machines_replaced(facts, validated) {
                Readiness::Reconciled
            } else {
                Readiness::Applied
            },
        }
    }
}

/// Returns the hold of a hop whose Nodes do not get the label of `release`. Sluice itself writes the entries that replace machines by those
/// of another release of their version, after the packages of that release are proven.
fn unlabelled(facts: &Facts, validated: &Validated, release: &str) -> Option<Hold> {
    let hop = &validated.progress.hop;
    let machines = validated.machines.as_ref().map(|machines| &machines.release);
    let is_written_later = validated.swap.is_requested()
        && machines.is_some_and(|machines| machines.metadata.name.as_deref() == Some(release));
    if is_written_later {
        return None;
    }
    let field = unlabelled_nodes(&facts.topology, hop, release)?;
    let Owner { namespace, name, .. } = &facts.owner;
    let message = format!(
        "Cluster {namespace}/{name} is on a Supervisor, and the entry for {hop} in {field} does not give its Nodes the label {}={release}, \
         which packages select; add the label to the entry",
        label::TKR
    );
    Some(Hold::new(GateReason::NodesNotLabelled, message))
}

/// Whether all machines are those of the hop. A completed upgrade has replaced them, and machines that are added later have its release.
fn are_machines_replaced(facts: &Facts, validated: &Validated) -> bool {
    let (progress, swap) = (&validated.progress, &validated.swap);
    let is_completed = facts.record().is_some_and(|record| {
        matches!(record.outcome, Some(Outcome::Completed | Outcome::RolledBack))
            && record.hop.as_deref() == Some(progress.hop.as_str())
            && record.tkr.as_deref() == validated.release.as_deref().ok()
    });
    let is_replaced = |worker: &WorkerFacts| worker.runs(&progress.hop);
    let are_replaced =
        !swap.is_requested() && swap.outdated.is_none() && facts.workers.iter().all(is_replaced);
    progress.settled_at_hop() && (is_completed || are_replaced)
}

#[cfg(test)]
mod tests;
