//! Reduces MachineDeployments and MachinePools to their versions.

use kube::ResourceExt;
use sluice_crds::{
    foreign::{
        MachineDeployment, MachinePool,
        cluster::{Topology, WorkerTopology},
        machine_deployment::{WorkerSpec, WorkerStatus},
    },
    labels::{annotation, label},
};

use super::Rollout;
use crate::version::{may_report, reached, same_numbers};

/// Facts about a MachineDeployment or MachinePool of the topology.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct WorkerFacts {
    /// Name of the object.
    pub name: String,
    /// Whether the object is a MachinePool.
    pub is_pool: bool,
    /// Name of its pool in the topology; that of the object if it has no such label.
    pub pool: String,
    /// `spec.template.spec.version`.
    pub spec_version: Option<String>,
    /// Versions of its machines.
    pub versions: Vec<String>,
    /// Whether Cluster API may treat it as upgrading.
    pub rolling: bool,
    /// Whether a user has Cluster API keep its version, see [`WorkerFacts::in_topology`].
    pub deferred: bool,
    /// Replacement of its machines.
    pub rollout: Rollout,
}

/// Kind of worker objects.
pub trait Worker: ResourceExt {
    /// Whether the kind is MachinePool.
    const IS_POOL: bool;

    /// Returns the spec.
    fn spec(&self) -> &WorkerSpec;
    /// Returns the status, if there is one.
    fn status(&self) -> Option<&WorkerStatus>;
    /// Whether Cluster API may treat an object of this kind, with this desired version and status, as upgrading.
    fn may_be_upgrading(&self, wanted: &str, status: &WorkerStatus) -> bool;
}

impl Worker for MachineDeployment {
    const IS_POOL: bool = false;

    fn spec(&self) -> &WorkerSpec {
        &self.spec
    }

    fn status(&self) -> Option<&WorkerStatus> {
        self.status.as_ref()
    }

    /// Cluster API compares the versions of Machines, and since 1.14 those of their kubelets, where there are some
    /// (`IsMachineDeploymentUpgrading` in `internal/topology/check`). A machine of the current MachineSet has the version; one that was just
    /// created or cannot start has it too, although it is not up to date. If all machines are up to date, no version differs: a machine is up
    /// to date if its MachineSet has the template and, since 1.14, its kubelet has its version. `status.versions` alone is no evidence,
    /// because a machine of an earlier version may have a later kubelet.
    fn may_be_upgrading(&self, wanted: &str, status: &WorkerStatus) -> bool {
        let up_to_date = status.up_to_date_replicas;
        let are_up_to_date = up_to_date.is_some() && up_to_date == status.replicas;
        let are_of_the_template = match updated(status) {
            Some(updated) => Some(updated) == status.replicas,
            None => up_to_date == status.replicas || up_to_date.is_none() && !status.versions.is_empty(),
        };
        !are_of_the_template
            || !status.versions.iter().all(|reported| {
                // Conditions of Machines may be behind a change of the template.
                reported.version == wanted || are_up_to_date && may_report(wanted, &reported.version)
            })
    }
}

impl Worker for MachinePool {
    const IS_POOL: bool = true;

    fn spec(&self) -> &WorkerSpec {
        &self.spec
    }

    fn status(&self) -> Option<&WorkerStatus> {
        self.status.as_ref()
    }

    /// Cluster API compares the versions of kubelets byte by byte (`IsMachinePoolUpgrading`). Since 1.14 the status has them. Before, no
    /// field of the status depends on them, and Cluster API alone waits for the pool. `upToDateReplicas` is `spec.replicas` for a pool
    /// without Machines, and 0 for one with Machines.
    fn may_be_upgrading(&self, wanted: &str, status: &WorkerStatus) -> bool {
        if status.versions.is_empty() {
            let complete = [self.spec.replicas, status.up_to_date_replicas];
            return !complete.contains(&status.replicas);
        }
        status.versions.iter().any(|reported| reported.version != wanted)
    }
}

impl WorkerFacts {
    /// Returns the facts of `worker`; none while it is being deleted, because Cluster API no longer changes its version.
    #[must_use]
    pub fn of<K: Worker>(worker: &K) -> Option<Self> {
        if worker.meta().deletion_timestamp.is_some() {
            return None;
        }
        let version = worker.spec().template.spec.version.clone();
        let status = worker.status();
        let versions = status.into_iter().flat_map(|status| &status.versions);
        let is_outdated = |status: &WorkerStatus| {
            let observed = status.observed_generation.zip(worker.meta().generation);
            observed.is_some_and(|(observed, generation)| observed < generation)
        };
        let wanted = version.as_deref().filter(|version| !version.is_empty());
        // Without a version, Cluster API does not treat it as upgrading.
        let rolling = wanted.is_some_and(|wanted| {
            status.is_none_or(|status| is_outdated(status) || worker.may_be_upgrading(wanted, status))
        });
        let pool = [label::DEPLOYMENT_NAME, label::POOL_NAME]
            .iter()
            .find_map(|key| worker.labels().get(*key).cloned());
        Some(Self {
            name: worker.name_any(),
            is_pool: K::IS_POOL,
            pool: pool.unwrap_or_else(|| worker.name_any()),
            rollout: Rollout {
                wanted: worker.spec().replicas,
                replicas: status.and_then(|status| status.replicas),
                up_to_date: status.and_then(up_to_date),
                is_outdated: status.is_none_or(is_outdated),
            },
            versions: versions.map(|each| each.version.clone()).collect(),
            spec_version: version,
            rolling,
            deferred: false,
        })
    }

