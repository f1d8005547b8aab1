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
    upgrade_plan::ClusterPlan,
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
    /// Namespace of templates and Packages.
    pub system_namespace: String,
    /// Names of the ExtensionConfigs of Sluice.
    pub extension_configs: Vec<String>,
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
        let version = control_plane
            .as_ref()
            .and_then(|cached| cached.versions.spec_version.as_deref());
        let of_sluice = (
            settings.system_namespace.as_str(),
            settings.extension_configs.as_slice(),
        );
        let ClusterPlan { plan, .. } = ClusterPlan::of(cluster, class.as_deref(), version, stores, of_sluice);
        Some(Self {
            settings: settings.clone(),
            workers: workers(stores, &owner, &topology),
            plan,
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        cache::stores::tests::{Given, object, undecodable},
        reasons::GateReason,
    };

    fn settings() -> GateSettings {
        GateSettings {
            system_namespace: "system".to_owned(),
            extension_configs: Vec::new(),
            sync_period: SyncPeriod {
                length: Duration::from_mins(10),
                since: Instant::now(),
            },
        }
    }

    fn cluster(labels: &Value) -> Arc<Cluster> {
        let spec = json!({"spec": {"topology": {"classRef": {"name": "class"}, "version": "v1.36.3"}}});
        object(Some("team-a"), "one", labels, &spec)
    }

    fn gate(namespace: &str, selector: &Value) -> Arc<UpgradeGate> {
        let spec = json!({"spec": {
            "mode": "Enforce", "clusterSelector": selector, "before": "ControlPlane", "versions": [], "checks": [],
        }});
        object(Some(namespace), "cni", &Value::Null, &spec)
    }

    fn given(gates: Vec<Arc<UpgradeGate>>) -> Given {
        Given {
            gates,
            gate_kinds: Some(GateKinds::Listed),
            ..Given::default()
        }
    }

    fn facts(cluster: &Arc<Cluster>, given: &Given) -> Option<GateFacts> {
        GateFacts::of(cluster, given, &settings(), |_| Ok(None))
    }

    #[rstest]
    #[case::selected(json!({"matchLabels": {"cni": "cilium"}}), true)]
    #[case::by_the_empty_selector(json!({}), true)]
    #[case::of_another_label(json!({"matchLabels": {"cni": "antrea"}}), false)]
    #[case::by_a_selector_without_meaning(json!({"matchExpressions": [{"key": "cni", "operator": "Like"}]}), true)]
    fn a_cluster_has_facts_if_a_gate_may_select_it(#[case] selector: Value, #[case] has_facts: bool) {
        let cluster = cluster(&json!({"cni": "cilium"}));
        assert_eq!(
            facts(&cluster, &given(vec![gate("team-a", &selector)])).is_some(),
            has_facts
        );
        assert!(
            facts(&cluster, &given(vec![gate("team-b", &selector)])).is_none(),
            "of another namespace"
        );
    }

    #[test]
    fn without_gates_there_are_no_facts() {
        let cluster = cluster(&json!({}));
        assert!(facts(&cluster, &given(Vec::new())).is_none());
        let every = gate("team-a", &json!({}));
        let mut without_topology = Arc::clone(&cluster);
        Arc::make_mut(&mut without_topology).spec.topology = None;
        assert!(facts(&without_topology, &given(vec![Arc::clone(&every)])).is_none());
        for kinds in [GateKinds::Off, GateKinds::Unlisted("waiting".to_owned())] {
            let given = Given {
                gate_kinds: Some(kinds),
                ..given(vec![Arc::clone(&every)])
            };
            assert!(facts(&cluster, &given).is_none(), "the record stays as it is");
        }
    }

    #[test]
    fn a_record_alone_keeps_its_cluster() {
        let upgrade: Arc<ClusterUpgrade> = object(Some("team-a"), "one", &Value::Null, &json!({}));
        let given = Given {
            upgrades: vec![upgrade],
            ..given(Vec::new())
        };
        assert!(facts(&cluster(&json!({})), &given).is_some_and(|facts| facts.upgrade.is_some()));
    }

    #[rstest]
    #[case::its_worker("MachineDeployment", true)]
    #[case::its_class("ClusterClass", true)]
    #[case::its_gate("UpgradeGate", false)]
    #[case::its_record("ClusterUpgrade", false)]
    fn an_undecodable_object_leaves_facts(#[case] kind: &str, #[case] is_unknown: bool) {
        let name = if kind == "ClusterUpgrade" { "one" } else { "class" };
        let labels = json!({"cluster.x-k8s.io/cluster-name": "one"});
        let given = Given {
            undecodable: vec![undecodable(kind, Some("team-a"), name, &labels)],
            ..given(vec![gate("team-a", &json!({}))])
        };
        let found = facts(&cluster(&json!({})), &given).unwrap();
        let unknown = matches!(&found.unknown, Some(Unknown::Unreadable(hold)) if hold.reason == GateReason::ObjectUndecodable);
        assert_eq!(unknown, is_unknown);
        assert_eq!(found.upgrade_undecodable.is_some(), kind == "ClusterUpgrade");
        assert_eq!(found.gates.iter().any(Result::is_err), kind == "UpgradeGate");
    }

    /// Nothing waits for the kinds of Carvel and Tanzu.
    #[test]
    fn an_unlisted_kind_is_unknown_only_if_gates_need_it() {
        for (kind, is_unknown) in [
            (StoredKind::MachineDeployment, true),
            (StoredKind::MachinePool, true),
            (StoredKind::ClusterClass, true),
            (StoredKind::Package, false),
            (StoredKind::App, false),
        ] {
            let given = Given {
                unlisted: vec![kind],
                ..given(vec![gate("team-a", &json!({}))])
            };
            let found = facts(&cluster(&json!({})), &given).unwrap();
            assert_eq!(found.unknown.is_some(), is_unknown, "{kind:?}");
        }
    }
}
