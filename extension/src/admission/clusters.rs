//! Reviews of Clusters, and the resolution of their release and images, see [`sluice_core::resolver`].

use std::sync::Arc;

use kube::core::ObjectMeta;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;
use sluice_core::{
    cache::stores::Stores as _,
    cluster::ClusterRef,
    decode::{OF_TENANT, Undecodable},
    packages::bootstrap::{pinned_release, rollback_to, way_back},
    reconcile,
    resolver::{Asked, Resolution, ResolverInputs, Running, Unknown, class_of, resolve},
};
use sluice_crds::{
    decode::{self, Fault, Limit},
    foreign::{
        Cluster,
        cluster::{ClusterSpec, ObjectReference},
    },
};

use super::{
    kept::{Chosen, OfClusters, Text},
    wire::{Changed, Malformed, Object, changed},
};
use crate::cache::{control_plane::ControlPlanes, stores::Stores};

/// Maximum size of the spec of a Cluster. etcd takes 1.5 MiB, with metadata and status.
const LONGEST_SPEC: usize = 1024 * 1024;

/// Review of a Cluster.
#[derive(Debug)]
pub(super) struct Review {
    /// UID that the response repeats.
    pub(super) uid: String,
    pub(super) namespace: String,
    /// Name of the Cluster; empty where the API server generates it.
    pub(super) name: String,
    /// Resolution request; `None` where nothing is resolved.
    pub(super) asked: Option<Asked>,
    /// Memory of the request, in bytes.
    pub(super) memory: usize,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Option<Text>,
    deletion_timestamp: Option<IgnoredAny>,
    labels: Option<Chosen<OfClusters>>,
    annotations: Option<Chosen<OfClusters>>,
}

/// Parses the body of a review of a Cluster.
pub(super) fn parse(body: &[u8]) -> Result<Review, Malformed> {
    let of = ("cluster.x-k8s.io", "v1beta2", "Cluster");
    let Changed {
        uid,
        namespace,
        name,
        objects,
        ..
    } = changed::<Object<'_, Metadata>>(body, of)?;
    let objects = objects.filter(|(new, _)| new.metadata.deletion_timestamp.is_none());
    let of_object = objects
        .as_ref()
        .and_then(|(new, _)| Some(new.metadata.name.as_ref()?.0.clone()));
    let mut memory = 0;
    let mut cluster = |object| {
        let (cluster, bytes) = cluster(object, &namespace)?;
        memory += bytes;
        Ok(cluster)
    };
    let asked = match objects {
        Some((new, old)) => Some(Asked {
            new: cluster(new)?,
            old: old.map(cluster).transpose()?,
        }),
        None => None,
    };
    Ok(Review {
        uid,
        name: name.or(of_object).unwrap_or_default(),
        namespace,
        asked,
        memory,
    })
}

/// Returns the Cluster in a review, and the memory of its spec in bytes.
fn cluster(
    Object { metadata, spec }: Object<'_, Metadata>,
    namespace: &str,
) -> Result<(Cluster, usize), Malformed> {
    let spec = spec.map_or("{}", RawValue::get);
    if spec.len() > LONGEST_SPEC {
        return Err(Malformed("the spec has more than 1 MiB".to_owned()));
    }
    let Metadata {
        name,
        labels,
        annotations,
        ..
    } = metadata;
    let (spec, memory) = decoded(spec)?;
    let cluster = Cluster {
        metadata: ObjectMeta {
            name: name.map(|name| name.0),
            namespace: Some(namespace.to_owned()),
            labels: labels.map(|labels| labels.0),
            annotations: annotations.map(|annotations| annotations.0),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    };
    Ok((cluster, memory))
}

/// Parses a spec within the memory limit for objects of tenants.
fn decoded(spec: &str) -> Result<(ClusterSpec, usize), Malformed> {
    let limit = Limit::projected(OF_TENANT);
    decode::from_str(spec, limit).map_err(|Fault { path, what }| {
        let field = match path.as_str() {
            "." => "spec".to_owned(),
            path if path.starts_with('[') => format!("spec{path}"),
            path => format!("spec.{path}"),
        };
        Malformed(format!("field {field}: {what}"))
    })
}

/// Resolves a Cluster from the caches. Its control plane is looked up where the result depends on the versions of machines. If `is_last`,
/// unused entries stay while these versions are unknown.
pub(super) fn resolved(
    asked: &Asked,
    stores: &Stores,
    control_planes: &ControlPlanes,
    is_last: bool,
) -> Result<Resolution, Unknown> {
    let class = match class_of(&asked.new) {
        Some((namespace, name)) => stores.classes.found(Some(&namespace), name),
        None => Ok(None),
    };
    let ObjectMeta { name, namespace, .. } = &asked.new.metadata;
    let bootstrap = name
        .as_deref()
        .and_then(|name| stores.bootstraps.get(namespace.as_deref(), name));
    let is_way_back = bootstrap
        .as_deref()
        .is_some_and(|bootstrap| way_back(bootstrap).is_some());
    let bootstrap = bootstrap.as_deref().map(|bootstrap| &bootstrap.metadata);
    let (releases, images) = (stores.releases(), stores.images());
    let known = ResolverInputs {
        class: class.as_ref().map(Option::as_deref).map_err(AsRef::as_ref),
        releases: &releases,
        images: images.as_deref(),
        running: None,
        pinned: bootstrap.and_then(pinned_release),
        rollback_to: bootstrap.filter(|_| is_way_back).and_then(rollback_to),
    };
    let running = || running(asked, stores, control_planes);
    let running = match resolve(asked, known) {
        Err(Unknown::Running) => running()?,
        Err(Unknown::Unused) if is_last => running().unwrap_or(Running::UNKNOWN),
        Err(Unknown::Unused) => running().map_err(|_| Unknown::Unused)?,
        resolution => return resolution,
    };
    resolve(
        asked,
        ResolverInputs {
            running: Some(&running),
            ..known
        },
    )
}

/// Returns the versions that machines of the Cluster may run.
fn running(asked: &Asked, stores: &Stores, control_planes: &ControlPlanes) -> Result<Running, Unknown> {
    let Ok(referred) = control_plane_of(asked, stores) else {
        return Ok(Running::UNKNOWN);
    };
    let (of, reference) = referred.ok_or(Unknown::Running)?;
    match control_planes.known(&of, &reference) {
        Ok(control_plane) => {
            let versions = control_plane.map(|cached| cached.versions);
            Ok(Running::of(of.namespace(), of.name(), versions, stores))
        }
        Err(reconcile::cluster::Unknown::Reading) => Err(Unknown::Running),
        Err(reconcile::cluster::Unknown::Unreadable(_)) => Ok(Running::UNKNOWN),
    }
}

/// Returns the reviewed Cluster and the cached reference to its control plane; `None` where none is cached yet. Any Pod may name any kind
/// in a review, and Sluice reads a kind only for a stored Cluster.
///
/// # Errors
/// The Cluster cannot be decoded.
pub(super) fn control_plane_of(
    asked: &Asked,
    stores: &Stores,
) -> Result<Option<(ClusterRef, ObjectReference)>, Arc<Undecodable>> {
    let of = ClusterRef::of(asked.old.as_ref().unwrap_or(&asked.new));
    let cluster = stores.clusters.found(Some(of.namespace()), of.name())?;
    let reference = cluster.and_then(|cluster| cluster.spec.control_plane_ref.clone());
    Ok(reference.map(|reference| (of, reference)))
}
