//! Resolution of a Cluster before the API server stores it.

use std::{collections::BTreeSet, sync::Arc};

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::{Cluster, cluster::Topology},
    labels::{annotation, label, name},
    run::{KubernetesSpec, OSImage, TanzuKubernetesRelease, TanzuKubernetesReleaseSpec},
};

use super::{
    Asked, Resolution, ResolverInputs, Unknown, asks, data,
    part::{MAX_FAULTS, Part, PartLocation, Parts, is_short, parts, shortened},
    paused_edit::paused_edit,
    pick::{Picked, Query},
    pinned_data::pinned_data,
    running::Machines,
    selector,
    steps::{replace, variable_lists},
    swap,
};
use crate::{
    cluster::{is_initialized, is_stopped, release_of},
    fault::Fault,
    packages::bootstrap::Snapshot,
    releases::{from_label, prefixes, version_label},
    version::{Ordered, same},
};

/// Resolves a Cluster.
///
/// # Errors
/// A missing input.
pub fn resolve(asked: &Asked, inputs: ResolverInputs<'_>) -> Result<Resolution, Unknown> {
    let Asked { old, new } = asked;
    let Some(topology) = &new.spec.topology else {
        return Ok(Resolution::default());
    };
    if new.metadata.deletion_timestamp.is_some() {
        return Ok(Resolution::default());
    }
    // A Cluster is paused during a move, and while a user corrects its entries.
    if is_stopped(new) {
        return paused_edit(asked, topology, inputs.running);
    }
    let class = match inputs.class {
        Ok(Some(class)) => Some(class),
        Ok(None) => {
            if let Some(answer) = without_class(asked, topology)? {
                return Ok(answer);
            }
            None
        }
        Err(undecodable) => {
            if asks(&new.metadata, None)
                .or_else(|| asks(&undecodable.metadata, None))
                .is_some()
            {
                let name = topology.class_name().unwrap_or_default();
                let why = undecodable.to_string();
                return Ok(refused(vec![Fault::new(
                    "spec.topology.classRef.name",
                    name,
                    why,
                )]));
            }
            None
        }
    };
    let (Some(text), Some(class)) = (asks(&new.metadata, class), class) else {
        return pinned_data(asked, topology, inputs);
    };
    let mut faults = Vec::new();
    let selector = is_short(text).and_then(|()| selector::parse(text).map_err(|error| error.to_string()));
    let selector = selector.unwrap_or_else(|why| {
        let of = if new.annotations().contains_key(annotation::RESOLVE_TKR) {
            String::new()
        } else {
            format!(" of ClusterClass {}", class.name_any())
        };
        let field = format!("metadata.annotations[{}]{of}", annotation::RESOLVE_TKR);
        faults.push(Fault::new(field, shortened(text), why));
        kube::core::Selector::default()
    });
    let parts = parts(topology, class).unwrap_or_else(|of_parts| {
        faults.extend(of_parts);
        Parts::default()
    });
    let declared = class.spec.declares(name::TKR_DATA);
    if declared {
        faults.extend(shape_faults(topology));
    }
    if !faults.is_empty() {
        return Ok(refused(faults));
    }
    // Images are needed only if the class declares the variable or a part selects one.
    let needs_images = declared || parts.all.iter().any(|part| part.text.is_some());
    let images = if needs_images {
        Some(inputs.images.ok_or(Unknown::Images)?)
    } else {
        None
    };
    let query = Query {
        prefix: version_label(&topology.version),
        text,
        selector,
        releases: inputs.releases,
        images,
        of_images: parts.selectors,
        keys: parts.keys,
    };
    let change = ClusterChange {
        old: old.as_ref(),
        entries_before: before_in(old.as_ref()),
        new,
        topology,
        declared,
        parts: parts.all,
        query,
        pinned: inputs.pinned,
        rollback_to: inputs.rollback_to,
        machines: Machines::of(old.as_ref(), inputs.running),
    };
    let resolution = change.resolution().unwrap_or_else(|fault| refused(vec![fault]));
    change.machines.known()?;
    Ok(resolution)
}

