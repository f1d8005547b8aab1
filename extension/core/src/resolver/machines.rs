//! Entries of `TKR_DATA`: of the Cluster, and of pools with other images.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use kube::ResourceExt as _;
use serde_json::Value;
use sluice_crds::{
    foreign::cluster::{Variables, WorkerTopology},
    labels::{annotation, label, name},
    run::{OSImage, TanzuKubernetesRelease},
};

use super::{
    change::ClusterChange,
    data::{self, Entries},
    part::{Part, pools},
    pick::Picked,
    steps::{control_plane_overrides, overrides, put, put_control_plane, put_pool},
    swap,
    unused::VersionChange,
};
use crate::{cluster::release_of, fault::Fault, version::below};

impl<'a> ClusterChange<'a> {
    /// Whether machines of the version of this release may exist, so that their entry must not change.
    pub(super) fn is_frozen(&self, release: &TanzuKubernetesRelease) -> bool {
        let version = &release.spec.kubernetes.version;
        match self
            .entries_before
            .as_ref()
            .and_then(|entries| entries.get(version))
        {
            Some(_) => !self.is_replaced(release),
            None => self.runs_without(version),
        }
    }

    /// Whether the entry for the version of this release is replaced: no machine runs it, and it has no image or is of another release. So
    /// a held upgrade can switch to another release if packages of the first one never become ready.
    fn is_replaced(&self, release: &TanzuKubernetesRelease) -> bool {
        let version = &release.spec.kubernetes.version;
        let entry = self
            .entries_before
            .as_ref()
            .and_then(|entries| entries.get(version));
        let is_other = entry.is_some_and(|entry| {
            let made_of = data::label_of(entry, label::TKR);
            !data::is_whole(entry) || made_of.is_some_and(|made_of| made_of != release.name_any())
        });
        is_other && !self.machines.may_run(version)
    }

    /// Whether machines of a version without an entry may exist: that of the Cluster, or an earlier one that the request goes back to. A
    /// later entry would roll them.
    fn runs_without(&self, version: &str) -> bool {
        let entries = self.entries_before.as_ref();
        let has_entry = entries.is_some_and(|entries| entries.contains_key(version));
        let topology = self.old.and_then(|old| old.spec.topology.as_ref());
        let is_at =
            topology.is_some_and(|before| before.version == version || below(version, &before.version));
        !has_entry && is_at && self.machines.may_run(version)
    }

    /// Returns these earlier entries without the replaced one and the unused ones.
    fn staying(&self, mut entries: Entries, release: &TanzuKubernetesRelease) -> Entries {
        if self.is_replaced(release) {
            entries.remove(&release.spec.kubernetes.version);
        }
        self.version_change(release).without_unused(entries, |_| true)
    }

    /// Returns these new entries of the Cluster or of a part without [unused](VersionChange::without_unused_of) ones.
    fn used(&self, entries: Entries, own: &Variables, release: &TanzuKubernetesRelease) -> Entries {
        let common = self.entries_before.as_ref();
        self.version_change(release)
            .without_unused_of(entries, own, common)
    }

    fn version_change<'c>(&'c self, release: &'c TanzuKubernetesRelease) -> VersionChange<'c> {
        let to = release.spec.kubernetes.version.as_str();
        let old = self.old.and_then(|old| old.spec.topology.as_ref());
        VersionChange {
            from: old.map_or(to, |old| old.version.as_str()),
            to,
            machines: &self.machines,
        }
    }

    /// Returns release and images for a version that no machine runs: the release that an entry without an image pins, otherwise the picked
    /// one.
    fn made_of(&self, picked: &Picked) -> Result<Picked, Fault> {
        let version = &picked.release.spec.kubernetes.version;
        let asked = data::entries_in(&self.topology.variables);
        let pin = self
            .entries_before
            .as_ref()
            .and_then(|entries| entries.get(version));
        let pin = pin
            .or_else(|| asked.as_ref()?.get(version))
            .filter(|pin| !data::is_whole(pin));
        let pinned = pin.and_then(|pin| self.query.releases.get(data::label_of(pin, label::TKR)?));
        let pinned = pinned.filter(|pinned| {
            pinned.spec.kubernetes.version == *version && pinned.name_any() != picked.release.name_any()
        });
        let Some(pinned) = pinned.filter(|_| !self.is_frozen(&picked.release)) else {
            return Ok(picked.clone());
        };
        self.query.images_in(pinned, &self.parts).map_err(|why| {
            let field = format!("spec.topology.variables[{}]", name::TKR_DATA);
            let text = self.unresolved(&format!("{} {why}", pinned.name_any()));
            Fault::new(field, pinned.name_any(), text)
        })
    }

