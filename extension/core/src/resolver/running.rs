//! Kubernetes versions that machines of a Cluster may run.

use std::{cell::Cell, collections::BTreeSet};

use sluice_crds::{
    foreign::{Cluster, MachineDeployment, MachinePool},
    run::ClusterBootstrap,
};

use super::Unknown;
use crate::{
    cache::{
        stored_kind::StoredKind,
        stores::{Stored, Stores},
    },
    upgrade::hop::{ControlPlaneFacts, Worker, WorkerFacts},
    version::same_but_for_suffix,
};

/// Versions that machines of a Cluster may run, or get next without a further hook call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running(Option<BTreeSet<String>>);

impl Running {
    /// Unknown versions, so it may be any.
    pub const UNKNOWN: Self = Self(None);

    /// Reads the versions of a Cluster and its control plane from the cache. They are unknown before the first list of its workers.
    ///
    /// A version whose gate is open counts: Cluster API may be writing it.
    #[must_use]
    pub fn of(
        namespace: &str,
        cluster: &str,
        control_plane: Option<ControlPlaneFacts>,
        stores: &impl Stores,
    ) -> Self {
        let kinds = [
            StoredKind::MachineDeployment,
            StoredKind::MachinePool,
            StoredKind::ClusterBootstrap,
        ];
        if kinds.into_iter().any(|kind| !stores.is_listed(kind)) {
            return Self::UNKNOWN;
        }
        let Some(ControlPlaneFacts {
            spec_version: Some(spec),
            status_version,
        }) = control_plane
        else {
            return Self::UNKNOWN;
        };
        let mut versions: BTreeSet<String> = status_version.into_iter().chain([spec]).collect();
        let Some(deployments) = workers::<MachineDeployment>(namespace, cluster, stores) else {
            return Self::UNKNOWN;
        };
        let Some(pools) = workers::<MachinePool>(namespace, cluster, stores) else {
            return Self::UNKNOWN;
        };
        for worker in deployments.into_iter().chain(pools) {
            versions.extend(worker.versions);
            versions.extend(worker.spec_version);
        }
        let Ok(bootstrap) = Stored::<ClusterBootstrap>::found(stores, Some(namespace), cluster) else {
            return Self::UNKNOWN;
        };
        let record = bootstrap
            .as_deref()
            .and_then(|bootstrap| bootstrap.status.as_ref()?.upgrade.as_ref());
        let gates = record.into_iter().flat_map(|record| &record.gates);
        versions.extend(gates.filter(|gate| gate.open).map(|gate| gate.version.clone()));
        Self(Some(versions))
    }

    /// Whether machines may run this version. A provider may report it with another suffix.
    #[must_use]
    pub fn may_run(&self, version: &str) -> bool {
        self.0.as_ref().is_none_or(|versions| {
            let is_reported = |reported: &String| same_but_for_suffix(reported, version);
            versions.contains(version) || versions.iter().any(is_reported)
        })
    }
}

/// Machines of a changed Cluster. Requests their versions only if the result depends on them.
#[derive(Debug)]
pub(super) struct Machines<'a> {
    old: Option<&'a Cluster>,
    running: Option<&'a Running>,
    is_needed: Cell<bool>,
}

impl<'a> Machines<'a> {
    pub(super) const fn of(old: Option<&'a Cluster>, running: Option<&'a Running>) -> Self {
        Self {
            old,
            running,
            is_needed: Cell::new(false),
        }
    }

    /// Whether machines may run this version. A Cluster without a control plane has no machines.
    pub(super) fn may_run(&self, version: &str) -> bool {
        if self.old.is_none_or(|old| old.spec.control_plane_ref.is_none()) {
            return false;
        }
        let Some(running) = self.running else {
            self.is_needed.set(true);
            return true;
        };
        running.may_run(version)
    }

    /// Checks that all requested versions are known.
    ///
    /// # Errors
    /// The versions have to be looked up first.
    pub(super) fn known(&self) -> Result<(), Unknown> {
        if self.is_needed.get() {
            return Err(Unknown::Running);
        }
        Ok(())
    }
}