    /// Returns the facts with what the topology of the Cluster says about the pool: Cluster API keeps the version of a pool with annotation
    /// `defer-upgrade`, and of pools from the first one with `hold-upgrade-sequence` on (`isMachineDeploymentDeferred` in
    /// `exp/topology/desiredstate`).
    #[must_use]
    pub fn in_topology(self, topology: &Topology) -> Self {
        let has = |pool: &WorkerTopology, key: &str| {
            let metadata = pool.metadata.as_ref();
            metadata.is_some_and(|metadata| metadata.annotations.contains_key(key))
        };
        let pools = topology.workers.iter().flat_map(|workers| {
            if self.is_pool {
                &workers.machine_pools
            } else {
                &workers.machine_deployments
            }
        });
        let mut is_held = false;
        let found = pools
            .inspect(|pool| is_held |= has(pool, annotation::HOLD_UPGRADE_SEQUENCE))
            .find(|pool| pool.name == self.pool);
        Self {
            deferred: is_held || found.is_some_and(|pool| has(pool, annotation::DEFER_UPGRADE)),
            ..self
        }
    }

    /// Whether Cluster API has given it this version or a later one. Its machines may still be replaced.
    #[must_use]
    pub fn has_reached(&self, version: &str) -> bool {
        let spec = self.spec_version.as_deref();
        spec.is_some_and(|spec| reached(spec, version))
    }

    /// Whether it has reached a version, and Cluster API does not treat it as upgrading.
    #[must_use]
    pub fn runs(&self, version: &str) -> bool {
        !self.rolling && self.has_reached(version)
    }

    /// Whether it rolls although no machine reports other numbers than those of the desired version.
    fn may_roll_forever(&self) -> bool {
        let is_build = |reported: &String| {
            let wanted = self.spec_version.as_deref();
            wanted.is_some_and(|wanted| same_numbers(reported, wanted))
        };
        self.rolling && self.versions.iter().all(is_build)
    }

    /// Whether it rolls only until Cluster API has observed its last change. Cluster API does not while the object is paused.
    #[must_use]
    pub fn is_unobserved(&self) -> bool {
        self.rollout.is_outdated && self.may_roll_forever()
    }

    /// Returns the version that its machines report while Cluster API may wait for another one forever: it rolls, and all its machines
    /// have the numbers of the desired version.
    #[must_use]
    pub fn reported_instead(&self) -> Option<&str> {
        let wanted = self.spec_version.as_deref()?;
        if !self.may_roll_forever() {
            return None;
        }
        let other = self.versions.iter().find(|reported| *reported != wanted);
        other.or_else(|| self.versions.first()).map(String::as_str)
    }
}

/// Returns the number of up-to-date machines, at most that of the machines with the desired template.
fn up_to_date(status: &WorkerStatus) -> Option<i32> {
    [status.up_to_date_replicas, updated(status)]
        .into_iter()
        .flatten()
        .min()
}

