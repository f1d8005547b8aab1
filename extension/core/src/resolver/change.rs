//! What a Cluster is changed to before it is stored.

use std::sync::Arc;

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::{
        Cluster,
        cluster::{Topology, Variable, VariableOverrides, WorkerTopology},
    },
    labels::{annotation, label, name},
    run::TanzuKubernetesRelease,
};

use super::{
    Asked, ImagesUnknown, Known, Resolution, asks,
    data::{self, Entries},
    part::{Part, Place, parts, pools},
    pick::{Picked, Query},
    selector,
};
use crate::{
    admission::Fault,
    cluster::{is_stopped, release_of},
    releases::{from_label, prefixes, version_label},
};

/// Resolves a Cluster.
///
/// # Errors
/// OSImages are needed and were not read yet.
pub fn resolve(asked: &Asked, known: Known<'_>) -> Result<Resolution, ImagesUnknown> {
    let Asked { old, new } = asked;
    let Some(topology) = &new.spec.topology else {
        return Ok(Resolution::default());
    };
    // One that is moved is paused, and so is one whose entries a user has to correct.
    if new.metadata.deletion_timestamp.is_some() || is_stopped(new) {
        return Ok(Resolution::default());
    }
    let Some(text) = asks(&new.metadata, known.class) else {
        return Ok(Resolution::default());
    };
    let Some(class) = known.class else {
        let name = topology.class_name().unwrap_or_default();
        let text = "ClusterClass not found; apply the ClusterClass first, and the Cluster again";
        return Ok(refused(vec![Fault::new(
            "spec.topology.classRef.name",
            name,
            text,
        )]));
    };
    let mut faults = Vec::new();
    let selector = selector::parse(text).unwrap_or_else(|error| {
        let of = if new.annotations().contains_key(annotation::RESOLVE_TKR) {
            String::new()
        } else {
            format!(" of ClusterClass {}", class.name_any())
        };
        let field = format!("metadata.annotations[{}]{of}", annotation::RESOLVE_TKR);
        faults.push(Fault::new(field, text, error.to_string()));
        kube::core::Selector::default()
    });
    let parts = parts(topology, class).unwrap_or_else(|of_parts| {
        faults.extend(of_parts);
        Vec::new()
    });
    let declared = class.spec.declares(name::TKR_DATA);
    if declared {
        faults.extend(shape_faults(topology));
    }
    if !faults.is_empty() {
        return Ok(refused(faults));
    }
    // Without the variable, and where no part asks for one, nothing says what an image would be for.
    let needs_images = declared || parts.iter().any(|part| part.text.is_some());
    let images = if needs_images {
        Some(known.images.ok_or(ImagesUnknown)?)
    } else {
        None
    };
    let query = Query {
        prefix: version_label(&topology.version),
        text,
        selector,
        releases: known.releases,
        images,
    };
    let change = Change {
        old: old.as_ref(),
        new,
        topology,
        declared,
        parts,
        query,
    };
    Ok(change.resolution().unwrap_or_else(|fault| refused(vec![fault])))
}

const fn refused(faults: Vec<Fault>) -> Resolution {
    Resolution {
        faults,
        warnings: Vec::new(),
        patch: Vec::new(),
    }
}

/// What is wrong with the shape of `TKR_DATA`, of the Cluster or of one of its pools.
fn shape_faults(topology: &Topology) -> Vec<Fault> {
    let own = (
        "spec.topology.variables".to_owned(),
        data::value_in(&topology.variables),
    );
    let of_pools = pools(topology).map(|(list, _, pool)| {
        let field = format!("spec.topology.workers.{list}[{}].variables.overrides", pool.name);
        (field, data::value_in(overrides(pool.variables.as_ref())))
    });
    let all = [own].into_iter().chain(of_pools);
    all.filter_map(|(field, value)| {
        let why = data::entries(value?).err()?;
        Some(Fault::new(
            format!("{field}[{}]", name::TKR_DATA),
            shown(value?),
            why,
        ))
    })
    .collect()
}

/// A value as far as a line has place for it.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn overrides(variables: Option<&VariableOverrides>) -> &[Variable] {
    variables.map_or(&[], |variables| variables.overrides.as_slice())
}

/// One Cluster that is resolved.
struct Change<'a> {
    old: Option<&'a Cluster>,
    new: &'a Cluster,
    topology: &'a Topology,
    /// Whether the class declares `TKR_DATA`.
    declared: bool,
    parts: Vec<Part>,
    query: Query<'a>,
}

