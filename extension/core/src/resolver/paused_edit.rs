//! Edits of entries on a paused Cluster, where no entry is put back. Once the pause ends, Cluster API replaces the machines of an edited
//! entry, and no proof of their packages precedes it (`design.md` §3.5).

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use sluice_crds::{
    foreign::{Cluster, cluster::Topology},
    labels::{annotation, name},
};

use super::{
    Asked, Resolution, Running, Unknown, change::refused, data, pinned_data::is_held_back, running::Machines,
    steps::variable_lists,
};
use crate::fault::Fault;

/// Refuses to change or remove an entry that machines may run, unless the request sets [`annotation::EDIT_TKR_DATA`] to its version. A
/// move by `clusterctl` creates the Cluster, and changes only `spec.paused` later.
pub(super) fn paused_edit(
    Asked { old, new }: &Asked,
    topology: &Topology,
    running: Option<&Running>,
) -> Result<Resolution, Unknown> {
    let old = old.as_ref();
    let Some((old, before)) = old.and_then(|old| Some((old, old.spec.topology.as_ref()?))) else {
        return Ok(Resolution::default());
    };
    if !is_held_back(old, before) {
        return Ok(Resolution::default());
    }
    let machines = Machines::of(Some(old), running);
    // An annotation of an earlier edit permits no other one.
    let permitted = annotated(new).filter(|version| annotated(old) != Some(*version));
    let fault = edited(before, topology, permitted, &machines);
    machines.known()?;
    Ok(refused(fault.into_iter().collect()))
}

fn annotated(cluster: &Cluster) -> Option<&str> {
    let version = cluster.annotations().get(annotation::EDIT_TKR_DATA);
    version.map(String::as_str)
}

/// Returns the fault of the first edited entry of another version than the permitted one.
fn edited(
    before: &Topology,
    asked: &Topology,
    permitted: Option<&str>,
    machines: &Machines<'_>,
) -> Option<Fault> {
    let before: BTreeMap<_, _> = variable_lists(before)
        .map(|(field, variables)| (field, data::entries_in(variables)))
        .collect();
    let mut common = None;
    for (field, variables) in variable_lists(asked) {
        // The machines of a new pool do not exist yet.
        let Some(before) = before.get(&field) else {
            continue;
        };
        let asked = data::entries_in(variables);
        // A part without own entries has those of the Cluster, which are the first.
        let (common_before, common_asked) = common.get_or_insert_with(|| (before.clone(), asked.clone()));
        let before = before.as_ref().or(common_before.as_ref());
        let asked = asked.as_ref().or(common_asked.as_ref());
        let found = before.into_iter().flatten().find(|(version, entry)| {
            data::is_whole(entry)
                && asked.and_then(|asked| asked.get(*version)) != Some(*entry)
                && permitted != Some(version.as_str())
                && machines.may_run(version)
        });
        if let Some((version, _)) = found {
            let key = annotation::EDIT_TKR_DATA;
            let text = format!(
                "machines may run {version}, and a change of its entry would replace them without proof of the packages; to change it, \
                 set annotation {key} of the Cluster to {version} in the same request; if the annotation has that value already, remove \
                 it first; each version needs a request of its own"
            );
            return Some(Fault::new(format!("{field}[{}]", name::TKR_DATA), version, text));
        }
    }
    None
}
