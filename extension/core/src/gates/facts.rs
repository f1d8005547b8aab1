//! Facts of one Cluster and its UpgradeGates from the caches at the start of a reconcile.

use std::{collections::BTreeMap, sync::Arc};

use kube::ResourceExt as _;
use sluice_crds::{
    foreign::{
        Cluster, ClusterClass, MachineDeployment, MachinePool,
        cluster::{ObjectReference, Topology},
    },
    labels::annotation,
    lifecycle::{ClusterUpgrade, GateRecord, UpgradeGate},
};

use super::{record::of_cluster, selected::may_select};
use crate::{
    cache::{
        stored_kind::StoredKind,
        stores::{Found, GateKinds, Stored, Stores},
    },
    cluster::is_paused,
    decode::Undecodable,
    packages::build::Owner,
    reconcile::cluster::{CachedControlPlane, Unknown, workers},
    schedule::SyncPeriod,
    upgrade::{
        hop::{ControlPlaneFacts, Plan, WorkerFacts},
        record::ClusterFacts,
    },
};

/// UpgradeGate from the cache, or the readable part of one that cannot be decoded.
pub type CachedGate = Result<Arc<UpgradeGate>, Arc<Undecodable>>;

/// Kinds that every gated Cluster needs.
const NEEDED: [StoredKind; 3] = [
    StoredKind::ClusterClass,
    StoredKind::MachineDeployment,
    StoredKind::MachinePool,
];

/// Settings of the operator.
#[derive(Debug, Clone)]
pub struct GateSettings {
    /// Interval of drift checks of a settled Cluster.
    pub sync_period: SyncPeriod,
}

/// One Cluster, the UpgradeGates of its namespace, and its ClusterUpgrade.
#[derive(Debug)]
pub struct GateFacts {
    /// Settings of the operator.
    pub settings: GateSettings,
    /// The Cluster.
    pub cluster: Arc<Cluster>,
    /// Its name, namespace and UID.
    pub owner: Owner,
    /// Its topology.
    pub topology: Topology,
    /// Its class, if it exists.
    pub class: Option<Arc<ClusterClass>>,
    /// Its control plane, if it exists and is known.
    pub control_plane: Option<CachedControlPlane>,
    /// Reason why too little is known, if so.
    pub unknown: Option<Unknown>,
    /// Its MachineDeployments and MachinePools.
    pub workers: Vec<WorkerFacts>,
    /// Source of the upgrade steps.
    pub plan: Plan,
    /// All UpgradeGates of its namespace, by name.
    pub gates: Vec<CachedGate>,
    /// Its ClusterUpgrade, if it exists.
    pub upgrade: Option<Arc<ClusterUpgrade>>,
    /// Its ClusterUpgrade, if that cannot be decoded.
    pub upgrade_undecodable: Option<Arc<Undecodable>>,
}

impl GateFacts {
    /// Returns the cached facts of `cluster`; `None` if there is nothing to do: it has no topology, or it has no ClusterUpgrade and no gate
    /// selects it. `control_plane` looks up the referenced object.
    ///
    /// Before all UpgradeGates and ClusterUpgrades are listed there is nothing to do, either. Hook calls are held meanwhile.
    pub fn of(
        cluster: &Arc<Cluster>,
        stores: &impl Stores,
        settings: &GateSettings,
        control_plane: impl FnOnce(&ObjectReference) -> Result<Option<CachedControlPlane>, Unknown>,
    ) -> Option<Self> {
        if !matches!(stores.gate_kinds(), GateKinds::Listed) {
            return None;
        }
        let unlisted = NEEDED.into_iter().find(|kind| !stores.is_listed(*kind));
        let owner = Owner {
            name: cluster.name_any(),
            namespace: cluster.namespace()?,
            uid: cluster.uid()?,
        };
        let topology = cluster.spec.topology.as_ref()?;
        let gates: Vec<CachedGate> = stores.gates_of(&owner.namespace);
        let upgrade: Found<ClusterUpgrade> = stores.found(Some(&owner.namespace), &owner.name);
        let labels = cluster.labels();
        if matches!(upgrade, Ok(None)) && !gates.iter().any(|gate| may_select(gate, labels)) {
            return None;
        }
        // Cloned only for gated Clusters: any tenant may create a large topology.
        let topology = topology.clone();
        let referred = cluster.spec.control_plane_ref.as_ref();
        let (control_plane, unknown) = match referred.map(control_plane) {
            None => (None, None),
            Some(Ok(found)) => (found, None),
            Some(Err(unknown)) => (None, Some(unknown)),
        };
        let class: Found<ClusterClass> = topology.class_name().map_or(Ok(None), |name| {
            let namespace = topology.class_namespace().unwrap_or(&owner.namespace);
            stores.found(Some(namespace), name)
        });
        let undecodable = class
            .as_ref()
            .err()
            .cloned()
            .or_else(|| Stored::<MachineDeployment>::undecodable_of(stores, &owner.namespace, &owner.name))
            .or_else(|| Stored::<MachinePool>::undecodable_of(stores, &owner.namespace, &owner.name));
        let unknown = unlisted
            .map(StoredKind::unavailable)
            .or_else(|| undecodable.map(|object| object.hold()))
            .map(Unknown::Unreadable)
            .or(unknown);
        let class = class.ok().flatten();
        let (upgrade, upgrade_undecodable) = match upgrade {
            Ok(upgrade) => (upgrade, None),
            Err(undecodable) => (None, Some(undecodable)),
        };
        Some(Self {
            settings: settings.clone(),
            workers: workers(stores, &owner, &topology),
            plan: Plan::of(class.as_deref(), cluster.status.as_ref()),
            cluster: Arc::clone(cluster),
            owner,
            topology,
            class,
            control_plane,
            unknown,
            gates,
            upgrade,
            upgrade_undecodable,
        })
    }

    /// Returns the labels of the Cluster.
    #[must_use]
    pub fn labels(&self) -> &BTreeMap<String, String> {
        self.cluster.labels()
    }

    /// Returns the record of an earlier reconcile, but not one of an earlier Cluster of the same name.
    #[must_use]
    pub fn record(&self) -> Option<&GateRecord> {
        let status = self.upgrade.as_ref()?.status.as_ref()?;
        of_cluster(status.upgrade.as_ref(), &self.owner.uid)
    }

    /// Returns the versions of the control plane, if it exists and is known.
    pub(super) fn control_plane_versions(&self) -> Option<&ControlPlaneFacts> {
        self.control_plane.as_ref().map(|cached| &cached.versions)
    }

    /// Whether Cluster API has noted a pending hook call for the Cluster.
    pub(super) fn awaits_hooks(&self) -> bool {
        let hooks = self.cluster.annotations().get(annotation::PENDING_HOOKS);
        hooks.is_some_and(|hooks| !hooks.is_empty())
    }

    /// Returns the facts of the Cluster that a record needs.
    pub(super) fn cluster(&self) -> ClusterFacts<'_> {
        let Self {
            cluster,
            owner,
            topology,
            ..
        } = self;
        ClusterFacts {
            namespace: &owner.namespace,
            name: &owner.name,
            uid: &owner.uid,
            generation: cluster.metadata.generation.unwrap_or_default(),
            label: "",
            topology_version: &topology.version,
            paused: is_paused(cluster),
            start_held: cluster
                .annotations()
                .keys()
                .any(|key| key.starts_with(annotation::BEFORE_UPGRADE_PREFIX)),
            deleting: cluster.metadata.deletion_timestamp.is_some(),
            awaits_hooks: self.awaits_hooks(),
        }
    }
}
