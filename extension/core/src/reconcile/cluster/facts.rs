//! Facts of one Cluster from the caches at the start of a reconcile.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use sluice_crds::{
    foreign::{
        Cluster, ClusterClass, ControlPlane, MachineDeployment, MachinePool, Package,
        cluster::{ClusterStatus, ObjectReference, Topology},
    },
    labels::{annotation, label},
    lifecycle::UpgradeOverride,
    run::{ClusterBootstrap, ClusterBootstrapTemplate, TanzuKubernetesRelease, UpgradeRecord},
};

use crate::{
    cache::{
        stored_kind::StoredKind,
        stores::{Found, Images, Releases, Stored, Stores, is_legacy_release},
    },
    cluster::{is_managed, is_paused},
    decode::Undecodable,
    gate::plan_call::NoPlan,
    installation::gate_in_force::GateInForce,
    migration::without_finalizer,
    packages::{
        bootstrap::{Catalogue, ResolvedRelease, packages},
        build::Owner,
        requirements::ManagementPackages,
    },
    protocol::Key,
    reasons::{GateReason, Hold},
    resolver::follows_bootstrap,
    schedule::SyncPeriod,
    summary::conditions::says_ungated,
    upgrade::{
        hop::{ControlPlaneFacts, Plan, Rollout, Worker, WorkerFacts},
        record::{ClusterFacts, of_cluster},
        swap::made_of,
    },
    upgrade_plan::ClusterPlan,
};

/// Settings of the operator.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Namespace of templates and Packages, and of PackageInstalls in workload clusters.
    pub system_namespace: String,
    /// Names of the ExtensionConfigs of Sluice; empty if any may be.
    pub extension_configs: Vec<String>,
    /// Resync interval of kapp-controller for a package, and interval of drift checks of a settled Cluster.
    pub sync_period: SyncPeriod,
    /// Time that a deletion may wait for packages to be uninstalled.
    pub deletion_limit: Duration,
}

/// Reason why too little is known of a Cluster, mostly of its control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unknown {
    /// The first list of its kind is in progress.
    Reading,
    /// Its kind is unreadable, an object that the Cluster depends on cannot be decoded, or a kind that it needs was never listed.
    Unreadable(Hold),
}

impl Unknown {
    /// Returns the reason for an unreadable control plane kind in `spec.controlPlaneRef`.
    #[must_use]
    pub fn unreadable(reference: &ObjectReference, why: &str) -> Self {
        // A definition of v1beta1 does not bound these names.
        let (group, kind) = (format!("{:.253}", reference.group()), &reference.kind);
        Self::Unreadable(Hold::new(
            GateReason::ControlPlaneKindUnreadable,
            format!("control plane kind {kind:.63} in group {group:?} of spec.controlPlaneRef: {why}"),
        ))
    }
}

/// Cached control plane object of a Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedControlPlane {
    /// Its key at the management API server.
    pub key: Key,
    /// Its UID.
    pub uid: Option<String>,
    /// Its generation.
    pub generation: Option<i64>,
    /// Its resourceVersion.
    pub resource_version: Option<String>,
    /// Its versions.
    pub versions: ControlPlaneFacts,
    /// Replacement of its machines.
    pub rollout: Rollout,
}

impl CachedControlPlane {
    /// Returns what is kept of an object with this key.
    #[must_use]
    pub fn of(key: Key, object: &ControlPlane) -> Self {
        Self {
            key,
            uid: object.metadata.uid.clone(),
            generation: object.metadata.generation,
            resource_version: object.metadata.resource_version.clone(),
            versions: ControlPlaneFacts::of(object),
            rollout: Rollout::of(object),
        }
    }

    /// Whether both are the same object with the same desired state and versions.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        let of = |of: &Self| (of.key.clone(), of.uid.clone(), of.generation, of.versions.clone());
        of(self) == of(other)
    }
}

