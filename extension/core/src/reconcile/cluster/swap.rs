//! Replacement of machines by those of another release of the same Kubernetes version: the leader writes their entries in variable
//! `TKR_DATA` once the packages of the release are proven (`design.md` §3.5).
//!
//! The entries are written by the reconcile whose own reads have confirmed proofs, Cluster, class, release and images, after the record
//! that permits them.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use kube::{Resource as _, ResourceExt as _, core::ObjectMeta};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_crds::{
    foreign::{Cluster, ClusterClass, MachineDeployment, MachinePool, cluster::ClusterStatus},
    labels::{annotation, label, name},
    run::{ClusterBootstrap, OSImage, TanzuKubernetesRelease, UpgradeRecord},
};

use super::{
    Context, Done, Effects, Facts, Interrupt, Key, ReadPhase, Server, Step, UNWATCHED, WITH_PROBLEM,
    confirm_cluster::{is_deleted, is_same},
    failure::{swap_refused, webhook_in_the_way},
    interrupt::together,
    validate::Validated,
    write::Write,
};
use crate::{
    cache::stores::{Images, Releases},
    events::Event,
    packages::build::Owner,
    reasons::{GateReason, Hold},
    resolver::{ReleaseMachines, release_machines, render_swap},
    upgrade::{
        hop::{Worker, WorkerFacts},
        record::opens_swap,
        swap::{SwapFacts, SwapRequest},
    },
};

/// Longest delay before a refused write is repeated.
const LONGEST: Duration = Duration::from_mins(10);

/// Time after which a write that the cache does not show is repeated: the API server may have been restored to before it.
const UNSEEN: Duration = Duration::from_mins(2);

/// Number of workers up to which the end of a swap is confirmed by reads. The watch alone shows more of them.
const CONFIRMED: usize = 64;

/// Number of parts that a message names.
const NAMED: usize = 4;

/// Write of the entries of a release by this process.
#[derive(Debug, Clone)]
pub(super) struct EntriesWrite {
    /// Release of the entries.
    to: String,
    /// Generation of the Cluster before the write.
    generation: Option<i64>,
    /// Hold of a refused write; `None` for a write that took effect.
    refused: Option<Hold>,
    /// Time of the write.
    at: Instant,
    /// Delay before a refused write is repeated.
    delay: Duration,
}

/// Returns what is known of the machines of the Cluster, and their images in the requested release.
pub(super) fn swap_facts(
    context: &Context<'_>,
    request: Option<SwapRequest>,
) -> (SwapFacts, Option<ReleaseMachines>) {
    let facts = context.facts;
    let made_of = facts.made_of.clone();
    let to = request.as_ref().filter(|request| request.replaces());
    let Some(to) = to.map(|request| request.to.as_str()) else {
        let is_open = |record: &UpgradeRecord| record.outcome.is_none() && record.swap.is_some();
        let waits = facts.record().is_some_and(is_open);
        let known = SwapFacts {
            made_of,
            request,
            hold: None,
            outdated: waits.then(|| outdated_machines(facts)).flatten(),
        };
        return (known, None);
    };
    let (machines, hold) = match machines_of(facts, to, release_machines) {
        Ok(machines) => (Some(machines), refusal(context, to).cloned()),
        Err(why) => (None, Some(Hold::new(GateReason::MachinesNotResolved, why))),
    };
    let known = SwapFacts {
        made_of,
        request,
        hold,
        outdated: None,
    };
    (known, machines)
}

impl EntriesWrite {
    /// Returns the hold of a refused write of this release, until its delay has passed.
    pub(super) fn refusal(&self, to: &str, now: Instant) -> Option<&Hold> {
        let waits = self.to == to && now.saturating_duration_since(self.at) < self.delay;
        self.refused.as_ref().filter(|_| waits)
    }
}

/// Returns the hold of a refused write of the entries of a release, until its delay has passed.
pub(super) fn refusal<'a>(context: &Context<'a>, to: &str) -> Option<&'a Hold> {
    context.local.entries.as_ref()?.refusal(to, context.began.instant)
}

