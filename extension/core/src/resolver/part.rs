//! The parts of a topology, each with the images that it may be made of.

use std::fmt;

use kube::{
    ResourceExt as _,
    core::{Selector, SelectorExt as _},
};
use sluice_crds::{
    foreign::{
        ClusterClass,
        cluster::{Topology, TopologyMetadata, WorkerTopology},
        cluster_class::WorkerClass,
    },
    labels::annotation,
    run::OSImage,
};

use super::selector;
use crate::{admission::Fault, releases::image_labels_of};

/// Which part of a topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    ControlPlane,
    /// Which list of `workers` it is in, at which place, and its name.
    Pool {
        list: &'static str,
        index: usize,
        name: String,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlPlane => f.write_str("controlPlane"),
            Self::Pool { list, name, .. } => write!(f, "{list}[{name}]"),
        }
    }
}

/// A part and its selector of images.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) place: Place,
    /// The selector as it was written; none selects every image.
    pub(super) text: Option<String>,
    selector: Selector,
}

impl Part {
    /// Whether the part may be made of this image.
    pub(super) fn takes(&self, image: &OSImage) -> bool {
        // Labels are made for a comparison only: a release has ten images and more.
        self.selector.selects_all() || self.selector.matches(&image_labels_of(image))
    }
}

/// The workers of a topology: their list in it, their place there, and what they say.
pub(super) fn pools(topology: &Topology) -> impl Iterator<Item = (&'static str, usize, &WorkerTopology)> {
    let workers = topology.workers.iter();
    workers.flat_map(|workers| {
        let deployments = workers.machine_deployments.iter().enumerate();
        let pools = workers.machine_pools.iter().enumerate();
        let deployments = deployments.map(|(index, pool)| ("machineDeployments", index, pool));
        deployments.chain(pools.map(|(index, pool)| ("machinePools", index, pool)))
    })
}

/// The parts of a topology, the control plane first.
///
/// # Errors
/// Classes that there are not, and selectors that cannot be read.
pub(super) fn parts(topology: &Topology, class: &ClusterClass) -> Result<Vec<Part>, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut parts = Vec::new();
    let own = topology.control_plane.as_ref();
    let of_class = class.spec.control_plane.as_ref();
    let text = selector_of(own.and_then(|own| own.metadata.as_ref()))
        .or_else(|| selector_of(of_class.and_then(|class| class.metadata.as_ref())));
    take(Place::ControlPlane, text, &mut parts, &mut faults);
    for (list, index, pool) in pools(topology) {
        let name = pool.name.clone();
        let classes = class.spec.workers.as_ref().map(|workers| match list {
            "machineDeployments" => workers.machine_deployments.as_slice(),
            _ => workers.machine_pools.as_slice(),
        });
        let classes = classes.unwrap_or_default();
        let place = Place::Pool { list, index, name };
        let Some(of_class) = classes.iter().find(|class| class.class == pool.class) else {
            faults.push(unknown_class(&place, pool, class, classes));
            continue;
        };
        let text = selector_of(pool.metadata.as_ref()).or_else(|| selector_of(of_class.metadata.as_ref()));
        take(place, text, &mut parts, &mut faults);
    }
    if faults.is_empty() { Ok(parts) } else { Err(faults) }
}

fn selector_of(metadata: Option<&TopologyMetadata>) -> Option<&str> {
    metadata?
        .annotations
        .get(annotation::RESOLVE_OS_IMAGE)
        .map(String::as_str)
}

fn take(place: Place, text: Option<&str>, parts: &mut Vec<Part>, faults: &mut Vec<Fault>) {
    match selector::parse(text.unwrap_or_default()) {
        Ok(selector) => parts.push(Part {
            place,
            text: text.map(str::to_owned),
            selector,
        }),
        Err(error) => {
            let field = format!("annotation {} of {place}", annotation::RESOLVE_OS_IMAGE);
            faults.push(Fault::new(field, text.unwrap_or_default(), error.to_string()));
        }
    }
}

fn unknown_class(place: &Place, pool: &WorkerTopology, class: &ClusterClass, known: &[WorkerClass]) -> Fault {
    let known: Vec<&str> = known.iter().map(|known| known.class.as_str()).collect();
    let known = if known.is_empty() {
        "none at all".to_owned()
    } else {
        known.join(", ")
    };
    let text = format!(
        "ClusterClass {} has no such class of workers; it has {known}",
        class.name_any()
    );
    Fault::new(format!("spec.topology.workers.{place}.class"), &pool.class, text)
}