impl<'a> Change<'a> {
    fn resolution(&self) -> Result<Resolution, Fault> {
        let (release, images) = match self.stays()? {
            Some(release) => (release, None),
            None => match self.newest()? {
                Picked { release, images } => (release, Some(images)),
            },
        };
        let mut patch = Vec::new();
        let mut warnings = Vec::new();
        self.label(&release, &mut patch);
        let version = &release.spec.kubernetes.version;
        if self.topology.version != *version {
            patch.push(replace("/spec/topology/version", version.as_str()));
        }
        if self.declared {
            let images = match images {
                Some(images) => images,
                None => self.images_of(&release)?,
            };
            self.data(&Picked { release, images }, &mut patch, &mut warnings)?;
        }
        Ok(Resolution {
            faults: Vec::new(),
            warnings,
            patch,
        })
    }

    /// The release that the Cluster is on, or that its label is set to, where nothing newer is looked for.
    fn stays(&self) -> Result<Option<Arc<TanzuKubernetesRelease>>, Fault> {
        let before = self.old.map(|old| release_of(&old.metadata)).unwrap_or_default();
        let asked = release_of(&self.new.metadata);
        let is_set = !asked.is_empty() && asked != before;
        // A manifest without the label takes nothing back.
        let label = if asked.is_empty() { before } else { asked };
        if label.is_empty() {
            return Ok(None);
        }
        let release = self.query.releases.get(&label);
        if is_set {
            // What the request says itself is taken or refused, never replaced.
            let taken = match release {
                Some(release) => self.query.taken(release, self.needed_of(release)),
                None => Err("does not exist".to_owned()),
            };
            return match taken {
                Ok(picked) => Ok(Some(picked.release)),
                Err(why) => {
                    let nearest = match self.query.newest(&self.parts) {
                        Ok(picked) => format!("{} can be taken", picked.release.name_any()),
                        Err(why) => why,
                    };
                    let field = format!("metadata.labels[{}]", label::TKR);
                    let text = self.unresolved(&format!("TanzuKubernetesRelease {label} {why}; {nearest}"));
                    Err(Fault::new(field, label, text))
                }
            };
        }
        match release {
            Some(release) => {
                let fits = self.query.fits(release) && self.query.selects(release);
                Ok(fits.then(|| Arc::clone(release)))
            }
            // Another release would be an upgrade that was not asked for.
            None if prefixes(&version_label(&from_label(&label)))
                .any(|prefix| prefix == self.query.prefix) =>
            {
                let text = self.unresolved(&format!(
                    "TanzuKubernetesRelease {label}, which the Cluster is on, does not exist any more; set the label to another one"
                ));
                Err(Fault::new(
                    format!("metadata.labels[{}]", label::TKR),
                    label,
                    text,
                ))
            }
            None => Ok(None),
        }
    }

    fn newest(&self) -> Result<Picked, Fault> {
        let picked = self.query.newest(&self.parts);
        picked.map_err(|nearest| {
            let version = &self.topology.version;
            Fault::new("spec.topology.version", version, self.unresolved(&nearest))
        })
    }

    /// As the addons-manager said it: the parts, the query, and what came of it.
    fn unresolved(&self, result: &str) -> String {
        let pools = self.parts.iter().filter_map(|part| match &part.place {
            Place::ControlPlane => None,
            Place::Pool { name, .. } => Some(name.as_str()),
        });
        let pools: Vec<&str> = pools.collect();
        let selectors = self.parts.iter().filter_map(|part| {
            let text = part.text.as_ref()?;
            Some(format!(", OSImages of {} {text:?}", part.place))
        });
        let selectors: String = selectors.collect();
        format!(
            "could not resolve TKR/OSImage for controlPlane, machineDeployments: [{}], query: {{version {}, releases {:?}{selectors}}}, \
             result: {result}",
            pools.join(", "),
            self.query.prefix,
            self.query.text,
        )
    }

    /// The parts that get an image of a release: none where machines of its version have theirs.
    fn needed_of(&self, release: &TanzuKubernetesRelease) -> &[Part] {
        if self.declared && self.is_frozen(&release.spec.kubernetes.version) {
            &[]
        } else {
            &self.parts
        }
    }

    /// The images of a release that stays.
    fn images_of(
        &self,
        release: &Arc<TanzuKubernetesRelease>,
    ) -> Result<Vec<Arc<sluice_crds::run::OSImage>>, Fault> {
        let needed = self.needed_of(release);
        let picked = self.query.images_in(release, needed).map_err(|why| {
            let label = release.name_any();
            let text = self.unresolved(&format!("{label} {why}"));
            Fault::new(format!("metadata.labels[{}]", label::TKR), label, text)
        })?;
        Ok(picked.images)
    }

