//! What a Cluster is changed to before it is stored.

use std::sync::Arc;

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::{Cluster, cluster::Topology},
    labels::{annotation, label, name},
    run::{OSImage, TanzuKubernetesRelease},
};

use super::{
    Asked, ImagesUnknown, Known, Resolution, asks, data,
    part::{Part, Place, parts, pools},
    pick::{Picked, Query},
    selector,
    steps::{overrides, replace},
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

/// One Cluster that is resolved.
pub(super) struct Change<'a> {
    pub(super) old: Option<&'a Cluster>,
    pub(super) new: &'a Cluster,
    pub(super) topology: &'a Topology,
    /// Whether the class declares `TKR_DATA`.
    pub(super) declared: bool,
    pub(super) parts: Vec<Part>,
    pub(super) query: Query<'a>,
}

impl Change<'_> {
    fn resolution(&self) -> Result<Resolution, Fault> {
        let (release, images) = if let Some(release) = self.stays()? {
            (release, None)
        } else {
            let Picked { release, images } = self.newest()?;
            (release, Some(images))
        };
        let mut steps = Vec::new();
        let mut warnings = Vec::new();
        self.label(&release, &mut steps);
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
    pub(super) fn unresolved(&self, result: &str) -> String {
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
    fn images_of(&self, release: &Arc<TanzuKubernetesRelease>) -> Result<Vec<Arc<OSImage>>, Fault> {
        let needed = self.needed_of(release);
        let picked = self.query.images_in(release, needed).map_err(|why| {
            let label = release.name_any();
            let text = self.unresolved(&format!("{label} {why}"));
            Fault::new(format!("metadata.labels[{}]", label::TKR), label, text)
        })?;
        Ok(picked.images)
    }

    fn label(&self, release: &TanzuKubernetesRelease, steps: &mut Vec<Value>) {
        let name = release.name_any();
        if release_of(&self.new.metadata) == name {
            return;
        }
        if self.new.metadata.labels.is_none() {
            steps.push(json!({"op": "add", "path": "/metadata/labels", "value": {label::TKR: name}}));
            return;
        }
        let key = label::TKR.replace('~', "~0").replace('/', "~1");
        steps.push(json!({"op": "add", "path": format!("/metadata/labels/{key}"), "value": name}));
    }
}
