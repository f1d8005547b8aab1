//! Clusters without a resolution request, or with entries of a user: their machines do not change without a hook call either
//! (`design.md` §3.5).

use std::collections::BTreeMap;

use sluice_crds::{
    foreign::{
        Cluster,
        cluster::{Topology, Variables},
    },
    labels::{label, name},
};

use super::{
    Asked, Resolution, Running, Unknown, asks,
    data::{self, Entries},
    part::pools,
    running::Machines,
    steps::{control_plane_overrides, overrides, put, put_control_plane, put_pool},
};
use crate::cluster::release_of;

/// Restores the entries of existing machines, if the Cluster requested a release before, or has one and entries that name one.
///
/// Users may change entries without an image, which only pin a release for a step, and entries of versions that no machine runs.
pub(super) fn pinned_data(
    Asked { old, new: _ }: &Asked,
    topology: &Topology,
    running: Option<&Running>,
) -> Result<Resolution, Unknown> {
    let Some(before) = old.as_ref().and_then(|old| old.spec.topology.as_ref()) else {
        return Ok(Resolution::default());
    };
    if !old.as_ref().is_some_and(|old| is_held_back(old, before)) {
        return Ok(Resolution::default());
    }
    let machines = Machines::of(old.as_ref(), running);
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
            "{}: entries of {} stay as they were, because machines may run them; to correct one, pause the Cluster, edit it, and go on",
            name::TKR_DATA,
            places.join(", ")
        ));
    }
    Ok(answer)
}

/// Whether the machines of a Cluster follow a release.
fn is_held_back(old: &Cluster, topology: &Topology) -> bool {
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
