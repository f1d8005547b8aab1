//! Clusters without a resolution request, or with entries of a user: their machines do not change without a hook call either
//! (`design.md` §3.5).

use std::collections::BTreeMap;

use serde_json::Value;
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
    unused::VersionChange,
};
use crate::{cluster::release_of, fault::Fault};

/// Refuses the label of a lower release than the one that existing machines are made of. Restores their entries, if the Cluster requested
/// a release before, or has one and entries that name one.
///
/// Users may change entries without an image, which only pin a release for a step, and entries of versions that no machine runs. A change of
/// the version removes the unused ones. A change of the label removes the entry of the release before while no machine runs its version: the
/// leader writes that of the label.
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
    let (asked, label_before) = (release_of(&new.metadata), release_of(&old.metadata));
    if asked != label_before
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
    let held = Held {
        change: VersionChange {
            from: &before.version,
            to: &topology.version,
            machines: &machines,
        },
        common: data::entries_in(&before.variables),
        outdated: inputs
            .releases
            .get(&asked)
            .filter(|_| asked != label_before)
            .map(|release| (release.spec.kubernetes.version.as_str(), label_before.as_str())),
    };
    let mut answer = Resolution::default();
    let mut places = Vec::new();
    let common = held.entries(&before.variables);
    let asked = data::entries_in(&topology.variables);
    let restored = put_back(common.as_ref(), asked.as_ref());
    if restored.is_some() {
        places.push("the Cluster".to_owned());
    }
    if let Some(entries) = held.changed(restored, asked.as_ref(), &before.variables) {
        let present = !topology.variables.is_empty();
        put(
            &topology.variables,
            present,
            "/spec/topology/variables",
            &entries,
            &mut answer.patch,
        );
    }
    let part = |before: Option<&Variables>, asked: Option<&Entries>| {
        let of_part = before.and_then(|before| held.entries(before));
        // A part without own entries had those of the Cluster, even if it gets its own now.
        let is_own = of_part.is_some() || asked.is_some();
        let entries = of_part.or_else(|| before.and(common.clone()));
        put_back(entries.as_ref().filter(|_| is_own), asked)
    };
    let own = control_plane_overrides(before);
    let asked = data::entries_in(control_plane_overrides(topology));
    let restored = part(Some(own), asked.as_ref());
    if restored.is_some() {
        places.push("the control plane".to_owned());
    }
    if let Some(entries) = held.changed(restored, asked.as_ref(), own) {
        put_control_plane(topology, Some(&entries), &mut answer.patch);
    }
    let old: BTreeMap<_, _> = pools(before)
        .map(|(list, _, pool)| ((list, pool.name.as_str()), pool))
        .collect();
    for (list, index, pool) in pools(topology) {
        let before = old.get(&(list, pool.name.as_str()));
        let before = before.map(|old| overrides(old.variables.as_ref()));
        let asked = data::entries_in(overrides(pool.variables.as_ref()));
        let restored = part(before, asked.as_ref());
        if restored.is_some() {
            places.push(format!("{list}[{}]", pool.name));
        }
        let own = before.unwrap_or_else(|| overrides(None));
        if let Some(entries) = held.changed(restored, asked.as_ref(), own) {
            put_pool(list, index, pool, Some(&entries), &mut answer.patch);
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

/// Entries of a Cluster before a request: protected ones, and ones to remove.
struct Held<'a> {
    change: VersionChange<'a>,
    /// All earlier entries of the Cluster itself.
    common: Option<Entries>,
    /// Version of a changed label, and the release of the label before. While no machine runs the version, its entry of that release is
    /// removed, and the leader writes that of the label.
    outdated: Option<(&'a str, &'a str)>,
}

impl Held<'_> {
    /// Returns the entries among these variables that machines may use; `None` if there are no entries.
    fn entries(&self, variables: &Variables) -> Option<Entries> {
        let entries = data::entries_in(variables)?;
        let held = entries
            .into_iter()
            .filter(|(version, entry)| data::is_whole(entry) && self.change.machines.may_run(version));
        Some(held.collect())
    }

    /// Returns the restored or the requested entries of the Cluster or of a part without unused ones; `None` if they are those of the request.
    /// `own` are the earlier variables.
    fn changed(
        &self,
        restored: Option<Entries>,
        asked: Option<&Entries>,
        own: &Variables,
    ) -> Option<Entries> {
        let entries = restored.or_else(|| asked.cloned())?;
        let mut entries = self.change.without_unused_of(entries, own, self.common.as_ref());
        entries.retain(|version, entry| !self.is_outdated(version, entry));
        (Some(&entries) != asked).then_some(entries)
    }

    /// Whether an entry is that of an earlier label, and no machine runs its version.
    fn is_outdated(&self, version: &str, entry: &Value) -> bool {
        self.outdated.is_some_and(|(of, release)| {
            of == version
                && data::is_whole(entry)
                && data::label_of(entry, label::TKR) == Some(release)
                && !self.change.machines.may_run(version)
        })
    }
}

/// Returns the requested entries with the earlier ones restored; `None` if they are unchanged.
fn put_back(before: Option<&Entries>, asked: Option<&Entries>) -> Option<Entries> {
    let before = before.filter(|before| !before.is_empty())?;
    let has_them = asked.is_some_and(|asked| !data::is_put_back(before, Some(asked)));
    (!has_them).then(|| data::kept(before, asked))
}