/// Resolves a Cluster without its class, if possible. It is not if machines may exist or a release is about to be chosen: then the entries
/// depend on the class.
fn without_class(Asked { old, new }: &Asked, topology: &Topology) -> Result<Option<Resolution>, Unknown> {
    let Some(name) = topology.class_name() else {
        return Ok(None);
    };
    let before = old.as_ref().and_then(|old| old.spec.topology.as_ref());
    let has_data = before.is_some_and(|before| data::value_in(&before.variables).is_some());
    let labels = old
        .iter()
        .chain([new])
        .map(|cluster| release_of(&cluster.metadata));
    if has_data || labels.into_iter().any(|label| !label.is_empty()) {
        return Err(Unknown::Class(name.to_owned()));
    }
    Ok(asks(&new.metadata, None).map(|_| {
        let text = "ClusterClass not found; apply the ClusterClass first, and the Cluster again";
        refused(vec![Fault::new("spec.topology.classRef.name", name, text)])
    }))
}

pub(super) const fn refused(faults: Vec<Fault>) -> Resolution {
    Resolution {
        faults,
        warnings: Vec::new(),
        patch: Vec::new(),
    }
}

/// Returns the earlier entries of a Cluster.
fn before_in(old: Option<&Cluster>) -> Option<data::Entries> {
    data::entries_in(&old?.spec.topology.as_ref()?.variables)
}

/// Builds a deleted release of this name, without images and packages.
fn deleted(name: &str, version: &str) -> TanzuKubernetesRelease {
    let spec = TanzuKubernetesReleaseSpec {
        version: from_label(name),
        kubernetes: KubernetesSpec {
            version: version.to_owned(),
            ..KubernetesSpec::default()
        },
        ..TanzuKubernetesReleaseSpec::default()
    };
    TanzuKubernetesRelease::new(name, spec)
}

fn pins(release: &str) -> String {
    let release = shortened(release);
    let key = annotation::ADD_MISSING_FIELDS;
    format!("annotation {key} of the ClusterBootstrap pins TanzuKubernetesRelease {release}")
}

/// Checks the shape of `TKR_DATA`, of the Cluster and of its parts.
fn shape_faults(topology: &Topology) -> Vec<Fault> {
    let faults = variable_lists(topology).filter_map(|(field, variables)| {
        let value = data::value_in(variables)?;
        let why = data::entries(&value).err()?;
        let value = shortened(&value.to_string());
        Some(Fault::new(format!("{field}[{}]", name::TKR_DATA), value, why))
    });
    faults.take(MAX_FAULTS).collect()
}

/// Resolution of one Cluster.
pub(super) struct ClusterChange<'a> {
    pub(super) old: Option<&'a Cluster>,
    /// Earlier entries of the Cluster.
    pub(super) entries_before: Option<data::Entries>,
    pub(super) new: &'a Cluster,
    pub(super) topology: &'a Topology,
    /// Whether the class declares `TKR_DATA`.
    pub(super) declared: bool,
    pub(super) parts: Vec<Part>,
    pub(super) query: Query<'a>,
    /// Release that the ClusterBootstrap of the Cluster pins.
    pub(super) pinned: Option<&'a str>,
    /// Snapshot in the ClusterBootstrap of the Cluster, as written.
    pub(super) rollback_to: Option<&'a str>,
    pub(super) machines: Machines<'a>,
}

