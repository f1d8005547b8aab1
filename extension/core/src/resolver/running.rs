//! Kubernetes versions that machines of a Cluster may run.

use std::{cell::Cell, cmp::Ordering, collections::BTreeSet};

use sluice_crds::{
    foreign::{Cluster, MachineDeployment, MachinePool},
    run::{ClusterBootstrap, Outcome, UpgradeRecord},
};

use super::Unknown;
use crate::{
    cache::{
        stored_kind::StoredKind,
        stores::{Stored, Stores},
    },
    upgrade::hop::{ControlPlaneFacts, Worker, WorkerFacts},
    version::{KubernetesVersion, is_upgrading, same_but_for_suffix, same_numbers},
};

/// Versions that machines of a Cluster may run, or get next without a further hook call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The versions; `None` if they are unknown.
    versions: Option<BTreeSet<String>>,
    /// Versions whose entries in `TKR_DATA` are needed; `None` if all of them may be.
    needed: Option<Needed>,
}

/// Versions of a Cluster whose parts are all rolled out completely, so that each of its machines has the version of its part.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Needed {
    control_plane: KubernetesVersion,
    /// Versions of all parts, and of an upgrade that has not completed.
    versions: BTreeSet<String>,
}

impl Running {
    /// Unknown versions, so it may be any.
    pub const UNKNOWN: Self = Self {
        versions: None,
        needed: None,
    };

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
        let control_plane = spec.parse::<KubernetesVersion>().ok();
        let mut is_rolled_out = status_version
            .as_deref()
            .is_some_and(|status| !is_upgrading(&spec, status));
        let mut versions: BTreeSet<String> = status_version.into_iter().chain([spec]).collect();
        let Some(deployments) = workers::<MachineDeployment>(namespace, cluster, stores) else {
            return Self::UNKNOWN;
        };
        let Some(pools) = workers::<MachinePool>(namespace, cluster, stores) else {
            return Self::UNKNOWN;
        };
        for worker in deployments.into_iter().chain(pools) {
            is_rolled_out &= worker.as_ref().is_some_and(self::is_rolled_out);
            let Some(worker) = worker else { continue };
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
        let mut needed = versions.clone();
        let is_over =
            |record: &UpgradeRecord| matches!(record.outcome, Some(Outcome::Completed | Outcome::RolledBack));
        if let Some(record) = record.filter(|record| !is_over(record)) {
            needed.extend(record.gates.iter().map(|gate| gate.version.clone()));
            needed.extend(record.from.iter().chain(&record.hop).cloned());
            needed.insert(record.to.clone());
        }
        let is_version = |version: &String| version.parse::<KubernetesVersion>().is_ok();
        let are_known = is_rolled_out && needed.iter().all(is_version);
        Self {
            versions: Some(versions),
            needed: control_plane.filter(|_| are_known).map(|control_plane| Needed {
                control_plane,
                versions: needed,
            }),
        }
    }

    /// Whether machines may run this version. A provider may report it with another suffix.
    #[must_use]
    pub fn may_run(&self, version: &str) -> bool {
        self.versions.as_ref().is_none_or(|versions| {
            let is_reported = |reported: &String| same_but_for_suffix(reported, version);
            versions.contains(version) || versions.iter().any(is_reported)
        })
    }

    /// Whether all parts of the Cluster have passed this version: it is below that of the control plane, so that no step of an upgrade leads
    /// to it, and neither another part nor an upgrade in progress has it.
    #[must_use]
    pub fn is_passed(&self, version: &str) -> bool {
        let Some(Needed {
            control_plane,
            versions,
        }) = &self.needed
        else {
            return false;
        };
        let is_below = version
            .parse::<KubernetesVersion>()
            .is_ok_and(|version| version.cmp_release(control_plane) == Ordering::Less);
        is_below && !versions.iter().any(|needed| same_numbers(needed, version))
    }
}