    fn label(&self, release: &TanzuKubernetesRelease, patch: &mut Vec<Value>) {
        let name = release.name_any();
        if release_of(&self.new.metadata) == name {
            return;
        }
        if self.new.metadata.labels.is_none() {
            patch.push(json!({"op": "add", "path": "/metadata/labels", "value": {label::TKR: name}}));
            return;
        }
        let key = label::TKR.replace('~', "~0").replace('/', "~1");
        patch.push(json!({"op": "add", "path": format!("/metadata/labels/{key}"), "value": name}));
    }

    /// What the Cluster had for all parts before.
    fn entries_before(&self) -> Option<&'a Entries> {
        let topology = self.old?.spec.topology.as_ref()?;
        data::value_in(&topology.variables)?.as_object()
    }

    /// Whether machines of a version may be there, so that nothing is changed of what they are made of.
    fn is_frozen(&self, version: &str) -> bool {
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

    fn data(&self, picked: &Picked, patch: &mut Vec<Value>, warnings: &mut Vec<String>) -> Result<(), Fault> {
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
            patch,
        );
        self.control_plane_overrides(patch, warnings);
        for (at, (list, index, pool)) in pools(self.topology).enumerate() {
            let of = Pool {
                list,
                index,
                pool,
                part: &self.parts[at + 1],
                image: picked.images.get(at + 1),
            };
            let entries = self.pool_entries(&of, release, &next, warnings)?;
            of.put(entries, patch);
        }
        Ok(())
    }

    /// Says that the label alone changes no machine.
    fn say_kept(&self, entry: &Value, release: &TanzuKubernetesRelease, warnings: &mut Vec<String>) {
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
    fn control_plane_overrides(&self, patch: &mut Vec<Value>, warnings: &mut Vec<String>) {
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
        put_override(of(self.topology), present, path, before, patch);
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
        let asked = data::value_in(overrides(of.pool.variables.as_ref())).and_then(Value::as_object);
        let old = self.old.and_then(|old| old.spec.topology.as_ref());
        let old = old.and_then(|old| {
            let mut named =
                pools(old).filter(|(list, _, pool)| *list == of.list && pool.name == of.pool.name);
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
    pool: &'a WorkerTopology,
    part: &'a Part,
    /// The image that it gets, where all parts get one.
    image: Option<&'a Arc<sluice_crds::run::OSImage>>,
}

impl Pool<'_> {
    fn put(&self, entries: Option<Entries>, patch: &mut Vec<Value>) {
        let Self {
            list, index, pool, ..
        } = self;
        let path = format!("/spec/topology/workers/{list}/{index}/variables");
        let entries = entries.map(Value::Object);
        put_override(
            overrides(pool.variables.as_ref()),
            pool.variables.is_some(),
            &path,
            entries.as_ref(),
            patch,
        );
    }
}

/// Has `variables`, which are there if `present`, say this.
fn put(variables: &[Variable], present: bool, path: &str, entries: &Entries, patch: &mut Vec<Value>) {
    let value = Value::Object(entries.clone());
    let at = variables
        .iter()
        .position(|variable| variable.name == name::TKR_DATA);
    match at {
        Some(at) if variables[at].value == value => {}
        Some(at) => patch.push(replace(&format!("{path}/{at}/value"), value)),
        None if entries.is_empty() => {}
        None => {
            let variable = json!({"name": name::TKR_DATA, "value": value});
            patch.push(if present {
                json!({"op": "add", "path": format!("{path}/-"), "value": variable})
            } else {
                json!({"op": "add", "path": path, "value": [variable]})
            });
        }
    }
}

/// The same of the overrides of a part, which are removed where there is no value.
fn put_override(
    overrides: &[Variable],
    present: bool,
    path: &str,
    value: Option<&Value>,
    patch: &mut Vec<Value>,
) {
    let at = overrides
        .iter()
        .position(|variable| variable.name == name::TKR_DATA);
    match (at, value.and_then(Value::as_object)) {
        (None, None) => {}
        // No other one is left, and a list that is empty is none.
        (Some(_), None) if overrides.len() == 1 => patch.push(json!({"op": "remove", "path": path})),
        (Some(at), None) => patch.push(json!({"op": "remove", "path": format!("{path}/overrides/{at}")})),
        (_, Some(entries)) if present => {
            put(
                overrides,
                !overrides.is_empty(),
                &format!("{path}/overrides"),
                entries,
                patch,
            );
        }
        (_, Some(entries)) => {
            let variable = json!({"name": name::TKR_DATA, "value": entries});
            patch.push(json!({"op": "add", "path": path, "value": {"overrides": [variable]}}));
        }
    }
}

fn replace(path: &str, value: impl Into<Value>) -> Value {
    json!({"op": "replace", "path": path, "value": value.into()})
}
