//! Entry for the next hop in variable `TKR_DATA` of a Cluster. Cluster API makes the machines of a version from it, and calls no hook if it
//! is added later: machines would be made without their image, and replaced at once. Therefore the leader writes it before the packages of
//! the hop are merged and any gate of the hop opens.
//!
//! From then on the entry pins the release of the hop.

use serde::Deserialize as _;
use serde_json::Value;
use sluice_crds::{
    labels::name,
    run::{ClusterBootstrap, UpgradeRecord},
};

use super::{
    Context, Done, Effects, Facts, Key, ReadPhase, Server, Step, UNWATCHED,
    confirm_cluster::confirm_cluster,
    interrupt::{needs_of, together},
    opening::is_before_control_plane,
    swap::{confirm_machines, is_written, machines_of, refusal, write_entries},
    validate::Validated,
};
use crate::{
    reasons::{GateReason, Hold},
    resolver::{
        ReleaseMachines, asks, describes_images, has_entries, lacks_entry, newest_release, odd_entries,
        pinned_machines, release_machines, render_missing,
    },
    upgrade::{
        hop::{Progress, UpgradeDirection},
        record::of_cluster,
        tkr::{TkrFacts, pinned},
    },
    version::same,
};

/// Returns the release of a version on the way to the target, if the Cluster requests a resolution and several releases have that version;
/// see [`newest_release`].
pub(super) fn chosen(
    facts: &Facts,
    progress: &Progress,
    releases: &[TkrFacts],
) -> Result<Option<String>, Hold> {
    let hop = progress.hop.as_str();
    let is_of_hop = |release: &&TkrFacts| !release.legacy && release.kubernetes_version == hop;
    let class = facts.class.as_deref();
    let class = class.filter(|class| asks(&facts.cluster.metadata, Some(*class)).is_some());
    let is_on_the_way = progress.direction == UpgradeDirection::Forward && hop != facts.topology.version;
    let (Some(class), true) = (class, is_on_the_way) else {
        return Ok(None);
    };
    let mut of_hop = releases.iter().filter(is_of_hop);
    if of_hop.clone().any(|release| release.name == facts.label) {
        return Ok(None);
    }
    // Merged packages are not exchanged, also if their release is not usable any more.
    let merged = facts.resolved_release();
    let merged = merged.release();
    if let Some(merged) = of_hop.clone().find(|release| merged == Some(&release.name)) {
        return Ok(Some(merged.name.clone()));
    }
    if of_hop.nth(1).is_none() {
        return Ok(None);
    }
    let objects = (facts.releases.as_ref(), facts.images.as_deref());
    newest_release(&facts.cluster, class, objects, hop)
        .map(Some)
        .map_err(|why| {
            let text = format!("no TanzuKubernetesRelease of Kubernetes {hop} is usable: {why}");
            Hold::new(GateReason::MachinesNotResolved, text)
        })
}

/// Returns the images of the entry for the hop that is still to be written with this release; `None` if there is one, or none is needed.
///
/// # Errors
/// The hold of an entry that cannot be written. An image that is not found is no hold if nothing [selects](describes_images) images.
pub(super) fn missing(
    context: &Context<'_>,
    progress: &Progress,
    release: &str,
) -> Result<Option<ReleaseMachines>, Hold> {
    let facts = context.facts;
    let is_ahead =
        progress.direction == UpgradeDirection::Forward && progress.settled_at().is_some() && !progress.taken;
    let class = facts.class.as_deref().filter(|_| is_ahead);
    if !class.is_some_and(|class| has_entries(&facts.cluster, class))
        || !lacks_entry(&facts.topology, &progress.hop)
    {
        return Ok(None);
    }
    let not_resolved = |why: String| Hold::new(GateReason::MachinesNotResolved, why);
    if let Some(field) = odd_entries(&facts.topology) {
        return Err(not_resolved(format!("{field} is not an object")));
    }
    let is_pinned = pinned(&facts.topology, &progress.hop).is_some();
    let resolve = if is_pinned {
        pinned_machines
    } else {
        release_machines
    };
    let machines = match machines_of(facts, release, resolve) {
        Ok(machines) => machines,
        Err(why) if class.is_some_and(|class| describes_images(&facts.cluster, class)) => {
            return Err(not_resolved(why));
        }
        // Users who write entries by hand may have releases that do not describe their images.
        Err(_) => return Ok(None),
    };
    match refusal(context, release) {
        Some(refused) => Err(refused.clone()),
        // With an open gate, Cluster API may take the step at any time.
        None if releases(facts.record(), &progress.hop) => Err(not_written(&progress.hop)),
        None => Ok(Some(machines)),
    }
}

/// Returns the hold of an entry that the cached Cluster does not have.
pub(super) fn not_written(hop: &str) -> Hold {
    let text = format!(
        "waiting for the entry for {hop} in {} of the Cluster",
        name::TKR_DATA
    );
    Hold::new(GateReason::EntryNotWritten, text)
}

/// Whether a record releases the step of the control plane to a version.
fn releases(record: Option<&UpgradeRecord>, version: &str) -> bool {
    let record = record.filter(|record| record.outcome.is_none());
    record
        .into_iter()
        .flat_map(|record| &record.gates)
        .any(|gate| is_before_control_plane(gate.hook) && gate.open && same(&gate.version, version))
}

/// Writes the missing entry for the hop. Returns `None` if there is none.
pub(super) fn write(
    context: &Context<'_>,
    effects: &mut Effects,
    validated: &Validated,
) -> Step<Option<Done>> {
    const WHY: &str = "machines of the next Kubernetes version need their entry";
    let facts = context.facts;
    let Some(machines) = &validated.entry else {
        return Ok(None);
    };
    let again = Ok(Some(Done::RequeueAfter(UNWATCHED)));
    if is_written(context) {
        // The watch will show the written entry.
        return again;
    }
    let confirmed = confirm_cluster(
        context,
        &facts.owner,
        &facts.cluster,
        facts.control_plane.as_ref(),
    );
    let of_machines = confirm_machines(context, machines, facts.bootstrap.as_deref());
    together([needs_of(&confirmed), needs_of(&of_machines)])?;
    let confirmed = confirmed?;
    effects.rolled_back = confirmed.rolled_back;
    let outdated = confirmed.outdated.or(of_machines?);
    effects.outdated = effects
        .local
        .outdated_for_long(outdated.as_ref(), context.began.instant);
    if outdated.is_some() || has_open_gate(context, &validated.progress.hop)? {
        return again;
    }
    let rendered = render_missing(&facts.cluster, &machines.release, &machines.images);
    if rendered.is_empty() {
        return again;
    }
    let release = machines.release.metadata.name.as_deref().unwrap_or_default();
    write_entries(
        context,
        effects,
        (&validated.progress.hop, release),
        rendered,
        WHY,
    )
    .map(Some)
}

/// Whether the record of the API server releases the step, which a cache may not show.
fn has_open_gate(context: &Context<'_>, hop: &str) -> Step<bool> {
    let owner = &context.facts.owner;
    if context.facts.bootstrap.is_none() {
        return Ok(false);
    }
    let key = Key::of::<ClusterBootstrap>(Server::Management, Some(&owner.namespace), &owner.name);
    let read = context.object(key, ReadPhase::Confirm)?;
    let record = read.map_or(&Value::Null, |read| &read["status"]["upgrade"]);
    let record = UpgradeRecord::deserialize(record).ok();
    Ok(releases(of_cluster(record.as_ref(), &owner.uid), hop))
}

#[cfg(test)]
mod tests;