/// Resolves the images of a release for the machines of a Cluster.
type Resolve = fn(&Cluster, &ClusterClass, &Releases, &Images, &str) -> Result<ReleaseMachines, String>;

/// Returns the image of each part in a release.
pub(super) fn machines_of(facts: &Facts, to: &str, resolve: Resolve) -> Result<ReleaseMachines, String> {
    let class = facts.class.as_deref().ok_or_else(|| {
        let class = facts.topology.class_name().unwrap_or_default();
        format!("ClusterClass {class} does not exist")
    })?;
    let images = facts
        .images
        .as_deref()
        .ok_or("Sluice has not listed all OSImages yet")?;
    resolve(&facts.cluster, class, &facts.releases, images, to)
}

/// Returns the machines that Cluster API has not replaced yet. Before it has observed the current Cluster, the other objects may be from
/// before the change.
fn outdated_machines(facts: &Facts) -> Option<String> {
    let status = facts.cluster.status.as_ref();
    if let Some(why) = unobserved(status, &facts.cluster.metadata) {
        return Some(format!("waiting for Cluster API to reconcile the topology{why}"));
    }
    let control_plane = facts.control_plane.as_ref().map(|cached| &cached.rollout);
    let parts = control_plane.map(|rollout| ("control plane", rollout));
    let pools = facts
        .workers
        .iter()
        .map(|worker| (worker.pool.as_str(), &worker.rollout));
    let mut outdated: Vec<String> = parts
        .into_iter()
        .chain(pools)
        .filter(|(_, rollout)| !rollout.is_complete())
        .map(|(part, rollout)| format!("{part:.63} {rollout}"))
        .collect();
    let more = outdated.len().saturating_sub(NAMED);
    outdated.truncate(NAMED);
    match (outdated.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(outdated.join(", ")),
        (false, more) => Some(format!("{} and {more} more", outdated.join(", "))),
    }
}

/// Returns a text, empty or with the reason of Cluster API, if Cluster API has not reconciled the topology of this generation. Only the
/// conditions of v1beta2 name a generation.
fn unobserved(status: Option<&ClusterStatus>, cluster: &ObjectMeta) -> Option<String> {
    let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
    let Some(condition) = conditions.find(|condition| condition.type_ == name::TOPOLOGY_RECONCILED) else {
        return Some(String::new());
    };
    let observed = condition.observed_generation.zip(cluster.generation);
    match observed.is_none_or(|(observed, generation)| observed >= generation) {
        false => Some(String::new()),
        true if condition.is_true() => None,
        true => Some(format!(" ({:.63})", condition.reason)),
    }
}

/// Whether this process has written the entries, and the cache does not show them yet.
pub(super) fn is_written(context: &Context<'_>) -> bool {
    let cluster = &context.facts.cluster.metadata;
    let write = context.local.entries.as_ref();
    write.is_some_and(|write| {
        let since = context.began.instant.saturating_duration_since(write.at);
        write.refused.is_none() && write.generation == cluster.generation && since < UNSEEN
    })
}

/// Compares the ClusterBootstrap, and the objects that the entries of `machines` are rendered from, with the API server. Returns the hold of an
/// outdated cache. The status of the ClusterBootstrap may permit the entries already, so no write of it detects an edit.
pub(super) fn confirm_machines(
    context: &Context<'_>,
    machines: &ReleaseMachines,
    bootstrap: Option<&ClusterBootstrap>,
) -> Step<Option<Hold>> {
    let facts = context.facts;
    let namespace = Some(facts.owner.namespace.as_str());
    let bootstrap = bootstrap.map(|bootstrap| {
        let key = Key::of::<ClusterBootstrap>(Server::Management, namespace, &facts.owner.name);
        (key, bootstrap.meta())
    });
    let class = facts.class.as_deref().map(|class| {
        let key = Key::of::<ClusterClass>(
            Server::Management,
            class.namespace().as_deref(),
            &class.name_any(),
        );
        (key, class.meta())
    });
    let release = &machines.release;
    let release = (
        Key::of::<TanzuKubernetesRelease>(Server::Management, None, &release.name_any()),
        release.meta(),
    );
    let images = machines.distinct_images().map(|image| {
        let key = Key::of::<OSImage>(Server::Management, None, &image.name_any());
        (key, image.meta())
    });
    let each = class
        .into_iter()
        .chain(bootstrap)
        .chain([release])
        .chain(images)
        .map(|(key, cached)| {
            let read = context.object(key.clone(), ReadPhase::Confirm)?;
            let is_cached = read.is_some_and(|read| is_cached(read, cached));
            Ok((!is_cached).then_some(key))
        });
    first_outdated(each)
}