/// Returns the MachineDeployments or MachinePools of a Cluster; `None` if one is undecodable.
fn workers<K: Worker>(namespace: &str, cluster: &str, stores: &impl Stored<K>) -> Option<Vec<WorkerFacts>> {
    if stores.undecodable_of(namespace, cluster).is_some() {
        return None;
    }
    let workers = stores.of_cluster(namespace, cluster);
    Some(
        workers
            .iter()
            .filter_map(|worker| WorkerFacts::of(&**worker))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::json;
    use sluice_crds::labels::label;

    use super::*;
    use crate::cache::stores::tests::{Given, object, undecodable};

    /// A Cluster whose control plane and worker run v1.35.4, with a closed gate toward v1.36.3.
    fn given() -> Given {
        let of_cluster = json!({label::CAPI_CLUSTER_NAME: "one"});
        let worker = json!({"spec": {"template": {"spec": {"version": "v1.35.4"}}}});
        let gate = |open: bool, version: &str| json!({"hook": "BeforeClusterUpgrade", "version": version, "open": open});
        let record = json!({
            "schema": sluice_crds::run::SCHEMA, "clusterUID": "uid", "label": "a", "to": "v1.36.3",
            "observedClusterGeneration": 1, "observedBootstrapGeneration": 1,
            "gates": [gate(false, "v1.36.3"), gate(true, "v1.37.1")],
        });
        let bootstrap = json!({"spec": {}, "status": {"upgrade": record}});
        Given {
            machine_deployments: vec![object(Some("ns"), "md", &of_cluster, &worker)],
            bootstraps: vec![object(Some("ns"), "one", &json!({}), &bootstrap)],
            ..Given::default()
        }
    }

    fn at(spec: &str, status: &str) -> ControlPlaneFacts {
        ControlPlaneFacts {
            spec_version: Some(spec.to_owned()),
            status_version: Some(status.to_owned()),
        }
    }

    #[rstest]
    #[case::closed("v1.36.3", Some(at("v1.35.4", "v1.35.4")), false)]
    #[case::of_all("v1.35.4", Some(at("v1.35.4", "v1.35.4")), true)]
    #[case::gate_is_open("v1.37.1", Some(at("v1.35.4", "v1.35.4")), true)]
    #[case::being_written("v1.36.3", Some(at("v1.36.3", "v1.35.4")), true)]
    #[case::still_there("v1.34.4", Some(at("v1.35.4", "v1.34.4")), true)]
    #[case::still_there_with_a_suffix("v1.34.4", Some(at("v1.35.4", "v1.34.4+k0s")), true)]
    #[case::another_build("v1.34.4+vmware.1", Some(at("v1.35.4", "v1.34.4+vmware.2")), false)]
    #[case::no_control_plane("v1.36.3", None, true)]
    #[case::no_version("v1.36.3", Some(ControlPlaneFacts::default()), true)]
    fn which_versions_may_run(
        #[case] version: &str,
        #[case] control_plane: Option<ControlPlaneFacts>,
        #[case] may_run: bool,
    ) {
        let running = Running::of("ns", "one", control_plane, &given());
        assert_eq!(running.may_run(version), may_run);
    }

    #[test]
    fn unlisted_objects_permit_any_version() {
        for (kind, is_needed) in [
            (StoredKind::MachineDeployment, true),
            (StoredKind::MachinePool, true),
            (StoredKind::ClusterBootstrap, true),
            (StoredKind::Package, false),
        ] {
            let given = Given {
                unlisted: vec![kind],
                ..given()
            };
            let running = Running::of("ns", "one", Some(at("v1.35.4", "v1.35.4")), &given);
            assert_eq!(running == Running::UNKNOWN, is_needed, "{kind:?}");
        }
    }

    #[test]
    fn undecodable_objects_permit_any_version() {
        let labels = json!({label::CAPI_CLUSTER_NAME: "one"});
        for (kind, name) in [
            ("MachineDeployment", "md"),
            ("MachinePool", "mp"),
            ("ClusterBootstrap", "one"),
        ] {
            let mut given = given();
            given.undecodable = vec![undecodable(kind, Some("ns"), name, &labels)];
            let running = Running::of("ns", "one", Some(at("v1.35.4", "v1.35.4")), &given);
            assert_eq!(running, Running::UNKNOWN, "{kind}");
        }
        let mut given = given();
        let worker = Arc::make_mut(&mut given.machine_deployments[0]);
        worker.spec.template.spec.version = Some("v1.36.3".to_owned());
        assert!(Running::of("ns", "one", Some(at("v1.35.4", "v1.35.4")), &given).may_run("v1.36.3"));
    }
}