/// One Cluster and the objects that belong to it.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Settings of the operator.
    pub settings: Settings,
    /// Time of the management API server, which the caller sets; `None` while it is not known.
    pub server_now: Option<Timestamp>,
    /// UID of namespace `kube-system` of the management cluster, which the caller sets; `None` while it is not known.
    pub management_uid: Option<Arc<str>>,
    /// Whether Cluster API calls the hooks for the Cluster, which the caller sets; `None` while it is not known. Nothing is decided from it.
    pub gate_in_force: Option<GateInForce>,
    /// The Cluster.
    pub cluster: Arc<Cluster>,
    /// Its name, namespace and UID.
    pub owner: Owner,
    /// Value of the release label; empty when there is none.
    pub label: String,
    /// Its topology.
    pub topology: Topology,
    /// Release that its machines at the target are [made of](made_of).
    pub made_of: Option<String>,
    /// Whether its release still follows its ClusterBootstrap, see [`follows_bootstrap`].
    pub follows_bootstrap: bool,
    /// Its class, if it exists.
    pub class: Option<Arc<ClusterClass>>,
    /// Its ClusterBootstrap.
    pub bootstrap: Option<Arc<ClusterBootstrap>>,
    /// Its control plane, if it exists and is known.
    pub control_plane: Option<CachedControlPlane>,
    /// Reason why too little is known, if so.
    pub unknown: Option<Unknown>,
    /// Its MachineDeployments and MachinePools.
    pub workers: Vec<WorkerFacts>,
    /// Source of the upgrade steps.
    pub plan: Plan,
    /// Steps that hook GenerateUpgradePlan of Sluice returns; `None` if the class does not refer to it.
    pub own_steps: Option<Result<Vec<String>, NoPlan>>,
    /// All releases.
    pub releases: Arc<Releases>,
    /// All OSImages; `None` before the first list.
    pub images: Option<Arc<Images>>,
    /// A release that cannot be decoded, if any: it may be for any version.
    pub undecodable_release: Option<Arc<Undecodable>>,
    /// All Packages of the system namespace.
    pub catalogue: Arc<Catalogue>,
    /// PackageInstalls and Apps of the system namespace that releases may require.
    pub management_packages: Arc<ManagementPackages>,
    /// Its UpgradeOverrides; `None` before their first list.
    pub overrides: Option<Vec<Arc<UpgradeOverride>>>,
}