impl ClusterChange<'_> {
    fn resolution(&self) -> Result<Resolution, Fault> {
        if let Some(as_it_came) = self.as_it_came() {
            return Ok(as_it_came);
        }
        let (release, images) = if let Some(release) = self.stays()? {
            self.agrees(&release)?;
            (release, None)
        } else if let Some(release) = self.running_release() {
            (release, None)
        } else {
            let Picked { release, images } = self.pinned_or_newest()?;
            (release, Some(images))
        };
        let mut steps = Vec::new();
        let mut warnings = Vec::new();
        self.label(&release, &mut steps, &mut warnings);
        let version = &release.spec.kubernetes.version;
        if self.topology.version != *version {
            steps.push(replace("/spec/topology/version", version.as_str()));
        }
        if self.declared {
            let images = match images {
                Some(images) => images,
                None => self.images_of(&release)?,
            };
            self.data(&Picked { release, images }, &mut steps, &mut warnings)?;
        }
        Ok(Resolution {
            faults: Vec::new(),
            warnings,
            patch: steps,
        })
    }

    /// Leaves a Cluster unchanged that is restored with its entries and whose release is not available any more.
    fn as_it_came(&self) -> Option<Resolution> {
        let label = release_of(&self.new.metadata);
        let asked = data::entries_in(&self.topology.variables);
        self.restored(asked.as_ref(), &self.topology.version, &label)?;
        let why = match self.query.releases.get(&label) {
            Some(release) => self.query.taken(release, &self.parts).err()?,
            None => "does not exist".to_owned(),
        };
        let data = name::TKR_DATA;
        let warning = format!(
            "{data}: the Cluster is stored unchanged, because its entry for {} is of TanzuKubernetesRelease {label}, which {why}",
            self.topology.version
        );
        Some(Resolution {
            warnings: vec![warning],
            ..Resolution::default()
        })
    }

    /// Returns the release of the Cluster or of its new label, if the Cluster keeps its version.
    fn stays(&self) -> Result<Option<Arc<TanzuKubernetesRelease>>, Fault> {
        let before = self.old.map(|old| release_of(&old.metadata)).unwrap_or_default();
        let asked = release_of(&self.new.metadata);
        let is_set = !asked.is_empty() && asked != before;
        // A manifest without the label reverts nothing.
        let label = if asked.is_empty() { before } else { asked };
        if label.is_empty() {
            return Ok(None);
        }
        let release = self.query.releases.get(&label);
        if is_set {
            // An explicit choice of the request is accepted or refused, never replaced.
            let chosen = match (self.of_machines(&label), release) {
                // The way back replaces no machine.
                (Some(made_of), _) => Ok(made_of),
                (None, Some(release)) => self.chosen(release),
                (None, None) => Err("does not exist".to_owned()),
            };
            return match chosen {
                Ok(release) => Ok(Some(release)),
                Err(why) => {
                    let nearest = match self.query.newest(&self.parts) {
                        Ok(picked) if self.lower(&picked.release).is_some() => {
                            "no later one can be taken".to_owned()
                        }
                        Ok(picked) => format!("{} can be taken", picked.release.name_any()),
                        Err(why) => why,
                    };
                    let field = format!("metadata.labels[{}]", label::TKR);
                    let text = self.unresolved(&format!("TanzuKubernetesRelease {label} {why}; {nearest}"));
                    Err(Fault::new(field, label, text))
                }
            };
        }
        if let Some(release) = release {
            let fits = self.query.fits(release) && self.query.selects(release);
            return Ok(fits.then(|| Arc::clone(release)));
        }
        match self.of_machines(&label) {
            Some(made_of) => Ok(Some(made_of)),
            // Another release would be an unrequested upgrade.
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

    /// Returns a release that the request sets, if its machines may be made of it.
    ///
    /// # Errors
    /// The reason for its rejection, to be read after its name.
    fn chosen(&self, release: &Arc<TanzuKubernetesRelease>) -> Result<Arc<TanzuKubernetesRelease>, String> {
        let version = &release.spec.kubernetes.version;
        let before = self.entries_before.as_ref().filter(|_| self.declared);
        let made_of = before.and_then(|before| data::made_of(before, version));
        let is_back = made_of.is_none() && self.is_before_upgrade(release);
        if is_back && self.query.fits(release) && self.machines.may_run(version) {
            return Ok(Arc::clone(release));
        }
        if let Some(why) = self.lower(release) {
            return Err(why);
        }
        // Once its packages are proven, machines are replaced by those of this release.
        let needed: &[Part] = if made_of.is_some() {
            &self.parts
        } else {
            self.needed_of(release)
        };
        Ok(self.query.taken(release, needed)?.release)
    }

    /// Returns the release of this name, if machines of the requested version are made of it, whatever became of it since.
    fn of_machines(&self, name: &str) -> Option<Arc<TanzuKubernetesRelease>> {
        let before = self.entries_before.as_ref().filter(|_| self.declared)?;
        let mut versions = before
            .keys()
            .filter(|version| data::made_of(before, version) == Some(name));
        versions.find_map(|version| {
            let release = self.release_at(name, version)?;
            self.machines.may_run(version).then_some(release)
        })
    }

    /// Returns the release of this name, if it is of the requested version and of the Kubernetes version of its entry. Of a deleted
    /// release, only its name and the entry are known. No machine can be made of it.
    fn release_at(&self, name: &str, version: &str) -> Option<Arc<TanzuKubernetesRelease>> {
        let release = match self.query.releases.get(name) {
            Some(release) => Arc::clone(release),
            None => Arc::new(deleted(name, version)),
        };
        (release.spec.kubernetes.version == version && self.query.fits(&release)).then_some(release)
    }

    /// Whether the packages were those of a release before the upgrade that the snapshot of the ClusterBootstrap is of. Without an entry,
    /// nothing else names the release of the machines.
    fn is_before_upgrade(&self, release: &TanzuKubernetesRelease) -> bool {
        let snapshot = self.rollback_to.and_then(|text| Snapshot::parse(text).ok());
        snapshot.is_some_and(|snapshot| {
            snapshot.release == release.name_any()
                && same(&snapshot.version, &release.spec.kubernetes.version)
        })
    }

    /// Returns why machines are not replaced by those of a release, see [`swap::lower`].
    fn lower(&self, release: &TanzuKubernetesRelease) -> Option<String> {
        // Sluice itself moves a new Cluster to the release that its ClusterBootstrap pins.
        let is_pinned = self.pinned.is_some_and(|pinned| pinned == release.name_any());
        let before = self.entries_before.as_ref();
        let before = before.filter(|_| self.declared && !is_pinned);
        swap::lower(release, before, self.query.releases, &self.machines)
    }

    /// Refuses the label of a new Cluster whose ClusterBootstrap pins another release, and a change to such a label until the control plane is
    /// initialized: the reconcile sets the label to the pinned release.
    fn agrees(&self, release: &TanzuKubernetesRelease) -> Result<(), Fault> {
        let label = release.name_any();
        let is_chosen = self
            .old
            .is_none_or(|old| !is_initialized(old) && release_of(&old.metadata) != label);
        let pinned = self.pinned.filter(|_| is_chosen);
        match pinned.filter(|pinned| *pinned != label) {
            None => Ok(()),
            Some(pinned) => {
                let text = self.unresolved(&format!("{}; write the same release in both", pins(pinned)));
                Err(Fault::new(
                    format!("metadata.labels[{}]", label::TKR),
                    label,
                    text,
                ))
            }
        }
    }

    /// Returns the release that machines of the requested version are made of, as after the cancellation of an upgrade. The newest one would
    /// replace them without a request.
    fn running_release(&self) -> Option<Arc<TanzuKubernetesRelease>> {
        let before = self.entries_before.as_ref();
        let before = before.filter(|_| self.declared && self.pinned.is_none())?;
        let running = before.keys().filter_map(|version| {
            let release = self.release_at(data::made_of(before, version)?, version)?;
            let is_made = self.query.selects(&release) && self.machines.may_run(version);
            is_made.then_some(release)
        });
        running.max_by_key(|release| Ordered::of(&release.spec.version))
    }

    /// Returns the release that the ClusterBootstrap of the Cluster pins, otherwise the newest suitable one.
    fn pinned_or_newest(&self) -> Result<Picked, Fault> {
        let Some(pinned) = self.pinned else {
            return self.newest();
        };
        let taken = match self.query.releases.get(pinned) {
            Some(release) => self.query.taken(release, &self.parts),
            None => Err("does not exist".to_owned()),
        };
        taken.map_err(|why| {
            let text = self.unresolved(&format!("{}, which {why}", pins(pinned)));
            Fault::new("spec.topology.version", &self.topology.version, text)
        })
    }

    fn newest(&self) -> Result<Picked, Fault> {
        let picked = self.query.newest(&self.parts);
        picked.map_err(|nearest| {
            let version = &self.topology.version;
            Fault::new("spec.topology.version", version, self.unresolved(&nearest))
        })
    }

    /// Builds the message in the format of the addons-manager: parts, query and result.
    pub(super) fn unresolved(&self, result: &str) -> String {
        const MOST: usize = 8;
        let pools = self.parts.iter().filter_map(|part| match &part.place {
            PartLocation::ControlPlane => None,
            PartLocation::Pool { name, .. } => Some(name.as_str()),
        });
        let pools: Vec<&str> = pools.collect();
        let more = |count: usize| {
            if count > MOST {
                format!(" and {} more", count - MOST)
            } else {
                String::new()
            }
        };
        // Names each selector once, with its first part.
        let mut said = BTreeSet::new();
        let selectors = self.parts.iter().filter_map(|part| {
            let text = part.text.as_deref()?;
            said.insert(part.selector)
                .then(|| format!(", OSImages of {} {:?}", part.place, shortened(text)))
        });
        let selectors: Vec<String> = selectors.collect();
        format!(
            "could not resolve TKR/OSImage for controlPlane, machineDeployments: [{}{}], query: {{version {}, releases {:?}{}{}}}, \
             result: {result}",
            pools[..pools.len().min(MOST)].join(", "),
            more(pools.len()),
            self.query.prefix,
            shortened(self.query.text),
            selectors[..selectors.len().min(MOST)].concat(),
            more(selectors.len()),
        )
    }

    /// Returns the parts that get an image of a release: none if machines of its version have theirs.
    fn needed_of(&self, release: &TanzuKubernetesRelease) -> &[Part] {
        if self.declared && self.is_frozen(release) {
            &[]
        } else {
            &self.parts
        }
    }

    /// Returns the images of a kept release.
    fn images_of(&self, release: &Arc<TanzuKubernetesRelease>) -> Result<Vec<Arc<OSImage>>, Fault> {
        let needed = self.needed_of(release);
        let picked = self.query.images_in(release, needed).map_err(|why| {
            let label = release.name_any();
            let text = self.unresolved(&format!("{label} {why}"));
            Fault::new(format!("metadata.labels[{}]", label::TKR), label, text)
        })?;
        Ok(picked.images)
    }

    fn label(&self, release: &TanzuKubernetesRelease, steps: &mut Vec<Value>, warnings: &mut Vec<String>) {
        let name = release.name_any();
        let asked = release_of(&self.new.metadata);
        if asked == name {
            return;
        }
        if asked.is_empty() && self.old.is_some_and(|old| release_of(&old.metadata) == name) {
            warnings.push(format!(
                "label {}: restored, because the Cluster or its ClusterClass requests a release; to take the Cluster out of Sluice, remove \
                 the label together with that request",
                label::TKR
            ));
        }
        if self.new.metadata.labels.is_none() {
            steps.push(json!({"op": "add", "path": "/metadata/labels", "value": {label::TKR: name}}));
            return;
        }
        let key = label::TKR.replace('~', "~0").replace('/', "~1");
        steps.push(json!({"op": "add", "path": format!("/metadata/labels/{key}"), "value": name}));
    }
}
