//! Re-read of everything that an opening gate rests on: the Cluster, its control plane, its UpgradeGates, its ClusterUpgrade, and the
//! objects of all checks. Watches may be behind, or ahead of an API server that was restored.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use serde_json::Value;
use sluice_crds::{
    foreign::Cluster,
    labels::annotation,
    lifecycle::{ClusterUpgrade, GateMode, GateRecord, UpgradeGate},
};

use super::{
    Context, GateEffects,
    checks::{Judged, Judging, Reach, judge},
};
use crate::{
    gates::selected::{Selected, may_select, metadata},
    protocol::{
        Key, ReadPhase, Server, Step,
        interrupt::{needs_of, together},
    },
    reasons::{GateReason, Hold},
    reconcile::cluster::confirm_cluster,
};

/// Result of the reads.
#[derive(Debug)]
pub(super) struct Confirmed {
    /// Checks as these reads show them; `None` if the checks are not judged now.
    pub(super) judged: Option<Judged>,
    /// Hold of all gates, if an object differs from the cache.
    pub(super) outdated: Option<Hold>,
    /// Hold of all gates, if the Cluster has labels that the cache lacks and a gate selects by. It may be that the cache never keeps them.
    pub(super) unselected: Option<Hold>,
    /// Object that the API server returned at an earlier resourceVersion than the cache had.
    pub(super) rolled_back: Option<String>,
}

/// Reads everything again. `before` has the checks as this reconcile judged them first.
pub(super) fn confirm(
    context: &Context<'_>,
    effects: &mut GateEffects,
    judging: Judging<'_>,
    before: Option<&Judged>,
) -> Step<Confirmed> {
    let facts = context.facts;
    let control_plane = facts.control_plane.as_ref();
    let cluster = confirm_cluster(context, &facts.owner, &facts.cluster, control_plane);
    let gates = confirm_gates(context, judging.selected);
    let upgrade = confirm_upgrade(context);
    let judged = before.map(|_| judge(context, effects, judging, ReadPhase::Confirm));
    together([
        needs_of(&cluster),
        needs_of(&gates),
        needs_of(&upgrade),
        judged.as_ref().map_or(Ok(()), needs_of),
    ])?;
    let cluster = cluster?;
    let (gates, upgrade, judged) = (gates?, upgrade?, judged.transpose()?);
    let workload = before
        .zip(judged.as_ref())
        .and_then(|(before, judged)| other_workload(&before.reach, &judged.reach));
    let outdated = cluster.outdated.or(confirm_hooks(context)?);
    Ok(Confirmed {
        judged,
        outdated: outdated.or(gates).or(upgrade).or(workload),
        unselected: confirm_labels(context)?,
        rolled_back: cluster.rolled_back,
    })
}

fn unobserved(key: &Key) -> Hold {
    let message = format!("waiting for the leader to observe {key}");
    Hold::new(GateReason::CacheOutdated, message)
}

/// Returns the key of the Cluster, and its metadata as the API server has it.
fn cluster_metadata<'a>(context: &'a Context<'_>) -> Step<(Key, &'a Value)> {
    let owner = &context.facts.owner;
    let key = Key::of::<Cluster>(Server::Management, Some(&owner.namespace), &owner.name);
    let found = context.object(key.clone(), ReadPhase::Confirm)?;
    Ok((key, found.map_or(&Value::Null, |found| &found["metadata"])))
}

/// Returns the hold of a Cluster whose pending hooks differ from the cache.
fn confirm_hooks(context: &Context<'_>) -> Step<Option<Hold>> {
    let (key, metadata) = cluster_metadata(context)?;
    let hooks = metadata["annotations"][annotation::PENDING_HOOKS].as_str();
    let awaits = hooks.is_some_and(|hooks| !hooks.is_empty());
    Ok((awaits != context.facts.awaits_hooks()).then(|| unobserved(&key)))
}