/// Whether all machines of a worker object are known to have the version of its spec.
fn is_rolled_out(worker: &WorkerFacts) -> bool {
    let (replicas, up_to_date) = (worker.rollout.replicas, worker.rollout.up_to_date);
    // The counts of a MachinePool do not depend on the versions of its machines.
    let is_counted = !worker.is_pool && up_to_date.is_some() && up_to_date == replicas;
    let is_reported = is_counted || replicas == Some(0) || !worker.versions.is_empty();
    worker.spec_version.is_some() && is_reported && !worker.rolling
}

/// Machines of a changed Cluster. Requests their versions only if the result depends on them.
#[derive(Debug)]
pub(super) struct Machines<'a> {
    old: Option<&'a Cluster>,
    running: Option<&'a Running>,
    is_needed: Cell<bool>,
    /// Whether the removal of unused entries depends on their versions.
    is_wanted: Cell<bool>,
}

impl<'a> Machines<'a> {
    pub(super) const fn of(old: Option<&'a Cluster>, running: Option<&'a Running>) -> Self {
        Self {
            old,
            running,
            is_needed: Cell::new(false),
            is_wanted: Cell::new(false),
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

    /// Whether all parts have passed this version, see [`Running::is_passed`].
    pub(super) fn is_passed(&self, version: &str) -> bool {
        if self.old.is_none_or(|old| old.spec.control_plane_ref.is_none()) {
            return false;
        }
        let Some(running) = self.running else {
            self.is_wanted.set(true);
            return false;
        };
        running.is_passed(version)
    }

    /// Checks that all requested versions are known.
    ///
    /// # Errors
    /// The versions have to be looked up first.
    pub(super) fn known(&self) -> Result<(), Unknown> {
        if self.is_needed.get() {
            return Err(Unknown::Running);
        }
        if self.is_wanted.get() {
            return Err(Unknown::Unused);
        }
        Ok(())
    }
}

/// Returns the MachineDeployments or MachinePools of a Cluster, without facts about those that are being deleted; `None` if one is
/// undecodable.
fn workers<K: Worker>(
    namespace: &str,
    cluster: &str,
    stores: &impl Stored<K>,
) -> Option<Vec<Option<WorkerFacts>>> {
    if stores.undecodable_of(namespace, cluster).is_some() {
        return None;
    }
    let workers = stores.of_cluster(namespace, cluster);
    Some(workers.iter().map(|worker| WorkerFacts::of(&**worker)).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use rstest::rstest;
    use serde_json::{Value, json};
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

    fn worker<K>(name: &str, spec: &str, status: &Value) -> Arc<K>
    where
        K: serde::de::DeserializeOwned + kube::Resource<DynamicType = ()>,
    {
        let of_cluster = json!({label::CAPI_CLUSTER_NAME: "one"});
        let rest = json!({"spec": {"template": {"spec": {"version": spec}}}, "status": status});
        object(Some("ns"), name, &of_cluster, &rest)
    }

    fn counted(replicas: u32, up_to_date: u32) -> Value {
        json!({"replicas": replicas, "upToDateReplicas": up_to_date})
    }

    fn reported(version: &str) -> Value {
        let mut status = counted(1, 1);
        status["versions"] = json!([{"version": version, "replicas": 1}]);
        status
    }

    /// Sets the record of the upgrade: `fields` beside those that each record has.
    fn recorded(given: &mut Given, fields: &Value) {
        let mut record = json!({
            "schema": sluice_crds::run::SCHEMA, "clusterUID": "uid", "label": "a", "to": "v1.36.3",
            "observedClusterGeneration": 1, "observedBootstrapGeneration": 1,
        });
        sluice_test_store::merge(&mut record, fields);
        let bootstrap = json!({"spec": {}, "status": {"upgrade": record}});
        given.bootstraps = vec![object(Some("ns"), "one", &json!({}), &bootstrap)];
    }

    fn gates(version: &str, open: bool) -> Value {
        json!([{"hook": "BeforeWorkersUpgrade", "version": version, "open": open}])
    }

    type Change = fn(&mut Given, &mut ControlPlaneFacts);

    /// Whether v1.34.1 is passed after a change of a Cluster at v1.36.3.
    #[rstest]
    #[case::all_parts_are_rolled_out(|_: &mut Given, _: &mut ControlPlaneFacts| {}, true)]
    #[case::control_plane_behind(|_: &mut Given, plane: &mut ControlPlaneFacts| *plane = at("v1.34.0", "v1.34.0"), false)]
    #[case::control_plane_at_it(|_: &mut Given, plane: &mut ControlPlaneFacts| *plane = at("v1.34.1", "v1.34.1"), false)]
    #[case::control_plane_rolls(|_: &mut Given, plane: &mut ControlPlaneFacts| *plane = at("v1.36.3", "v1.35.4"), false)]
    #[case::control_plane_reports_a_suffix(
        |_: &mut Given, plane: &mut ControlPlaneFacts| *plane = at("v1.36.3", "v1.36.3+k0s"),
        true
    )]
    #[case::control_plane_reports_nothing(|_: &mut Given, plane: &mut ControlPlaneFacts| plane.status_version = None, false)]
    #[case::control_plane_has_no_version(|_: &mut Given, plane: &mut ControlPlaneFacts| plane.spec_version = None, false)]
    #[case::control_plane_of_another_format(|_: &mut Given, plane: &mut ControlPlaneFacts| *plane = at("1.36", "1.36"), false)]
    #[case::deferred_deployment(
        |given: &mut Given, _: &mut ControlPlaneFacts| given.machine_deployments.push(worker("late", "v1.34.1", &reported("v1.34.1"))),
        false
    )]
    #[case::deferred_deployment_of_another_build(
        |given: &mut Given, _: &mut ControlPlaneFacts| {
            given.machine_deployments.push(worker("late", "v1.34.1+a.2", &reported("v1.34.1+a.2")));
        },
        false
    )]
    #[case::deferred_pool(
        |given: &mut Given, _: &mut ControlPlaneFacts| given.machine_pools.push(worker("late", "v1.34.1", &reported("v1.34.1"))),
        false
    )]
    #[case::deployment_of_another_version(
        |given: &mut Given, _: &mut ControlPlaneFacts| given.machine_deployments.push(worker("late", "v1.35.4", &reported("v1.35.4"))),
        true
    )]
    #[case::deployment_without_reported_versions(
        |given: &mut Given, _: &mut ControlPlaneFacts| given.machine_deployments.push(worker("other", "v1.36.3", &counted(2, 2))),
        true
    )]
    #[case::deployment_rolls(
        |given: &mut Given, _: &mut ControlPlaneFacts| given.machine_deployments.push(worker("other", "v1.36.3", &counted(2, 1))),
        false
    )]
    #[case::deployment_reports_an_earlier_version(
        |given: &mut Given, _: &mut ControlPlaneFacts| given.machine_deployments.push(worker("other", "v1.36.3", &reported("v1.35.4"))),
        false
    )]
    #[case::deployment_without_status(
        |given: &mut Given, _: &mut ControlPlaneFacts| given.machine_deployments.push(worker("other", "v1.36.3", &Value::Null)),
        false
    )]
    #[case::deployment_with_an_empty_status(
        |given: &mut Given, _: &mut ControlPlaneFacts| given.machine_deployments.push(worker("other", "v1.36.3", &json!({}))),
        false
    )]
    #[case::deployment_without_version(
        |given: &mut Given, _: &mut ControlPlaneFacts| {
            Arc::make_mut(&mut given.machine_deployments[0]).spec.template.spec.version = None;
        },
        false
    )]
    #[case::deployment_of_another_format(
        |given: &mut Given, _: &mut ControlPlaneFacts| given.machine_deployments.push(worker("other", "1.36", &reported("1.36"))),
        false
    )]
    #[case::deployment_is_being_deleted(
        |given: &mut Given, _: &mut ControlPlaneFacts| {
            let leaving = Arc::make_mut(&mut given.machine_deployments[0]);
            leaving.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        },
        false
    )]
    #[case::pool_without_reported_versions(
        |given: &mut Given, _: &mut ControlPlaneFacts| given.machine_pools.push(worker("other", "v1.36.3", &counted(2, 2))),
        false
    )]
    #[case::pool_without_machines(
        |given: &mut Given, _: &mut ControlPlaneFacts| given.machine_pools.push(worker("other", "v1.36.3", &counted(0, 0))),
        true
    )]
    #[case::deployments_not_listed(
        |given: &mut Given, _: &mut ControlPlaneFacts| given.unlisted.push(StoredKind::MachineDeployment),
        false
    )]
    #[case::upgrade_from_it(
        |given: &mut Given, _: &mut ControlPlaneFacts| recorded(given, &json!({"from": "v1.34.1"})),
        false
    )]
    #[case::completed_upgrade_from_it(
        |given: &mut Given, _: &mut ControlPlaneFacts| recorded(given, &json!({"from": "v1.34.1", "outcome": "Completed"})),
        true
    )]
    #[case::cancelled_upgrade_from_it(
        |given: &mut Given, _: &mut ControlPlaneFacts| recorded(given, &json!({"from": "v1.34.1", "outcome": "Cancelled"})),
        false
    )]
    #[case::hop(|given: &mut Given, _: &mut ControlPlaneFacts| recorded(given, &json!({"hop": "v1.34.1"})), false)]
    #[case::target_of_the_record(|given: &mut Given, _: &mut ControlPlaneFacts| recorded(given, &json!({"to": "v1.34.1"})), false)]
    #[case::open_gate(
        |given: &mut Given, _: &mut ControlPlaneFacts| {
            recorded(given, &json!({"outcome": "Completed", "gates": gates("v1.34.1", true)}));
        },
        false
    )]
    #[case::closed_gate_of_an_upgrade(
        |given: &mut Given, _: &mut ControlPlaneFacts| recorded(given, &json!({"gates": gates("v1.34.1", false)})),
        false
    )]
    #[case::upgrade_from_another_version(
        |given: &mut Given, _: &mut ControlPlaneFacts| recorded(given, &json!({"from": "v1.35.4", "hop": "v1.36.3"})),
        true
    )]
    fn a_version_is_passed_if_nothing_has_it(#[case] change: Change, #[case] passed: bool) {
        let mut given = Given {
            machine_deployments: vec![worker("md", "v1.36.3", &reported("v1.36.3"))],
            ..Given::default()
        };
        let mut plane = at("v1.36.3", "v1.36.3");
        change(&mut given, &mut plane);
        let running = Running::of("ns", "one", Some(plane), &given);
        assert_eq!(running.is_passed("v1.34.1"), passed, "{running:?}");
    }

    /// A later step of the upgrade may lead to a version ahead.
    #[rstest]
    #[case::below("v1.36.2", true)]
    #[case::the_same("v1.36.3", false)]
    #[case::another_build("v1.36.3+a.1", false)]
    #[case::ahead("v1.36.4", false)]
    #[case::no_version("v1.36", false)]
    fn a_version_ahead_is_not_passed(#[case] version: &str, #[case] passed: bool) {
        let running = Running::of("ns", "one", Some(at("v1.36.3", "v1.36.3")), &Given::default());
        assert_eq!(running.is_passed(version), passed);
    }

    #[test]
    fn no_version_is_passed_while_the_versions_are_unknown() {
        let of_another_cluster = Running::of("ns", "one", None, &Given::default());
        for unknown in [Running::UNKNOWN, of_another_cluster] {
            assert!(!unknown.is_passed("v1.34.1"));
        }
    }
}
