//! Objects that a plan depends on.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_core::{
    cache::{
        snapshot::Snapshot,
        stores::{Found, Stored as _, Stores as _, is_legacy_release},
    },
    cluster::{is_managed, release_of},
    packages::requirements::has_requirements,
    protocol::{Failure, Key, Resource, Server},
    reconcile::cluster::{CachedControlPlane, Facts, Settings, Unknown},
    resolver::asks,
    schedule::SyncPeriod,
    upgrade_plan::{Finding, TargetInputs, assume_steps, is_planned_by_sluice, target},
};
use sluice_crds::{
    foreign::{
        Cluster, ClusterClass, ControlPlane,
        cluster::{ObjectReference, Topology},
    },
    labels::{label, name},
    run::{ClusterBootstrap, TanzuKubernetesRelease},
};

use crate::{arguments::PlanArgs, connection::Trouble, reader::Reader};

/// Control plane of a Cluster, or the reason why too little is known of it.
type KnownControlPlane = Result<Option<CachedControlPlane>, Unknown>;

/// Objects that a plan depends on.
pub(super) struct Objects {
    pub(super) facts: Facts,
    pub(super) snapshot: Snapshot,
    /// Warning about steps that are not planned yet.
    pub(super) assumed: Option<Finding>,
}

/// Reads the objects that every plan depends on, and moves the Cluster to the target that the user names.
///
/// # Errors
/// An object that is missing or cannot be read, or a target that does not exist.
pub(super) async fn read(reader: &mut Reader, namespace: &str, asked: &PlanArgs) -> Result<Objects, Trouble> {
    let name = &asked.name;
    let not_planned = |why: &str| Trouble::NotAnswered(format!("Cluster {namespace}/{name} {why}"));
    let cluster: Option<Arc<Cluster>> = reader.get(Some(namespace), name).await?;
    let mut cluster = cluster.ok_or_else(|| not_planned("does not exist"))?;
    let topology = cluster.spec.topology.clone();
    let topology = topology.ok_or_else(|| not_planned("has no spec.topology, so nothing upgrades it"))?;
    let control_plane = match &cluster.spec.control_plane_ref {
        Some(reference) => control_plane(reader, namespace, reference).await?,
        None => Ok(None),
    };
    let mut snapshot = listed(reader, namespace, asked, &topology).await?;
    let class = snapshot.classes.first().cloned();
    if has_images(&cluster, class.as_deref()) {
        match reader.list(None, "").await {
            Ok(images) => (snapshot.images, snapshot.without_images) = (images, false),
            // As in Sluice, whose gate holds without the definition.
            Err(failure) if failure.code == Some(404) => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    snapshot.undecodable = reader.take_undecodable();
    let release = release_of(&cluster.metadata);
    let found: Found<TanzuKubernetesRelease> = snapshot.found(None, &release);
    let has_bootstrap = !snapshot.bootstraps.is_empty();
    if !is_managed(Some(&release), is_legacy_release(&found), has_bootstrap) {
        let why = format!(
            "is not managed by Sluice: it has neither label {} nor a ClusterBootstrap",
            label::TKR
        );
        return Err(not_planned(&why));
    }
    if let Some(text) = &asked.to {
        let images = snapshot.images();
        let running = control_plane.as_ref().ok().and_then(Option::as_ref);
        let target = target(
            text,
            TargetInputs {
                cluster: &cluster,
                class: class.as_deref(),
                releases: snapshot.releases().as_ref(),
                images: images.as_deref(),
                control_plane: running.and_then(|running| running.versions.spec_version.as_deref()),
            },
        );
        let target = target.map_err(|invalid| Trouble::Target(invalid.to_string()))?;
        let cluster = Arc::make_mut(&mut cluster);
        if let Some(topology) = &mut cluster.spec.topology {
            topology.version = target.version;
        }
        let labels = cluster.metadata.labels.get_or_insert_default();
        labels.insert(label::TKR.to_owned(), target.release);
    }
    snapshot.clusters = vec![Arc::clone(&cluster)];
    let facts = Facts::of(&cluster, &snapshot, &settings(asked), |_| control_plane);
    let mut facts =
        facts.ok_or_else(|| not_planned("is of a legacy release, so Sluice does not manage it"))?;
    let is_stored = facts.topology.version == topology.version;
    let assumed = if is_stored { None } else { assume_steps(&mut facts) };
    Ok(Objects {
        facts,
        snapshot,
        assumed,
    })
}

/// Returns the settings of Sluice, as far as a plan depends on them.
fn settings(asked: &PlanArgs) -> Settings {
    Settings {
        system_namespace: asked.system_namespace.clone(),
        extension_configs: Vec::new(),
        sync_period: SyncPeriod {
            length: Duration::from_mins(10),
            since: Instant::now(),
        },
        deletion_limit: Duration::from_mins(10),
    }
}

/// Reads all objects but OSImages, and templates, which the plan asks for unless the steps depend on them.
async fn listed(
    reader: &mut Reader,
    namespace: &str,
    asked: &PlanArgs,
    topology: &Topology,
) -> Result<Snapshot, Trouble> {
    let system = Some(asked.system_namespace.as_str());
    let of_topology = format!(
        "{}={},{}",
        label::CAPI_CLUSTER_NAME,
        asked.name,
        label::TOPOLOGY_OWNED
    );
    let class: Option<Arc<ClusterClass>> = match topology.class_name() {
        Some(class) => {
            let namespace = topology.class_namespace().unwrap_or(namespace);
            reader.get(Some(namespace), class).await?
        }
        None => None,
    };
    let bootstrap: Option<Arc<ClusterBootstrap>> = reader.get(Some(namespace), &asked.name).await?;
    let releases: Vec<Arc<TanzuKubernetesRelease>> = reader.list(None, "").await?;
    let templates = match &class {
        Some(class) if is_planned_by_sluice(class, &[]) => reader.list(system, "").await?,
        _ => Vec::new(),
    };
    let mut snapshot = Snapshot {
        bootstraps: bootstrap.into_iter().collect(),
        templates,
        classes: class.into_iter().collect(),
        packages: reader.list(system, "").await?,
        machine_deployments: reader.list(Some(namespace), &of_topology).await?,
        machine_pools: served(reader.list(Some(namespace), &of_topology).await)?,
        without_images: true,
        ..Snapshot::default()
    };
    // Of most releases no management package is required.
    if releases.iter().any(|release| has_requirements(release)) {
        snapshot.installs = reader.list(system, "").await?;
        snapshot.apps = reader.list(system, "").await?;
    }
    snapshot.releases = releases;
    Ok(snapshot)
}

/// Returns no objects of a kind that the API server does not serve.
fn served<K>(listed: Result<Vec<K>, Failure>) -> Result<Vec<K>, Failure> {
    match listed {
        Err(failure) if failure.code == Some(404) => Ok(Vec::new()),
        listed => listed,
    }
}

/// Whether the machines of a Cluster are made of OSImages of a release.
fn has_images(cluster: &Cluster, class: Option<&ClusterClass>) -> bool {
    class.is_some_and(|class| class.spec.declares(name::TKR_DATA)) || asks(&cluster.metadata, class).is_some()
}

/// Reads the control plane of a Cluster.
///
/// # Errors
/// The API server refuses the read or does not respond. A kind that it does not serve holds the Cluster.
async fn control_plane(
    reader: &Reader,
    namespace: &str,
    reference: &ObjectReference,
) -> Result<KnownControlPlane, Failure> {
    let Some((served, _)) = reader.served(reference.group(), &reference.kind).await? else {
        return Ok(Err(Unknown::unreadable(
            reference,
            "the API server does not serve it",
        )));
    };
    let key = Key {
        server: Server::Management,
        resource: Resource::from(&served),
        namespace: Some(namespace.to_owned()),
        name: reference.name.clone(),
    };
    let found: Option<ControlPlane> = reader.object(&key).await?;
    Ok(Ok(found.map(|found| CachedControlPlane::of(key, &found))))
}