/// Returns the hold of a Cluster that other gates select by its labels than by those of the cache. The cache drops labels of Clusters that
/// have many, so this is no reason to read everything again.
fn confirm_labels(context: &Context<'_>) -> Step<Option<Hold>> {
    let facts = context.facts;
    let (key, metadata) = cluster_metadata(context)?;
    let labels = metadata["labels"].as_object().into_iter().flatten();
    let labels: BTreeMap<String, String> = labels
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect();
    let differs = |gate| may_select(gate, &labels) != may_select(gate, facts.labels());
    Ok(facts.gates.iter().any(differs).then(|| {
        let message = format!(
            "waiting for the leader to observe the labels of {key}; it keeps 4 KiB of labels and annotations that Sluice does not set"
        );
        Hold::new(GateReason::CacheOutdated, message)
    }))
}

/// Returns the hold of an Enforce gate that the record lists and the cache lacks, although it exists: the watch is behind the former leader.
pub(super) fn unseen_gate(context: &Context<'_>, previous: Option<&GateRecord>) -> Step<Option<Hold>> {
    let facts = context.facts;
    let namespace = Some(facts.owner.namespace.as_str());
    let is_cached = |uid: &str| {
        let mut gates = facts.gates.iter();
        gates.any(|gate| metadata(gate).uid.as_deref() == Some(uid))
    };
    let listed = previous.into_iter().flat_map(|record| &record.selected);
    let unseen =
        listed.filter(|gate| gate.mode == GateMode::Enforce && !gate.uid.is_empty() && !is_cached(&gate.uid));
    let reads = unseen.map(|gate| -> Step<Option<Hold>> {
        let key = Key::of::<UpgradeGate>(Server::Management, namespace, &gate.name);
        let found = context.object(key.clone(), ReadPhase::Plan)?;
        let exists = found.is_some_and(|found| found["metadata"]["uid"].as_str() == Some(gate.uid.as_str()));
        Ok(exists.then(|| unobserved(&key)))
    });
    let holds: Vec<Option<Hold>> = together(reads)?.into_iter().collect::<Step<_>>()?;
    Ok(holds.into_iter().flatten().next())
}

/// Returns the hold of the first gate that differs from the cache. One that cannot be decoded opens nothing.
fn confirm_gates(context: &Context<'_>, selected: &Selected) -> Step<Option<Hold>> {
    let namespace = Some(context.facts.owner.namespace.as_str());
    let readable = selected.listed.iter().filter(|listed| {
        let mut problems = selected.problems.iter();
        !problems.any(|problem| problem.gate.as_deref() == Some(listed.name.as_str()))
    });
    let reads = readable.map(|listed| -> Step<Option<Hold>> {
        let key = Key::of::<UpgradeGate>(Server::Management, namespace, &listed.name);
        let found = context.object(key.clone(), ReadPhase::Confirm)?;
        let is_cached = found.is_some_and(|found| {
            let metadata = &found["metadata"];
            metadata["uid"].as_str() == Some(listed.uid.as_str())
                && metadata["generation"].as_i64() == Some(listed.generation)
        });
        Ok((!is_cached).then(|| unobserved(&key)))
    });
    let confirmed: Vec<Option<Hold>> = together(reads)?.into_iter().collect::<Step<_>>()?;
    Ok(confirmed.into_iter().flatten().next())
}

/// Returns the hold of a ClusterUpgrade that differs from the cache.
fn confirm_upgrade(context: &Context<'_>) -> Step<Option<Hold>> {
    let facts = context.facts;
    let namespace = Some(facts.owner.namespace.as_str());
    let key = Key::of::<ClusterUpgrade>(Server::Management, namespace, &facts.owner.name);
    let found = context.object(key.clone(), ReadPhase::Confirm)?;
    let found = found.map(|found| {
        let metadata = &found["metadata"];
        let text = |field: &str| metadata[field].as_str().map(str::to_owned);
        (text("uid"), text("resourceVersion"))
    });
    let cached = facts.upgrade.as_ref();
    let cached = cached.map(|cached| (cached.uid(), cached.resource_version()));
    Ok((found != cached).then(|| unobserved(&key)))
}

/// Returns the hold of a kubeconfig that leads to another cluster than a moment ago.
fn other_workload(before: &Reach, now: &Reach) -> Option<Hold> {
    match (before, now) {
        (Reach::Reached(before), Reach::Reached(now)) if before != now => {
            let message = "the kubeconfig of the Cluster leads to another workload cluster than before";
            Some(Hold::new(GateReason::CacheOutdated, message))
        }
        _ => None,
    }
}