/// Returns the number of machines with the desired template. Cluster API sets `upToDateReplicas` by conditions of Machines, which may be from
/// before the change of a template that `observedGeneration` includes. It computes `updatedReplicas` of v1beta1 together with that generation
/// (`calculateV1Beta1Status` in `core/reconcilers/machinedeployment`).
fn updated(status: &WorkerStatus) -> Option<i32> {
    let deprecated = status.deprecated.as_ref()?;
    deprecated.v1beta1.as_ref()?.updated_replicas
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use rstest::rstest;
    use serde_json::{Value, json};
    use sluice_crds::foreign::machine_deployment::{DeprecatedStatus, V1Beta1Status, VersionReplicas};

    use super::*;

    fn status(runs: &[&str], replicas: Option<(i32, i32)>) -> WorkerStatus {
        WorkerStatus {
            replicas: replicas.map(|(all, _)| all),
            up_to_date_replicas: replicas.map(|(_, new)| new),
            versions: runs
                .iter()
                .map(|version| VersionReplicas {
                    version: (*version).to_owned(),
                    replicas: 1,
                })
                .collect(),
            ..WorkerStatus::default()
        }
    }

    fn deployment(runs: &[&str], replicas: Option<(i32, i32)>) -> MachineDeployment {
        let mut deployment = MachineDeployment::default();
        deployment.metadata.name = Some("md-0".into());
        deployment.spec.template.spec.version = Some("v1.36.3".into());
        deployment.status = Some(status(runs, replicas));
        deployment
    }

    fn of_v1beta1(updated_replicas: Option<i32>) -> DeprecatedStatus {
        let v1beta1 = Some(V1Beta1Status { updated_replicas });
        DeprecatedStatus { v1beta1 }
    }

    #[rstest]
    #[case::every_machine_at_the_version(&["v1.36.3"], None, false)]
    #[case::every_machine_replaced(&["v1.36.3"], Some((2, 2)), false)]
    #[case::a_machine_of_an_earlier_version_with_a_later_image(&["v1.36.3"], Some((2, 1)), true)]
    #[case::a_machine_at_another(&["v1.35.4", "v1.36.3"], None, true)]
    #[case::a_later_patch_and_no_number_of_replaced_machines(&["v1.36.4"], None, true)]
    #[case::a_later_patch_where_all_are_replaced(&["v1.36.3", "v1.36.4"], Some((2, 2)), false)]
    #[case::a_later_patch_that_is_still_to_be_replaced(&["v1.36.4"], Some((2, 1)), true)]
    #[case::an_earlier_patch(&["v1.36.2"], Some((2, 2)), true)]
    #[case::a_later_minor(&["v1.37.3"], Some((2, 2)), true)]
    #[case::a_suffix_where_all_are_replaced(&["v1.36.3+k0s"], Some((2, 2)), false)]
    #[case::another_suffix_where_all_are_replaced(&["v1.36.3-eks-abc"], Some((2, 2)), false)]
    #[case::a_suffix_that_cluster_api_waits_for(&["v1.36.3+k0s"], Some((2, 0)), true)]
    #[case::a_suffix_and_no_number_of_replaced_machines(&["v1.36.3+k0s"], None, true)]
    #[case::versions_unreported_and_replaced(&[], Some((2, 2)), false)]
    #[case::versions_unreported_and_not_replaced(&[], Some((2, 1)), true)]
    fn machines_that_are_not_at_the_version_roll(
        #[case] runs: &[&str],
        #[case] replicas: Option<(i32, i32)>,
        #[case] rolling: bool,
    ) {
        let facts = WorkerFacts::of(&deployment(runs, replicas)).unwrap();
        assert_eq!((facts.name.as_str(), facts.rolling), ("md-0", rolling));
    }

    /// All of two machines have a Node unless `up_to_date` is less.
    #[rstest]
    #[case::machines_of_the_template(&["v1.36.3"], 2, 2, false)]
    #[case::pool_that_was_scaled(&["v1.36.3"], 1, 2, false)]
    #[case::machine_without_a_node(&[], 1, 2, false)]
    #[case::conditions_from_before_a_change(&["v1.36.3"], 2, 0, true)]
    #[case::template_of_half_the_machines(&[], 1, 1, true)]
    #[case::machine_in_place(&["v1.35.4"], 0, 2, true)]
    #[case::suffix_that_cluster_api_waits_for(&["v1.36.3+k0s"], 0, 2, true)]
    #[case::suffix_of_machines_that_are_up_to_date(&["v1.36.3+k0s"], 2, 2, false)]
    fn machines_of_an_earlier_template_roll(
        #[case] runs: &[&str],
        #[case] up_to_date: i32,
        #[case] updated: i32,
        #[case] rolling: bool,
    ) {
        let mut deployment = deployment(runs, Some((2, up_to_date)));
        deployment.status.as_mut().unwrap().deprecated = Some(of_v1beta1(Some(updated)));
        assert_eq!(WorkerFacts::of(&deployment).unwrap().rolling, rolling);
    }

    #[rstest]
    #[case::every_node_at_the_version(&["v1.36.3"], 2, 2, false)]
    #[case::of_machines_that_are_not_counted(&["v1.36.3"], 2, 0, false)]
    #[case::suffix(&["v1.36.3+k0s"], 2, 2, true)]
    #[case::later_patch(&["v1.36.4"], 2, 2, true)]
    #[case::versions_unreported(&[], 2, 2, false)]
    #[case::versions_unreported_of_machines_that_are_not_counted(&[], 2, 0, false)]
    #[case::versions_unreported_and_a_replica_missing(&[], 1, 2, true)]
    fn a_pool_whose_nodes_are_not_at_the_version_rolls(
        #[case] runs: &[&str],
        #[case] replicas: i32,
        #[case] up_to_date: i32,
        #[case] rolling: bool,
    ) {
        let mut pool = MachinePool::default();
        pool.spec.replicas = Some(2);
        pool.spec.template.spec.version = Some("v1.36.3".into());
        pool.status = Some(status(runs, Some((replicas, up_to_date))));
        assert_eq!(WorkerFacts::of(&pool).unwrap().rolling, rolling);
    }

    #[test]
    fn a_status_from_before_the_last_change_is_no_evidence() {
        let mut deployment = deployment(&[], Some((2, 2)));
        deployment.metadata.generation = Some(3);
        let rolls_at = |deployment: &mut MachineDeployment, observed: i64| {
            deployment.status.as_mut().unwrap().observed_generation = Some(observed);
            let facts = WorkerFacts::of(&*deployment).unwrap();
            assert_eq!(facts.is_unobserved(), facts.rolling);
            facts.rolling
        };
        assert!(rolls_at(&mut deployment, 2));
        assert!(!rolls_at(&mut deployment, 3));
        deployment.spec.template.spec.version = None;
        assert!(!rolls_at(&mut deployment, 2), "Cluster API waits for no version");
    }

    #[rstest]
    #[case::both(Some(2), Some(2), true)]
    #[case::conditions_of_machines_are_behind(Some(2), Some(0), false)]
    #[case::not_all_machines_are_up_to_date(Some(1), Some(2), false)]
    #[case::of_v1beta2_alone(Some(2), None, true)]
    #[case::none(None, None, true)]
    fn machines_of_the_current_template_are_counted(
        #[case] up_to_date: Option<i32>,
        #[case] updated: Option<i32>,
        #[case] complete: bool,
    ) {
        let mut deployment = deployment(&["v1.36.3"], None);
        deployment.spec.replicas = Some(2);
        deployment.status = Some(WorkerStatus {
            replicas: Some(2),
            up_to_date_replicas: up_to_date,
            deprecated: Some(of_v1beta1(updated)),
            ..WorkerStatus::default()
        });
        assert_eq!(
            WorkerFacts::of(&deployment).unwrap().rollout.is_complete(),
            complete
        );
    }

    #[rstest]
    #[case::suffix(&["v1.36.3", "v1.36.3+k0s"], Some("v1.36.3+k0s"))]
    #[case::not_replaced(&["v1.36.3"], Some("v1.36.3"))]
    #[case::another_version(&["v1.35.4", "v1.36.3+k0s"], None)]
    #[case::unreported(&[], None)]
    fn a_version_that_may_stay_is_named(#[case] runs: &[&str], #[case] named: Option<&str>) {
        let facts = WorkerFacts::of(&deployment(runs, Some((2, 0)))).unwrap();
        assert_eq!(facts.reported_instead(), named);
        let settled = WorkerFacts {
            rolling: false,
            ..facts
        };
        assert_eq!(settled.reported_instead(), None);
    }

    #[rstest]
    #[case::no_annotation([None; 3], [false; 3])]
    #[case::a_deferred_pool([None, Some(annotation::DEFER_UPGRADE), None], [false, true, false])]
    #[case::a_held_sequence([None, Some(annotation::HOLD_UPGRADE_SEQUENCE), None], [false, true, true])]
    #[case::both(
        [Some(annotation::DEFER_UPGRADE), None, Some(annotation::HOLD_UPGRADE_SEQUENCE)],
        [true, false, true]
    )]
    fn annotations_of_the_topology_defer_pools(
        #[case] annotations: [Option<&str>; 3],
        #[case] deferred: [bool; 3],
        #[values(false, true)] is_pool: bool,
    ) {
        let names = ["a", "b", "c"];
        let pools = names.iter().zip(annotations).map(|(name, key)| {
            let annotations: BTreeMap<&str, &str> = key.map(|key| (key, "")).into_iter().collect();
            json!({"name": name, "metadata": {"annotations": annotations}})
        });
        let pools: Vec<Value> = pools.collect();
        let [kind, other] = if is_pool {
            ["machinePools", "machineDeployments"]
        } else {
            ["machineDeployments", "machinePools"]
        };
        let held =
            json!([{"name": "d", "metadata": {"annotations": {annotation::HOLD_UPGRADE_SEQUENCE: ""}}}]);
        let topology = json!({"version": "v1.36.3", "workers": {kind: pools, other: held}});
        let topology: Topology = serde_json::from_str(&topology.to_string()).unwrap();
        let found = names.map(|name| {
            let facts = WorkerFacts {
                pool: name.to_owned(),
                is_pool,
                ..WorkerFacts::default()
            };
            facts.in_topology(&topology).deferred
        });
        assert_eq!(found, deferred);
    }

    #[test]
    fn a_worker_that_is_being_deleted_does_not_roll() {
        let mut leaving = deployment(&["v1.35.4"], None);
        leaving.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(WorkerFacts::of(&leaving), None);
    }
}
