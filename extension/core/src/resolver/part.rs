//! Parts of a topology and their image selectors.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use kube::{ResourceExt as _, core::Selector};
use sluice_crds::{
    foreign::{
        ClusterClass,
        cluster::{Topology, TopologyMetadata, WorkerTopology},
        cluster_class::WorkerClass,
    },
    labels::annotation,
};

use super::selector;
use crate::fault::Fault;

/// Location of a part in `spec.topology`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PartLocation {
    ControlPlane,
    /// Worker pool: its list in `workers`, its index, and its name.
    Pool {
        list: &'static str,
        index: usize,
        name: String,
    },
}

impl fmt::Display for PartLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlPlane => f.write_str("controlPlane"),
            Self::Pool { list, name, .. } => write!(f, "{list}[{name}]"),
        }
    }
}

/// A part and its image selector.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) place: PartLocation,
    /// The selector as written; `None` selects every image.
    pub(super) text: Option<String>,
    /// Index of its selector in [`Parts`].
    pub(super) selector: usize,
}

/// Parts of a topology and their deduplicated selectors: most parts share one.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    /// The control plane first.
    pub(super) all: Vec<Part>,
    pub(super) selectors: Vec<Selector>,
    /// Label keys in the selectors.
    pub(super) keys: BTreeSet<String>,
}

/// Maximum number of pools. The names of more pools alone would fill an object of etcd.
const MAX_WORKER_POOLS: usize = 2_000;

/// Longest selector, in bytes.
const MAX_SELECTOR_BYTES: usize = 1_024;

/// Total length of all distinct image selectors, in bytes: each is compared with all images of all releases while all other reviews
/// wait.
pub(super) const MAX_TOTAL_SELECTOR_BYTES: usize = 4_096;

/// Maximum number of reported faults of a topology.
pub(super) const MAX_FAULTS: usize = 8;

/// Returns the worker pools of a topology, each with its list and index.
pub(super) fn pools(topology: &Topology) -> impl Iterator<Item = (&'static str, usize, &WorkerTopology)> {
    let workers = topology.workers.iter();
    workers.flat_map(|workers| {
        let deployments = workers.machine_deployments.iter().enumerate();
        let pools = workers.machine_pools.iter().enumerate();
        let deployments = deployments.map(|(index, pool)| ("machineDeployments", index, pool));
        deployments.chain(pools.map(|(index, pool)| ("machinePools", index, pool)))
    })
}

/// Reads the parts of a topology.
///
/// # Errors
/// Unknown worker classes, invalid selectors, or an exceeded limit.
pub(super) fn parts(topology: &Topology, class: &ClusterClass) -> Result<Parts, Vec<Fault>> {
    let count = pools(topology).count();
    if count > MAX_WORKER_POOLS {
        let why = format!("a topology of more than {MAX_WORKER_POOLS} pools is not resolved");
        return Err(vec![Fault::new("spec.topology.workers", count.to_string(), why)]);
    }
    let mut reading = Reading::default();
    reading.take(
        PartLocation::ControlPlane,
        control_plane_selector(topology, class),
    );
    for (list, index, pool) in pools(topology) {
        if reading.faults.len() >= MAX_FAULTS {
            break;
        }
        let name = pool.name.clone();
        let place = PartLocation::Pool { list, index, name };
        match pool_selector(list, pool, class) {
            Ok(text) => reading.take(place, text),
            Err(classes) => reading.faults.push(unknown_class(&place, pool, class, classes)),
        }
    }
    reading.read()
}

/// Returns the distinct image selectors of a topology, as written; `None` if the resolver refuses its pools.
pub(super) fn image_selectors<'a>(
    topology: &'a Topology,
    class: &'a ClusterClass,
) -> Option<BTreeSet<Option<&'a str>>> {
    if pools(topology).count() > MAX_WORKER_POOLS {
        return None;
    }
    let of_pools = pools(topology).map(|(list, _, pool)| pool_selector(list, pool, class).ok());
    [Some(control_plane_selector(topology, class))]
        .into_iter()
        .chain(of_pools)
        .collect()
}

