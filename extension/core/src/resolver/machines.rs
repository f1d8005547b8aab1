//! What machines are made of: the entries of `TKR_DATA`, of the Cluster and of pools with other images.

use std::sync::Arc;

use kube::ResourceExt as _;
use serde_json::Value;
use sluice_crds::{
    foreign::cluster::{Topology, WorkerTopology},
    labels::{label, name},
    run::{OSImage, TanzuKubernetesRelease},
};

use super::{
    change::Change,
    data::{self, Entries},
    part::{Part, pools},
    pick::Picked,
    steps::{overrides, put, put_override},
};
use crate::{admission::Fault, cluster::release_of};

impl<'a> Change<'a> {
    /// What the Cluster had for all parts before.
    fn entries_before(&self) -> Option<&'a Entries> {
        let topology = self.old?.spec.topology.as_ref()?;
        data::value_in(&topology.variables)?.as_object()
    }

    /// Whether machines of a version may be there, so that nothing is changed of what they are made of.
    pub(super) fn is_frozen(&self, version: &str) -> bool {
        let entries = self.entries_before();
        entries.is_some_and(|entries| entries.contains_key(version)) || self.runs_without(version)
    }

    /// Whether machines of a version may be there that were made without an entry. One that came later would roll them.
    fn runs_without(&self, version: &str) -> bool {
        let entries = self.entries_before();
        let has_entry = entries.is_some_and(|entries| entries.contains_key(version));
        self.old.is_some_and(|old| {
            let topology = old.spec.topology.as_ref();
            let is_at = topology.is_some_and(|topology| topology.version == version);
            !has_entry && is_at && old.spec.control_plane_ref.is_some()
        })
    }

    pub(super) fn data(
        &self,
        picked: &Picked,
        steps: &mut Vec<Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Fault> {
        let release = &picked.release;
        let version = release.spec.kubernetes.version.as_str();
        let repository = data::repository(self.topology);
        let none = Entries::new();
        let before = self.entries_before().unwrap_or(&none);
        let asked = data::value_in(&self.topology.variables).and_then(Value::as_object);
        if data::is_put_back(before, asked) {
            warnings.push(format!(
                "{}: entries of the Cluster stay as they were, because machines may run them",
                name::TKR_DATA
            ));
        }
        let next = match before.get(version) {
            Some(entry) => {
                Self::say_kept(entry, release, warnings);
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
                let made = image.map(|image| data::entry(release, image, repository));
                match self.restored(asked, release).cloned().or(made) {
                    Some(entry) => data::with_entry(before, asked, version, &entry),
                    None => data::kept(before, asked),
                }
            }
        };
        put(
            &self.topology.variables,
            !self.topology.variables.is_empty(),
            "/spec/topology/variables",
            &next,
            steps,
        );
        self.control_plane_overrides(steps, warnings);
        for (at, (list, index, pool)) in pools(self.topology).enumerate() {
            let of = Pool {
                list,
                index,
                topology: pool,
                part: &self.parts[at + 1],
                image: picked.images.get(at + 1),
            };
            let entries = self.pool_entries(&of, release, &next, warnings)?;
            of.put(entries, steps);
        }
        Ok(())
    }

    /// Says that the label alone changes no machine.
    fn say_kept(entry: &Value, release: &TanzuKubernetesRelease, warnings: &mut Vec<String>) {
        let (name, version) = (release.name_any(), &release.spec.kubernetes.version);
        let made_of = data::label_of(entry, label::TKR);
        if let Some(made_of) = made_of.filter(|made_of| *made_of != name) {
            warnings.push(format!(
                "TKRDataKept: machines of {version} stay as TanzuKubernetesRelease {made_of} made them, although the label names {name}"
            ));
        }
    }

    /// The entry that comes with a Cluster that is created again: it names the release that it is created with.
    fn restored<'e>(
        &self,
        asked: Option<&'e Entries>,
        release: &TanzuKubernetesRelease,
    ) -> Option<&'e Value> {
        let is_again = self.old.is_none() && release_of(&self.new.metadata) == release.name_any();
        let entry = asked?.get(&release.spec.kubernetes.version)?;
        let names = data::label_of(entry, label::TKR) == Some(&*release.name_any());
        (is_again && names && entry.get("osImageRef").is_some()).then_some(entry)
    }

    /// The control plane has the value of the Cluster, or the one that it had: another one would roll it unasked.
    fn control_plane_overrides(&self, steps: &mut Vec<Value>, warnings: &mut Vec<String>) {
        let of = |topology: &'a Topology| {
            overrides(
                topology
                    .control_plane
                    .as_ref()
                    .and_then(|part| part.variables.as_ref()),
            )
        };
        let Some(old) = self.old.and_then(|old| old.spec.topology.as_ref()) else {
            return;
        };
        let (before, asked) = (data::value_in(of(old)), data::value_in(of(self.topology)));
        if before == asked {
            return;
        }
        warnings.push(format!("{} of the control plane stays as it was", name::TKR_DATA));
        let present = self.topology.control_plane.as_ref();
        let present = present.and_then(|part| part.variables.as_ref()).is_some();
        let path = "/spec/topology/controlPlane/variables";
        put_override(of(self.topology), present, path, before, steps);
    }

    /// What a pool has in place of the entries of the Cluster, `next`; none where it has those.
    fn pool_entries(
        &self,
        of: &Pool<'a>,
        release: &Arc<TanzuKubernetesRelease>,
        next: &Entries,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Entries>, Fault> {
        let version = release.spec.kubernetes.version.as_str();
        let repository = data::repository(self.topology);
        let asked = data::value_in(overrides(of.topology.variables.as_ref())).and_then(Value::as_object);
        let old = self.old.and_then(|old| old.spec.topology.as_ref());
        let old = old.and_then(|old| {
            let mut named =
                pools(old).filter(|(list, _, pool)| *list == of.list && pool.name == of.topology.name);
            named.next().map(|(.., pool)| pool)
        });
        let image_of = |entry: Option<&Value>| {
            let name = entry.and_then(|entry| data::label_of(entry, label::OS_IMAGE));
            name.map(str::to_owned)
        };
        let common = image_of(next.get(version));
        let none = Entries::new();
        let of_cluster = self.entries_before().unwrap_or(&none);
        let before = old.and_then(|old| data::value_in(overrides(old.variables.as_ref())));
        let before = before.and_then(Value::as_object);
        let is_frozen = self.is_frozen(version);
        let is_changed = match before {
            Some(before) => data::is_put_back(before, asked),
            None => old.is_some() && is_frozen && asked.is_some(),
        };
        if is_changed {
            warnings.push(format!(
                "{}: entries of {} stay as they were, because machines may run them",
                name::TKR_DATA,
                of.part.place
            ));
        }
        match (old, before) {
            (Some(_), Some(before)) if before.contains_key(version) => Ok(Some(data::kept(before, asked))),
            (Some(_), Some(before)) if is_frozen => Ok(Some(without(data::kept(before, asked), version))),
            (Some(_), None) if is_frozen => Ok(None),
            (Some(_), _) => {
                let Some(image) = of.image else {
                    return Ok(before.cloned());
                };
                let entry = data::entry(release, image, repository);
                let is_needed = before.is_some() || image_of(Some(&entry)) != common;
                let (before, asked) = before.map_or((of_cluster, None), |before| (before, asked));
                Ok(is_needed.then(|| data::with_entry(before, asked, version, &entry)))
            }
            (None, _) if self.runs_without(version) => Ok(None),
            (None, _) if self.restored(asked, release).is_some() => Ok(asked.cloned()),
            (None, _) => {
                let entry = self.entry_of_new_pool(of, release, next)?;
                let is_other = image_of(Some(&entry)) != common;
                let others = without(of_cluster.clone(), version);
                Ok(is_other.then(|| data::with_entry(&others, None, version, &entry)))
            }
        }
    }

    /// What machines of a pool are made of that is new to the version: an image of the release that the others are made of.
    fn entry_of_new_pool(
        &self,
        of: &Pool<'a>,
        release: &Arc<TanzuKubernetesRelease>,
        next: &Entries,
    ) -> Result<Value, Fault> {
        let version = release.spec.kubernetes.version.as_str();
        let repository = data::repository(self.topology);
        if let Some(image) = of.image {
            return Ok(data::entry(release, image, repository));
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
        Ok(image.map_or(Value::Null, |image| data::entry(made_of, image, repository)))
    }
}

fn without(mut entries: Entries, version: &str) -> Entries {
    entries.remove(version);
    entries
}

/// A pool that is resolved.
struct Pool<'a> {
    list: &'static str,
    index: usize,
    topology: &'a WorkerTopology,
    part: &'a Part,
    /// The image that it gets, where all parts get one.
    image: Option<&'a Arc<OSImage>>,
}

impl Pool<'_> {
    fn put(&self, entries: Option<Entries>, steps: &mut Vec<Value>) {
        let Self {
            list,
            index,
            topology: pool,
            ..
        } = self;
        let path = format!("/spec/topology/workers/{list}/{index}/variables");
        let entries = entries.map(Value::Object);
        put_override(
            overrides(pool.variables.as_ref()),
            pool.variables.is_some(),
            &path,
            entries.as_ref(),
            steps,
        );
    }
}
