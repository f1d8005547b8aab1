//! Clusters without a resolution request, or with entries of a user: their machines do not change without a hook call either
//! (`design.md` §3.5).

use std::collections::BTreeMap;

use sluice_crds::{
    foreign::{
        Cluster,
        cluster::{Topology, Variables},
    },
    labels::{annotation, label, name},
};

use super::{
    Asked, Resolution, ResolverInputs, Unknown, asks,
    change::refused,
    data::{self, Entries},
    part::pools,
    running::Machines,
    steps::{control_plane_overrides, overrides, put, put_control_plane, put_pool},
    swap::lower,
};
use crate::{cluster::release_of, fault::Fault};

/// Refuses the label of a lower release than the one that existing machines are made of. Restores their entries, if the Cluster requested
/// a release before, or has one and entries that name one.
///
/// Users may change entries without an image, which only pin a release for a step, and entries of versions that no machine runs.
pub(super) fn pinned_data(
    Asked { old, new }: &Asked,
    topology: &Topology,
    inputs: ResolverInputs<'_>,
) -> Result<Resolution, Unknown> {
    let old = old.as_ref();
    let Some((old, before)) = old.and_then(|old| Some((old, old.spec.topology.as_ref()?))) else {
        return Ok(Resolution::default());
    };
    let machines = Machines::of(Some(old), inputs.running);
    let asked = release_of(&new.metadata);
    if asked != release_of(&old.metadata)
        && let Some(release) = inputs.releases.get(&asked)
        && let Some(why) = lower(
            release,
            data::entries_in(&before.variables).as_ref(),
            inputs.releases,
            &machines,
        )
    {
        machines.known()?;
        let text = format!("TanzuKubernetesRelease {asked} {why}");
        let field = format!("metadata.labels[{}]", label::TKR);
        return Ok(refused(vec![Fault::new(field, asked, text)]));
    }
    if !is_held_back(old, before) {
        return Ok(Resolution::default());
    }
    let held = Held { machines: &machines };
    let mut answer = Resolution::default();
    let mut places = Vec::new();
    let common = held.entries(&before.variables);
    if let Some(entries) = put_back(common.as_ref(), data::entries_in(&topology.variables).as_ref()) {
        let present = !topology.variables.is_empty();
        put(
            &topology.variables,
            present,
            "/spec/topology/variables",
            &entries,
            &mut answer.patch,
        );
        places.push("the Cluster".to_owned());
    }
    let part = |before: Option<&Variables>, asked: Option<&Entries>| {
        let of_part = before.and_then(|before| held.entries(before));
        // A part without own entries had those of the Cluster, even if it gets its own now.
        let is_own = of_part.is_some() || asked.is_some();
        let entries = of_part.or_else(|| before.and(common.clone()));
        put_back(entries.as_ref().filter(|_| is_own), asked)
    };
    let asked = control_plane_overrides(topology);
    if let Some(entries) = part(
        Some(control_plane_overrides(before)),
        data::entries_in(asked).as_ref(),
    ) {
        put_control_plane(topology, Some(&entries), &mut answer.patch);
        places.push("the control plane".to_owned());
    }
    let old: BTreeMap<_, _> = pools(before)
        .map(|(list, _, pool)| ((list, pool.name.as_str()), pool))
        .collect();
    for (list, index, pool) in pools(topology) {
        let before = old.get(&(list, pool.name.as_str()));
        let before = before.map(|old| overrides(old.variables.as_ref()));
        let asked = data::entries_in(overrides(pool.variables.as_ref()));
        if let Some(entries) = part(before, asked.as_ref()) {
            put_pool(list, index, pool, Some(&entries), &mut answer.patch);
            places.push(format!("{list}[{}]", pool.name));
        }
    }
    machines.known()?;
    if !places.is_empty() {
        places.truncate(8);
        answer.warnings.push(format!(
            "{}: entries of {} stay as they were, because machines may run them; to correct one, pause the Cluster, and edit it together \
             with annotation {}",
            name::TKR_DATA,
            places.join(", "),
            annotation::EDIT_TKR_DATA
        ));
    }
    Ok(answer)
}

/// Whether the machines of a Cluster follow a release.
pub(super) fn is_held_back(old: &Cluster, topology: &Topology) -> bool {
    let mut entries = data::entries_in(&topology.variables).into_iter().flatten();
    let is_labelled = !release_of(&old.metadata).is_empty();
    asks(&old.metadata, None).is_some()
        || (is_labelled && entries.any(|(_, entry)| data::label_of(&entry, label::TKR).is_some()))
}

/// Unchangeable entries of a Cluster.
struct Held<'a> {
    machines: &'a Machines<'a>,
}

impl Held<'_> {
    /// Returns the entries among these variables that machines may use; `None` if there are no entries.
    fn entries(&self, variables: &Variables) -> Option<Entries> {
        let entries = data::entries_in(variables)?;
        let held = entries
            .into_iter()
            .filter(|(version, entry)| data::is_whole(entry) && self.machines.may_run(version));
        Some(held.collect())
    }
}

/// Returns the requested entries with the earlier ones restored; `None` if they are unchanged.
fn put_back(before: Option<&Entries>, asked: Option<&Entries>) -> Option<Entries> {
    let before = before.filter(|before| !before.is_empty())?;
    let has_them = asked.is_some_and(|asked| !data::is_put_back(before, Some(asked)));
    (!has_them).then(|| data::kept(before, asked))
}