/// Reads one part for each of these selectors.
///
/// # Errors
/// Invalid selectors, or an exceeded limit.
pub(super) fn parts_of<'a>(selectors: impl Iterator<Item = Option<&'a str>>) -> Result<Parts, Vec<Fault>> {
    let mut reading = Reading::default();
    for text in selectors {
        reading.take(PartLocation::ControlPlane, text);
    }
    reading.read()
}

fn control_plane_selector<'a>(topology: &'a Topology, class: &'a ClusterClass) -> Option<&'a str> {
    let own = topology.control_plane.as_ref();
    let of_class = class.spec.control_plane.as_ref();
    selector_of(own.and_then(|own| own.metadata.as_ref()))
        .or_else(|| selector_of(of_class.and_then(|class| class.metadata.as_ref())))
}

/// Returns the image selector of a pool.
///
/// # Errors
/// The worker classes of its list, if its own is not among them.
fn pool_selector<'a>(
    list: &str,
    pool: &'a WorkerTopology,
    class: &'a ClusterClass,
) -> Result<Option<&'a str>, &'a [WorkerClass]> {
    let classes = class.spec.workers.as_ref().map(|workers| match list {
        "machineDeployments" => workers.machine_deployments.as_slice(),
        _ => workers.machine_pools.as_slice(),
    });
    let classes = classes.unwrap_or_default();
    let of_class = classes.iter().find(|class| class.class == pool.class);
    let of_class = of_class.ok_or(classes)?;
    Ok(selector_of(pool.metadata.as_ref()).or_else(|| selector_of(of_class.metadata.as_ref())))
}

fn selector_of(metadata: Option<&TopologyMetadata>) -> Option<&str> {
    metadata?
        .annotations
        .get(annotation::RESOLVE_OS_IMAGE)
        .map(String::as_str)
}

/// Parser state of parts.
#[derive(Default)]
struct Reading<'a> {
    parts: Parts,
    /// Indexes of parsed selectors, by their text.
    read: BTreeMap<&'a str, usize>,
    /// Total length of these texts, in bytes.
    bytes: usize,
    faults: Vec<Fault>,
}

impl<'a> Reading<'a> {
    fn read(self) -> Result<Parts, Vec<Fault>> {
        if self.faults.is_empty() {
            Ok(self.parts)
        } else {
            Err(self.faults)
        }
    }

    fn take(&mut self, place: PartLocation, text: Option<&'a str>) {
        let written = text.unwrap_or_default();
        match self.selector(written) {
            Ok(selector) => self.parts.all.push(Part {
                place,
                text: text.map(str::to_owned),
                selector,
            }),
            Err(why) => {
                let field = format!("annotation {} of {place}", annotation::RESOLVE_OS_IMAGE);
                self.faults.push(Fault::new(field, shortened(written), why));
            }
        }
    }

    fn selector(&mut self, text: &'a str) -> Result<usize, String> {
        if let Some(selector) = self.read.get(text) {
            return Ok(*selector);
        }
        is_short(text)?;
        self.bytes += text.len();
        if self.bytes > MAX_TOTAL_SELECTOR_BYTES {
            return Err(format!(
                "the different selectors of OSImages of a Cluster have more than {MAX_TOTAL_SELECTOR_BYTES} bytes together; use fewer"
            ));
        }
        let selector = selector::parse(text).map_err(|error| error.to_string())?;
        self.parts.keys.extend(selector::keys(&selector));
        self.parts.selectors.push(selector);
        let place = self.parts.selectors.len() - 1;
        self.read.insert(text, place);
        Ok(place)
    }
}

/// Checks the length of a selector.
///
/// # Errors
/// The message about a selector that is too long.
pub(super) fn is_short(text: &str) -> Result<(), String> {
    if text.len() > MAX_SELECTOR_BYTES {
        return Err(format!(
            "a selector has {MAX_SELECTOR_BYTES} bytes at most; use a shorter one"
        ));
    }
    Ok(())
}

/// Shortens a text to fit on a line.
pub(super) fn shortened(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn unknown_class(
    place: &PartLocation,
    pool: &WorkerTopology,
    class: &ClusterClass,
    known: &[WorkerClass],
) -> Fault {
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