/// Returns the hold of the first object that differs from the cache.
fn first_outdated(each: impl Iterator<Item = Step<Option<Key>>>) -> Step<Option<Hold>> {
    let outdated: Vec<Option<Key>> = together(each)?.into_iter().collect::<Step<_>>()?;
    Ok(outdated.into_iter().flatten().next().map(|key| {
        Hold::new(
            GateReason::CacheOutdated,
            format!("waiting for the leader to observe {key}"),
        )
    }))
}

/// Whether an object is the cached one: its spec, its labels, which select and exclude releases and images, and the annotations that select
/// releases and packages.
fn is_cached(read: &Value, cached: &ObjectMeta) -> bool {
    const EXCLUDING: [&str; 4] = [
        label::INCOMPATIBLE,
        label::DEACTIVATED,
        label::INVALID,
        label::LEGACY_TKR,
    ];
    const ANNOTATIONS: [&str; 3] = [
        annotation::RESOLVE_TKR,
        annotation::RESOLVED_TKR,
        annotation::KEEP_PACKAGE_VERSIONS,
    ];
    let read_in = |field: &str, key: &str| read["metadata"][field][key].as_str();
    let cached_in = |entries: &Option<BTreeMap<String, String>>, key: &str| {
        entries.as_ref().and_then(|entries| entries.get(key)).cloned()
    };
    let labels = &cached.labels;
    let is_annotation =
        |key: &&str| read_in("annotations", key) == cached_in(&cached.annotations, key).as_deref();
    let mut cached_keys = labels.iter().flatten().map(|(key, _)| key.as_str());
    let is_label = |key: &str| read_in("labels", key) == cached_in(labels, key).as_deref();
    is_same(read, cached.uid.as_deref(), cached.generation)
        && is_deleted(read) == cached.deletion_timestamp.is_some()
        && EXCLUDING.iter().all(|key| is_label(key))
        && cached_keys.all(is_label)
        && ANNOTATIONS.iter().all(is_annotation)
}

/// Compares the workers whose machines are replaced with the API server, before an upgrade ends by their status. Returns the hold of an
/// outdated cache.
pub(super) fn confirm_workers(context: &Context<'_>) -> Step<Option<Hold>> {
    let namespace = Some(context.facts.owner.namespace.as_str());
    if context.facts.workers.len() > CONFIRMED {
        return Ok(None);
    }
    let each = context.facts.workers.iter().map(|worker| {
        let key = if worker.is_pool {
            Key::of::<MachinePool>(Server::Management, namespace, &worker.name)
        } else {
            Key::of::<MachineDeployment>(Server::Management, namespace, &worker.name)
        };
        let read = context.object(key.clone(), ReadPhase::Confirm)?;
        let facts = read.and_then(|read| {
            if worker.is_pool {
                worker_facts::<MachinePool>(read)
            } else {
                worker_facts::<MachineDeployment>(read)
            }
        });
        Ok(facts
            .is_none_or(|facts| !facts.rollout.is_complete())
            .then_some(key))
    });
    first_outdated(each)
}

fn worker_facts<K: Worker + DeserializeOwned>(object: &Value) -> Option<WorkerFacts> {
    WorkerFacts::of(&K::deserialize(object).ok()?)
}

