//! Reduces MachineDeployments and MachinePools to their versions.

use kube::ResourceExt;
use sluice_crds::foreign::{
    MachineDeployment, MachinePool,
    machine_deployment::{WorkerSpec, WorkerStatus},
};

use crate::version::reached_in_minor;

/// Facts about a MachineDeployment or MachinePool of the topology.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct WorkerFacts {
    /// Name of the object.
    pub name: String,
    /// `spec.template.spec.version`.
    pub spec_version: Option<String>,
    /// Versions of its machines.
    pub versions: Vec<String>,
    /// Whether a machine runs neither the version of the spec nor a later patch of it, or is still to be replaced.
    pub rolling: bool,
}

/// Kind of worker objects.
pub trait Worker: ResourceExt {
    /// Returns the spec.
    fn spec(&self) -> &WorkerSpec;
    /// Returns the status, if there is one.
    fn status(&self) -> Option<&WorkerStatus>;
}

impl Worker for MachineDeployment {
    fn spec(&self) -> &WorkerSpec {
        &self.spec
    }

    fn status(&self) -> Option<&WorkerStatus> {
        self.status.as_ref()
    }
}

impl Worker for MachinePool {
    fn spec(&self) -> &WorkerSpec {
        &self.spec
    }

    fn status(&self) -> Option<&WorkerStatus> {
        self.status.as_ref()
    }
}

impl WorkerFacts {
    /// Returns the facts of `worker`; none while it is being deleted, because Cluster API no longer changes its version.
    #[must_use]
    pub fn of(worker: &impl Worker) -> Option<Self> {
        if worker.meta().deletion_timestamp.is_some() {
            return None;
        }
        let version = worker.spec().template.spec.version.clone();
        let status = worker.status();
        let versions: Vec<String> = status
            .into_iter()
            .flat_map(|status| &status.versions)
            .map(|each| each.version.clone())
            .collect();
        let replaced = status.is_some_and(|status| status.up_to_date_replicas == status.replicas);
        let outdated = status.is_some_and(|status| status.up_to_date_replicas.is_some()) && !replaced;
        let is_at = |running: &String| {
            // An image may have a later patch than its machine, also the image of a machine that is to be replaced.
            Some(running) == version.as_ref()
                || !outdated
                    && version
                        .as_deref()
                        .is_some_and(|version| reached_in_minor(running, version))
        };
        let rolling = if versions.is_empty() {
            !replaced
        } else {
            !versions.iter().all(is_at)
        };
        Some(Self {
            name: worker.name_any(),
            spec_version: version,
            versions,
            rolling,
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use rstest::rstest;
    use sluice_crds::foreign::machine_deployment::VersionReplicas;

    use super::*;

    fn deployment(runs: &[&str], replicas: Option<(i32, i32)>) -> MachineDeployment {
        let mut deployment = MachineDeployment::default();
        deployment.metadata.name = Some("md-0".into());
        deployment.spec.template.spec.version = Some("v1.36.3".into());
        deployment.status = Some(WorkerStatus {
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
        });
        deployment
    }

    #[rstest]
    #[case::every_machine_at_the_version(&["v1.36.3"], None, false)]
    #[case::a_machine_at_another(&["v1.35.4", "v1.36.3"], None, true)]
    #[case::a_later_patch(&["v1.36.4"], None, false)]
    #[case::a_later_patch_where_all_are_replaced(&["v1.36.3", "v1.36.4"], Some((2, 2)), false)]
    #[case::a_later_patch_that_is_still_to_be_replaced(&["v1.36.4"], Some((2, 1)), true)]
    #[case::an_earlier_patch(&["v1.36.2"], Some((2, 2)), true)]
    #[case::a_later_minor(&["v1.37.3"], Some((2, 2)), true)]
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

    #[test]
    fn a_worker_that_is_being_deleted_does_not_roll() {
        let mut leaving = deployment(&["v1.35.4"], None);
        leaving.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(WorkerFacts::of(&leaving), None);
    }
}