    pub(super) fn data(
        &self,
        picked: &Picked,
        steps: &mut Vec<Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Fault> {
        let picked = &self.made_of(picked)?;
        let release = &picked.release;
        let version = release.spec.kubernetes.version.as_str();
        let repository = data::repository(self.topology);
        let before = &self.staying(self.entries_before.clone().unwrap_or_default(), release);
        let asked = data::entries_in(&self.topology.variables);
        let asked = asked.as_ref();
        if data::is_put_back(before, asked) {
            warnings.push(format!(
                "{}: entries of the Cluster stay as they were, because machines may run them",
                name::TKR_DATA
            ));
        }
        let next = match before.get(version) {
            Some(entry) => {
                self.say_kept(entry, release, warnings);
                data::kept(before, asked)
            }
            None if self.runs_without(version) => {
                warnings.push(format!(
                    "TKRDataKept: machines of {version} were made without {}; those of the next version are made with it",
                    name::TKR_DATA
                ));
                without(data::kept(before, asked), version)
            }
            None => {
                let image = picked.images.first();
                let made = image.map(|image| data::entry(release, image, repository.as_deref()));
                let restored = self.restored(asked, version, &release.name_any());
                match restored.cloned().or(made) {
                    Some(entry) => data::with_entry(before, asked, version, &entry),
                    None => data::kept(before, asked),
                }
            }
        };
        let next = self.used(next, overrides(None), release);
        put(
            &self.topology.variables,
            !self.topology.variables.is_empty(),
            "/spec/topology/variables",
            &next,
            steps,
        );
        let old = self.old.and_then(|old| old.spec.topology.as_ref());
        let own = old.map_or(overrides(None), control_plane_overrides);
        let of_control_plane = self.control_plane_entries(release, &next, warnings);
        let of_control_plane = of_control_plane.map(|entries| self.used(entries, own, release));
        put_control_plane(self.topology, of_control_plane.as_ref(), steps);
        let old: BTreeMap<_, _> = old
            .into_iter()
            .flat_map(pools)
            .map(|(list, _, pool)| ((list, pool.name.as_str()), pool))
            .collect();
        for (at, (list, index, pool)) in pools(self.topology).enumerate() {
            let of = Pool {
                topology: pool,
                old: old.get(&(list, pool.name.as_str())).copied(),
                part: &self.parts[at + 1],
                image: picked.images.get(at + 1),
            };
            let own = overrides(of.old.and_then(|old| old.variables.as_ref()));
            let entries = self.pool_entries(&of, release, &next, warnings)?;
            let entries = entries.map(|entries| self.used(entries, own, release));
            put_pool(list, index, pool, entries.as_ref(), steps);
        }
        Ok(())
    }

    /// Warns that the label alone changes no machine.
    fn say_kept(&self, entry: &Value, release: &TanzuKubernetesRelease, warnings: &mut Vec<String>) {
        let (name, version) = (release.name_any(), &release.spec.kubernetes.version);
        let made_of = data::label_of(entry, label::TKR);
        let Some(made_of) = made_of.filter(|made_of| *made_of != name) else {
            return;
        };
        let is_higher = swap::compared(release, made_of, self.query.releases) == Some(Ordering::Greater);
        warnings.push(if is_higher && data::is_whole(entry) {
            format!(
                "{}: packages are upgraded to TanzuKubernetesRelease {name} first; then Sluice replaces the machines of {version}, which \
                 are made of {made_of}",
                name::TKR_DATA
            )
        } else {
            format!(
                "TKRDataKept: machines of {version} stay as TanzuKubernetesRelease {made_of} made them, although the label names {name}"
            )
        });
    }

    /// Returns the entry of a restored Cluster, which names its release.
    pub(super) fn restored<'e>(
        &self,
        asked: Option<&'e Entries>,
        version: &str,
        release: &str,
    ) -> Option<&'e Value> {
        let is_again = self.old.is_none() && !release.is_empty() && release_of(&self.new.metadata) == release;
        let entry = asked?.get(version)?;
        let names = data::label_of(entry, label::TKR) == Some(release);
        (is_again && names && data::is_whole(entry)).then_some(entry)
    }

    /// Returns the own entries of the control plane, which override `next`, those of the Cluster. They are only the earlier or restored
    /// ones: any other entry would roll the control plane without a request.
    fn control_plane_entries(
        &self,
        release: &TanzuKubernetesRelease,
        next: &Entries,
        warnings: &mut Vec<String>,
    ) -> Option<Entries> {
        let version = release.spec.kubernetes.version.as_str();
        let asked = data::entries_in(control_plane_overrides(self.topology));
        let asked = asked.as_ref();
        let Some(old) = self.old.and_then(|old| old.spec.topology.as_ref()) else {
            let restored = self.restored(asked, version, &release.name_any());
            if restored.is_none() && asked.is_some() {
                warnings.push(format!(
                    "{}: the control plane is made of the entries of the Cluster, not of its own; select its OSImage by annotation {}",
                    name::TKR_DATA,
                    annotation::RESOLVE_OS_IMAGE
                ));
            }
            return asked.filter(|_| restored.is_some()).cloned();
        };
        let before = data::entries_in(control_plane_overrides(old));
        let before = before.map(|before| self.staying(before, release));
        let is_changed = match &before {
            Some(before) => data::is_put_back(before, asked) || asked.is_none(),
            None => asked.is_some(),
        };
        if is_changed {
            warnings.push(format!("{} of the control plane stays as it was", name::TKR_DATA));
        }
        let before = before?;
        Some(match next.get(version) {
            _ if before.contains_key(version) => data::kept(&before, asked),
            Some(entry) if !self.is_frozen(release) => data::with_entry(&before, asked, version, entry),
            _ => without(data::kept(&before, asked), version),
        })
    }

    /// Returns the own entries of a pool, which override `next`, those of the Cluster; `None` if it has none.
    fn pool_entries(
        &self,
        of: &Pool<'a>,
        release: &Arc<TanzuKubernetesRelease>,
        next: &Entries,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Entries>, Fault> {
        let version = release.spec.kubernetes.version.as_str();
        let repository = data::repository(self.topology);
        let asked = data::entries_in(overrides(of.topology.variables.as_ref()));
        let asked = asked.as_ref();
        let image_of = |entry: Option<&Value>| {
            let name = entry.and_then(|entry| data::label_of(entry, label::OS_IMAGE));
            name.map(str::to_owned)
        };
        let common = image_of(next.get(version));
        let none = Entries::new();
        let of_cluster = self.entries_before.as_ref().unwrap_or(&none);
        let before = of
            .old
            .and_then(|old| data::entries_in(overrides(old.variables.as_ref())));
        let before = before.map(|before| self.staying(before, release));
        let is_frozen = self.is_frozen(release);
        let is_changed = match &before {
            Some(before) => data::is_put_back(before, asked),
            None => of.old.is_some() && is_frozen && asked.is_some(),
        };
        if is_changed {
            warnings.push(format!(
                "{}: entries of {} stay as they were, because machines may run them",
                name::TKR_DATA,
                of.part.place
            ));
        }
        match (of.old, &before) {
            (Some(_), Some(before)) if before.contains_key(version) => Ok(Some(data::kept(before, asked))),
            (Some(_), Some(before)) if is_frozen => Ok(Some(without(data::kept(before, asked), version))),
            (Some(_), None) if is_frozen => Ok(None),
            (Some(_), _) => {
                let Some(image) = of.image else {
                    return Ok(before);
                };
                let entry = data::entry(release, image, repository.as_deref());
                let is_needed = before.is_some() || image_of(Some(&entry)) != common;
                let others = without(of_cluster.clone(), version);
                let (before, asked) = before.as_ref().map_or((&others, None), |before| (before, asked));
                Ok(is_needed.then(|| data::with_entry(before, asked, version, &entry)))
            }
            (None, _) if self.runs_without(version) => Ok(None),
            (None, _) if self.restored(asked, version, &release.name_any()).is_some() => Ok(asked.cloned()),
            (None, _) => {
                let entry = self.entry_of_new_pool(of, release, next)?;
                let is_other = image_of(Some(&entry)) != common;
                let others = without(of_cluster.clone(), version);
                Ok(is_other.then(|| data::with_entry(&others, None, version, &entry)))
            }
        }
    }

    /// Returns the entry of a pool that is new to the version: an image of the release of the other machines.
    fn entry_of_new_pool(
        &self,
        of: &Pool<'a>,
        release: &Arc<TanzuKubernetesRelease>,
        next: &Entries,
    ) -> Result<Value, Fault> {
        let version = release.spec.kubernetes.version.as_str();
        let repository = data::repository(self.topology);
        if let Some(image) = of.image {
            return Ok(data::entry(release, image, repository.as_deref()));
        }
        let common = next.get(version);
        if let Some(common) = common.filter(|_| of.part.text == self.parts[0].text) {
            return Ok(common.clone());
        }
        let made_of = common.and_then(|entry| data::label_of(entry, label::TKR));
        let made_of = made_of
            .and_then(|name| self.query.releases.get(name))
            .unwrap_or(release);
        let picked = self.query.images_in(made_of, std::slice::from_ref(of.part));
        let picked = picked.map_err(|why| {
            let field = format!("spec.topology.workers.{}", of.part.place);
            let text = self.unresolved(&format!("{} {why}", made_of.name_any()));
            Fault::new(field, of.part.text.clone().unwrap_or_default(), text)
        })?;
        let image = picked.images.first();
        Ok(image.map_or(Value::Null, |image| {
            data::entry(made_of, image, repository.as_deref())
        }))
    }
}

fn without(mut entries: Entries, version: &str) -> Entries {
    entries.remove(version);
    entries
}

/// Resolution of a pool.
struct Pool<'a> {
    topology: &'a WorkerTopology,
    /// The earlier pool.
    old: Option<&'a WorkerTopology>,
    part: &'a Part,
    /// Its image, if all parts get one.
    image: Option<&'a Arc<OSImage>>,
}