impl Facts {
    /// Returns the cached facts of `cluster`; `None` if Sluice does not manage it, unless a finalizer of the addons-manager blocks its
    /// deletion. `control_plane` looks up the referenced object.
    ///
    /// ClusterBootstraps and TanzuKubernetesReleases must be listed before. Any other unlisted kind sets [`Facts::unknown`].
    pub fn of(
        cluster: &Arc<Cluster>,
        stores: &impl Stores,
        settings: &Settings,
        control_plane: impl FnOnce(&ObjectReference) -> Result<Option<CachedControlPlane>, Unknown>,
    ) -> Option<Self> {
        let unlisted = stores.unlisted();
        let owner = Owner {
            name: cluster.name_any(),
            namespace: cluster.namespace()?,
            uid: cluster.uid()?,
        };
        let topology = cluster.spec.topology.as_ref()?;
        let label = cluster.labels().get(label::TKR).cloned().unwrap_or_default();
        let bootstrap: Found<ClusterBootstrap> = stores.found(Some(&owner.namespace), &owner.name);
        let release: Found<TanzuKubernetesRelease> = stores.found(None, &label);
        let has_bootstrap = !matches!(bootstrap, Ok(None));
        let is_managed = is_managed(Some(&label), is_legacy_release(&release), has_bootstrap);
        // Nothing else removes the finalizer from a formerly managed Cluster that lost its label and its ClusterBootstrap.
        let is_kept_by_finalizer = label.is_empty()
            && cluster.metadata.deletion_timestamp.is_some()
            && without_finalizer(&cluster.metadata).is_some();
        if !is_managed && !is_kept_by_finalizer {
            return None;
        }
        // Cloned only for managed Clusters: any tenant may create a large topology.
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
        let odd = [
            bootstrap.as_ref().err(),
            release.as_ref().err(),
            class.as_ref().err(),
        ];
        let odd = odd.into_iter().flatten().next().cloned();
        let (bootstrap, class) = (bootstrap.ok().flatten(), class.ok().flatten());
        let made_of = made_of(&topology, &topology.version);
        let undecodable = odd
            .or_else(|| Stored::<MachineDeployment>::undecodable_of(stores, &owner.namespace, &owner.name))
            .or_else(|| Stored::<MachinePool>::undecodable_of(stores, &owner.namespace, &owner.name))
            .or_else(|| of_catalogue(stores, &settings.system_namespace, &label, bootstrap.as_deref()));
        let unknown = unlisted
            .map(StoredKind::unavailable)
            .or_else(|| undecodable.map(|object| object.hold()))
            .map(Unknown::Unreadable)
            .or(unknown);
        let version = control_plane
            .as_ref()
            .and_then(|cached| cached.versions.spec_version.as_deref());
        let ClusterPlan { plan, own_steps } = ClusterPlan::of(
            cluster,
            class.as_deref(),
            version,
            stores,
            (&settings.system_namespace, &settings.extension_configs),
        );
        Some(Self {
            server_now: None,
            management_uid: None,
            gate_in_force: None,
            settings: settings.clone(),
            workers: workers(stores, &owner, &topology),
            follows_bootstrap: follows_bootstrap(cluster, class.as_deref()).is_some(),
            plan,
            own_steps,
            releases: stores.releases(),
            images: stores.images(),
            class,
            made_of,
            undecodable_release: stores.undecodable_release(),
            catalogue: stores.catalogue(),
            management_packages: stores.management_packages(),
            overrides: stores.overrides_of(&owner.namespace, &owner.name),
            cluster: Arc::clone(cluster),
            owner,
            label,
            topology,
            bootstrap,
            control_plane,
            unknown,
        })
    }

    /// Returns the versions of the control plane, if it exists and is known.
    pub(super) fn control_plane_versions(&self) -> Option<&ControlPlaneFacts> {
        self.control_plane.as_ref().map(|cached| &cached.versions)
    }

    /// Whether the ClusterBootstrap reports a version that was written without an open gate.
    #[must_use]
    pub fn says_ungated(&self) -> bool {
        let status = self
            .bootstrap
            .as_deref()
            .and_then(|bootstrap| bootstrap.status.as_ref());
        status.is_some_and(|status| says_ungated(&status.conditions))
    }

    /// Returns the record of an earlier reconcile.
    #[must_use]
    pub fn record(&self) -> Option<&UpgradeRecord> {
        self.recorded(self.bootstrap.as_deref()?)
    }

    /// Whether the workload may respond: it did before, or Cluster API does not report an uninitialized control plane. A change of either
    /// requeues the Cluster.
    pub(super) fn may_be_reached(&self) -> bool {
        let status = self.cluster.status.as_ref();
        let answered = |record: &UpgradeRecord| record.workload_uid.is_some();
        self.record().is_some_and(answered)
            || status.and_then(ClusterStatus::control_plane_initialized) != Some(false)
    }

    /// Returns the record of this Cluster in `bootstrap`, but not one of an earlier Cluster of the same name.
    pub(super) fn recorded<'a>(&self, bootstrap: &'a ClusterBootstrap) -> Option<&'a UpgradeRecord> {
        of_cluster(bootstrap.status.as_ref()?.upgrade.as_ref(), &self.owner.uid)
    }

    /// Returns the facts of the Cluster that a record needs.
    pub(crate) fn cluster(&self) -> ClusterFacts<'_> {
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
            awaits_hooks: annotations
                .get(annotation::PENDING_HOOKS)
                .is_some_and(|hooks| !hooks.is_empty()),
        }
    }

    /// Returns the release that the spec of the ClusterBootstrap belongs to.
    pub(super) fn resolved_release(&self) -> ResolvedRelease<'_> {
        self.bootstrap
            .as_deref()
            .map(ResolvedRelease::of)
            .unwrap_or_default()
    }
}

