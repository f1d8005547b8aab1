//! What is known of one Cluster from memory when a pass begins.

use std::{sync::Arc, time::Duration};

use kube::ResourceExt;
use sluice_crds::{
    foreign::{
        Cluster,
        cluster::{ObjectReference, Topology},
    },
    labels::annotation,
    run::{ClusterBootstrap, TanzuKubernetesRelease, UpgradeRecord},
};

use crate::{
    bootstrap::{Catalogue, ResolvedRelease},
    build::Owner,
    cluster::is_paused,
    hold::{Hold, GateReason},
    hop::{ControlPlaneFacts, Plan, WorkerFacts},
    record::{ClusterFacts, of_cluster},
};

/// What an operator has set.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Namespace of templates and Packages, and of PackageInstalls in workload clusters.
    pub system_namespace: String,
    /// How often kapp-controller looks at a package again, and a pass at a settled cluster.
    pub sync_period: Duration,
}

/// Why nothing is known of a control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unknown {
    /// Its kind is being read for the first time.
    Reading,
    /// Its kind cannot be read.
    Unreadable(Hold),
}

impl Unknown {
    /// The kind of the control plane that a Cluster refers to cannot be read.
    #[must_use]
    pub fn unreadable(reference: &ObjectReference, why: &str) -> Self {
        let (group, kind) = (reference.group(), &reference.kind);
        Self::Unreadable(Hold::new(
            GateReason::ControlPlaneKindUnreadable,
            format!("control plane kind {kind} in group {group:?} of spec.controlPlaneRef: {why}"),
        ))
    }
}

/// One Cluster and what belongs to it.
#[derive(Debug)]
pub struct Facts {
    /// What an operator has set.
    pub settings: Settings,
    /// The Cluster.
    pub cluster: Arc<Cluster>,
    /// Its name, namespace and UID.
    pub owner: Owner,
    /// Value of the release label; empty when there is none.
    pub label: String,
    /// Its topology.
    pub topology: Topology,
    /// Its ClusterBootstrap.
    pub bootstrap: Option<Arc<ClusterBootstrap>>,
    /// Its control plane, if it is known and has one.
    pub control_plane: Option<ControlPlaneFacts>,
    /// Why the control plane is not known, if so.
    pub unknown: Option<Unknown>,
    /// Its MachineDeployments and MachinePools.
    pub workers: Vec<WorkerFacts>,
    /// Where the steps of an upgrade come from.
    pub plan: Plan,
    /// All releases.
    pub releases: Vec<Arc<TanzuKubernetesRelease>>,
    /// All Packages of the system namespace.
    pub catalogue: Catalogue,
}

impl Facts {
    /// The record of an earlier pass.
    #[must_use]
    pub fn record(&self) -> Option<&UpgradeRecord> {
        self.recorded(self.bootstrap.as_deref()?)
    }

    /// The record of this very Cluster in `bootstrap`. One of an earlier Cluster of the name says nothing.
    pub(super) fn recorded<'a>(&self, bootstrap: &'a ClusterBootstrap) -> Option<&'a UpgradeRecord> {
        of_cluster(bootstrap.status.as_ref()?.upgrade.as_ref(), &self.owner.uid)
    }

    /// The Cluster as the record sees it.
    pub(super) fn cluster(&self) -> ClusterFacts<'_> {
        let Self {
            cluster,
            owner,
            label,
            topology,
            ..
        } = self;
        let annotations = cluster.annotations();
        ClusterFacts {
            namespace: &owner.namespace,
            name: &owner.name,
            uid: &owner.uid,
            generation: cluster.metadata.generation.unwrap_or_default(),
            label,
            topology_version: &topology.version,
            paused: is_paused(cluster),
            start_held: annotations
                .keys()
                .any(|key| key.starts_with(annotation::BEFORE_UPGRADE_PREFIX)),
            deleting: cluster.metadata.deletion_timestamp.is_some(),
        }
    }

    /// The release that the spec of the ClusterBootstrap belongs to, as it was found.
    pub(super) fn resolved_release(&self) -> ResolvedRelease<'_> {
        self.bootstrap
            .as_deref()
            .map(ResolvedRelease::of)
            .unwrap_or_default()
    }
}