/// Writes the entries of a release if `record` permits it. The record is written, and this reconcile has confirmed what it rests on.
/// Otherwise returns the requeue delay `next`.
pub(super) fn write_swap(
    context: &Context<'_>,
    effects: &mut Effects,
    validated: &Validated,
    record: Option<&UpgradeRecord>,
    next: Duration,
) -> Step<Done> {
    let facts = context.facts;
    let swap = record
        .filter(|record| opens_swap(record))
        .and_then(|record| record.swap.as_ref());
    let (Some(swap), Some(machines)) = (swap, &validated.machines) else {
        return Ok(Done::RequeueAfter(next));
    };
    let rendered = render_swap(&facts.cluster, &machines.release, &machines.images);
    let why = "the packages of the release are proven";
    write_entries(context, effects, (&swap.version, &swap.to), rendered, why)
}

/// Returns the key of the Cluster.
pub(super) fn cluster_key(facts: &Facts) -> Key {
    let Owner { namespace, name, .. } = &facts.owner;
    Key::of::<Cluster>(Server::Management, Some(namespace), name)
}

/// Writes the entries of a release for a Kubernetes version by one patch. This reconcile has confirmed the Cluster by a read.
pub(super) fn write_entries(
    context: &Context<'_>,
    effects: &mut Effects,
    (version, to): (&str, &str),
    rendered: Vec<Value>,
    why: &'static str,
) -> Step<Done> {
    let facts = context.facts;
    let key = cluster_key(facts);
    // The cached Cluster may have another status.
    let read = context.object(key.clone(), ReadPhase::Confirm)?;
    let read = read.and_then(|read| read["metadata"]["resourceVersion"].as_str());
    let write = Write::json_patch(key, read.unwrap_or_default(), rendered, why);
    let refused = match context.write(write) {
        // A webhook that restores the entry leaves the generation unchanged.
        Ok(written) if written["metadata"]["generation"].as_i64() != facts.cluster.metadata.generation => {
            None
        }
        Ok(_) => Some(Hold::new(
            GateReason::WriteRefused,
            format!(
                "Cluster {}/{}: a webhook restores the entry for {version} in {} after Sluice wrote that of {to}; find the webhook and \
                 exempt the account of Sluice",
                facts.owner.namespace,
                facts.owner.name,
                name::TKR_DATA,
            ),
        )),
        // The Cluster was edited since it was read.
        Err(Interrupt::Failed(failure)) if failure.is_conflict() || failure.is_failed_patch() => {
            return Ok(Done::RequeueAfter(UNWATCHED));
        }
        Err(Interrupt::Failed(failure))
            if matches!(failure.code, Some(400 | 403 | 413 | 422))
                || failure.uncalled_webhook().is_some() =>
        {
            let object = format!("Cluster {}/{}", facts.owner.namespace, facts.owner.name);
            let hold = webhook_in_the_way(&object, &failure);
            Some(hold.unwrap_or_else(|| swap_refused(&object, to, &failure)))
        }
        Err(stop) => return Err(stop),
    };
    let before = context.local.entries.as_ref().filter(|before| before.to == to);
    let delay = before.map_or(WITH_PROBLEM, |before| (before.delay * 2).min(LONGEST));
    effects.local.entries = Some(Box::new(EntriesWrite {
        to: to.to_owned(),
        generation: facts.cluster.metadata.generation,
        refused,
        at: context.began.instant,
        delay,
    }));
    Ok(Done::RequeueAfter(UNWATCHED))
}

/// Warns of an edited entry of machines, which admission accepts on a paused Cluster by an annotation. An annotation that was there when
/// the record was written is not reported again.
pub(super) fn warn_of_edit(context: &Context<'_>, effects: &mut Effects) {
    let facts = context.facts;
    let edited = facts.cluster.annotations().get(annotation::EDIT_TKR_DATA);
    if effects.local.edited.as_ref() == edited {
        return;
    }
    effects.local.edited = edited.cloned();
    let is_observed = |record: &UpgradeRecord| {
        Some(record.observed_cluster_generation) == facts.cluster.metadata.generation
    };
    let (Some(version), false) = (edited, facts.record().is_some_and(is_observed)) else {
        return;
    };
    let note = format!(
        "the entry for {version:.63} in {} was edited: Cluster API replaces machines of {version:.63}, and no proof of their packages \
         precedes it; if the label names a newer release than the entry, Sluice replaces the machines again",
        name::TKR_DATA
    );
    effects.events.push(Event::Warned("TKRDataEdited", note));
}