/// Returns the first undecodable object of the system namespace that the Cluster depends on. Candidates are the templates of its current
/// and desired releases, and the Packages of its ClusterBootstrap and of the desired template.
fn of_catalogue(
    stores: &impl Stores,
    system: &str,
    label: &str,
    bootstrap: Option<&ClusterBootstrap>,
) -> Option<Arc<Undecodable>> {
    let resolved = bootstrap.and_then(|bootstrap| ResolvedRelease::of(bootstrap).release());
    let templates = [Some(label), resolved].into_iter().flatten();
    let mut templates = templates
        .filter_map(|name| Stored::<ClusterBootstrapTemplate>::undecodable(stores, Some(system), name));
    let target: Option<Arc<ClusterBootstrapTemplate>> = stores.get(Some(system), label);
    let specs = bootstrap.map(|bootstrap| &bootstrap.spec);
    let specs = specs
        .into_iter()
        .chain(target.as_deref().map(|target| &target.spec.0));
    let named = specs.flat_map(packages);
    let mut packages = named
        .filter_map(|(_, package)| Stored::<Package>::undecodable(stores, Some(system), &package.ref_name));
    templates.next().or_else(|| packages.next())
}

/// Returns the workers of a topology, sorted by name.
pub(crate) fn workers(stores: &impl Stores, owner: &Owner, topology: &Topology) -> Vec<WorkerFacts> {
    fn of<K: Worker>(stores: &impl Stored<K>, owner: &Owner) -> Vec<WorkerFacts> {
        let workers = stores.of_cluster(&owner.namespace, &owner.name);
        workers
            .iter()
            .filter_map(|worker| WorkerFacts::of(&**worker))
            .collect()
    }
    let mut all = of::<MachineDeployment>(stores, owner);
    all.extend(of::<MachinePool>(stores, owner));
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all.into_iter()
        .map(|worker| worker.in_topology(topology))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        cache::stores::tests::{Filling, Given, object, undecodable},
        protocol::Server,
    };

    const LABEL: &str = "v1.36.3---sluice.1";

    fn settings() -> Settings {
        Settings {
            system_namespace: "tkg-system".to_owned(),
            extension_configs: Vec::new(),
            sync_period: SyncPeriod {
                length: Duration::from_mins(10),
                since: Instant::now(),
            },
            deletion_limit: Duration::from_mins(10),
        }
    }

    fn cluster(label: &str) -> Arc<Cluster> {
        let class = json!({"name": "class"});
        let spec = json!({
            "topology": {"classRef": class, "version": "v1.36.3"}, "controlPlaneRef": {"kind": "Good", "name": "one"},
        });
        let labels = json!({label::TKR: label});
        object(Some("team-a"), "one", &labels, &json!({"spec": spec}))
    }

    fn facts(cluster: &Arc<Cluster>, given: &Given) -> Option<Facts> {
        Facts::of(cluster, given, &settings(), |_| Err(Unknown::Reading))
    }

    #[test]
    fn unmanaged_clusters_have_no_facts() {
        let given = Given::default();
        assert!(facts(&cluster(""), &given).is_none());
        let mut without_topology = cluster(LABEL);
        Arc::make_mut(&mut without_topology).spec.topology = None;
        assert!(facts(&without_topology, &given).is_none());
        let bootstrap = object(Some("team-a"), "one", &Value::Null, &json!({"spec": {}}));
        let with_bootstrap = Given {
            bootstraps: vec![bootstrap],
            ..Given::default()
        };
        assert!(facts(&cluster(""), &with_bootstrap).is_some_and(|facts| facts.bootstrap.is_some()));
        let release = json!({"spec": {"version": "", "kubernetes": {"version": ""}}});
        let legacy = Given {
            releases: vec![object(None, LABEL, &json!({label::LEGACY_TKR: ""}), &release)],
            ..Given::default()
        };
        assert!(facts(&cluster(LABEL), &legacy).is_none());
    }

    #[test]
    fn an_unknown_control_plane_is_not_a_missing_one() {
        let given = Given::default();
        let unknown = facts(&cluster(LABEL), &given).unwrap();
        assert_eq!(unknown.unknown, Some(Unknown::Reading));
        let missing = Facts::of(&cluster(LABEL), &given, &settings(), |_| Ok(None)).unwrap();
        assert_eq!((missing.unknown, missing.control_plane), (None, None));
    }

    #[rstest]
    #[case::its_bootstrap("ClusterBootstrap", Some("team-a"), "one", true)]
    #[case::its_release("TanzuKubernetesRelease", None, LABEL, true)]
    #[case::its_class("ClusterClass", Some("team-a"), "class", true)]
    #[case::its_worker("MachineDeployment", Some("team-a"), "md", true)]
    #[case::its_pool("MachinePool", Some("team-a"), "pool", true)]
    #[case::its_template("ClusterBootstrapTemplate", Some("tkg-system"), LABEL, true)]
    #[case::the_template_it_has("ClusterBootstrapTemplate", Some("tkg-system"), "before", true)]
    #[case::its_package("Package", Some("tkg-system"), "antrea.1.7.1", true)]
    #[case::a_package_it_shall_have("Package", Some("tkg-system"), "antrea.1.8.0", true)]
    #[case::another_package("Package", Some("tkg-system"), "antrea.1.9.0", false)]
    #[case::the_bootstrap_of_another("ClusterBootstrap", Some("team-b"), "one", false)]
    #[case::a_worker_of_another_namespace("MachineDeployment", Some("team-b"), "md", false)]
    fn an_undecodable_object_holds_dependent_clusters(
        #[case] kind: &str,
        #[case] namespace: Option<&str>,
        #[case] name: &str,
        #[case] holds: bool,
    ) {
        let labels = json!({label::CAPI_CLUSTER_NAME: "one"});
        let rest = json!({
            "spec": {"cni": {"refName": "antrea.1.7.1"}}, "status": {"resolvedTKR": "before"},
        });
        let given = Given {
            bootstraps: vec![object(Some("team-a"), "one", &Value::Null, &rest)],
            templates: if kind == "Package" {
                let rest = json!({"spec": {"cni": {"refName": "antrea.1.8.0"}}});
                vec![object(Some("tkg-system"), LABEL, &Value::Null, &rest)]
            } else {
                Vec::new()
            },
            undecodable: vec![undecodable(kind, namespace, name, &labels)],
            ..Given::default()
        };
        let found = Facts::of(&cluster(LABEL), &given, &settings(), |_| Ok(None)).unwrap();
        let held = found.unknown.map(|unknown| match unknown {
            Unknown::Unreadable(hold) => (hold.reason, hold.message.contains(name)),
            Unknown::Reading => (GateReason::ControlPlaneCreating, false),
        });
        assert_eq!(held, holds.then_some((GateReason::ObjectUndecodable, true)));
    }

    /// An empty store must not count as the absence of objects.
    #[test]
    fn a_kind_that_was_never_listed_holds_managed_clusters() {
        for kind in StoredKind::ALL {
            let given = Given {
                unlisted: vec![kind],
                ..Given::default()
            };
            let found = Facts::of(&cluster(LABEL), &given, &settings(), |_| Ok(None)).unwrap();
            assert_eq!(
                found.unknown,
                Some(Unknown::Unreadable(kind.unavailable())),
                "{kind:?}"
            );
            assert!(facts(&cluster(""), &given).is_none(), "{kind:?}");
        }
    }

    #[test]
    fn a_store_that_fills_meanwhile_still_counts_as_unlisted() {
        let filling = Filling::with(Given::default());
        let found = Facts::of(&cluster(LABEL), &filling, &settings(), |_| Ok(None)).unwrap();
        assert!(
            matches!(found.unknown, Some(Unknown::Unreadable(_))),
            "{:?}",
            found.unknown
        );
    }

    #[test]
    fn a_bootstrap_that_cannot_be_decoded_keeps_its_cluster_managed() {
        let given = Given {
            undecodable: vec![undecodable("ClusterBootstrap", Some("team-a"), "one", &json!({}))],
            ..Given::default()
        };
        assert!(facts(&cluster(""), &given).is_some());
        assert!(facts(&cluster(""), &Given::default()).is_none());
    }

    #[test]
    fn workers_are_those_of_the_cluster_in_its_namespace() {
        fn worker<K: serde::de::DeserializeOwned + kube::Resource<DynamicType = ()>>(
            namespace: &str,
            name: &str,
            cluster: &str,
        ) -> Arc<K> {
            let labels = json!({label::CAPI_CLUSTER_NAME: cluster});
            object(Some(namespace), name, &labels, &json!({"spec": {}}))
        }
        let given = Given {
            machine_deployments: vec![
                worker("team-a", "md-1", "one"),
                worker("team-a", "md-2", "two"),
                worker("team-b", "md-3", "one"),
            ],
            machine_pools: vec![worker("team-a", "a-pool", "one")],
            ..Given::default()
        };
        let facts = facts(&cluster(LABEL), &given).unwrap();
        let names: Vec<&str> = facts.workers.iter().map(|worker| worker.name.as_str()).collect();
        assert_eq!(names, ["a-pool", "md-1"]);
    }

    #[test]
    fn the_plan_is_that_of_the_class() {
        let with = |spec: Value| Given {
            classes: vec![object(
                Some("team-a"),
                "class",
                &Value::Null,
                &json!({"spec": spec}),
            )],
            ..Given::default()
        };
        let plan = |given: &Given| {
            let mut cluster = cluster(LABEL);
            let status = json!({"controlPlane": {"upgradePlan": [{"version": "v1.37.0"}]}});
            Arc::make_mut(&mut cluster).status = serde_json::from_value(status).unwrap();
            facts(&cluster, given).unwrap().plan
        };
        assert_eq!(plan(&Given::default()), Plan::Direct);
        assert_eq!(plan(&with(json!({}))), Plan::Direct);
        let listed = json!({"kubernetesVersions": ["v1.35.4", "v1.36.3"]});
        assert_eq!(
            plan(&with(listed)),
            Plan::Listed(vec!["v1.35.4".into(), "v1.36.3".into()])
        );
        let external = json!({
            "kubernetesVersions": ["v1.35.4"], "upgrade": {"external": {"generateUpgradePlanExtension": "plan"}},
        });
        let given = Plan::Given {
            control_plane: vec!["v1.37.0".into()],
            workers: Vec::new(),
        };
        assert_eq!(plan(&with(external)), given);
    }

    #[test]
    fn sluice_plans_the_steps_from_the_version_of_the_control_plane() {
        let external = json!({"generateUpgradePlanExtension": "generate-upgrade-plan.sluice"});
        let class = json!({"spec": {"upgrade": {"external": external}}});
        let release = json!({"spec": {"version": "v1.35.4", "kubernetes": {"version": "v1.35.4"}}});
        let given = Given {
            classes: vec![object(Some("team-a"), "class", &Value::Null, &class)],
            releases: vec![object(None, "v1.35.4---sluice.1", &Value::Null, &release)],
            ..Given::default()
        };
        let mut cluster = cluster(LABEL);
        let annotations = Arc::make_mut(&mut cluster).annotations_mut();
        annotations.insert(annotation::UPGRADE_STEP.to_owned(), String::new());
        let control_plane = CachedControlPlane {
            key: Key::of::<Cluster>(Server::Management, Some("team-a"), "one"),
            uid: None,
            generation: None,
            resource_version: None,
            versions: ControlPlaneFacts {
                spec_version: Some("v1.34.4".to_owned()),
                status_version: Some("v1.34.4".to_owned()),
            },
            rollout: Rollout::default(),
        };
        let found = Facts::of(&cluster, &given, &settings(), |_| Ok(Some(control_plane))).unwrap();
        let steps = vec!["v1.35.4".to_owned(), "v1.36.3".to_owned()];
        assert_eq!(found.own_steps, Some(Ok(steps.clone())));
        assert_eq!(found.plan, Plan::Listed(steps));
    }
}
