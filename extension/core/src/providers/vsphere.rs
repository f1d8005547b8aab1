//! Infrastructure objects that vSphere configurations read.

use kube::ResourceExt as _;
use serde_json::Value;
use sluice_crds::foreign::Cluster;

use super::{
    cluster::{infrastructure, named},
    problem::{Problem, Reason},
    source::{Source, Sources, ValuesError, text},
};

/// Group of VSphereCluster and VSphereMachineTemplate for clusters on vCenter.
const GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// Group of VSphereCluster on a Supervisor.
const SUPERVISOR_GROUP: &str = "vmware.infrastructure.cluster.x-k8s.io";

/// Returns the VSphereCluster.
pub(super) fn vsphere_cluster<'a>(cluster: &Cluster, sources: &'a Sources) -> Result<&'a Value, ValuesError> {
    let reference = infrastructure(cluster)?;
    let group = reference.group();
    if reference.kind != "VSphereCluster" || ![GROUP, SUPERVISOR_GROUP].contains(&group) {
        let message = format!(
            "spec.infrastructureRef of {} is of kind {:?} in group {group:?}, not VSphereCluster in {GROUP} or {SUPERVISOR_GROUP}",
            named(cluster),
            reference.kind
        );
        return Err(Problem::new(Reason::InfrastructureUnknown, message).into());
    }
    let namespace = cluster.namespace().unwrap_or_default();
    let source = Source::namespaced(reference.group(), &reference.kind, &namespace, &reference.name);
    let found = sources.find(&source)?;
    found.ok_or_else(|| {
        let message = format!(
            "{source}, spec.infrastructureRef of {}, does not exist",
            named(cluster)
        );
        Problem::new(Reason::InfrastructureNotFound, message).into()
    })
}

/// Returns the control plane object.
pub(super) fn control_plane<'a>(cluster: &Cluster, sources: &'a Sources) -> Result<&'a Value, ValuesError> {
    let missing = |what: String| ValuesError::from(Problem::new(Reason::ControlPlaneNotFound, what));
    let reference = cluster
        .spec
        .control_plane_ref
        .as_ref()
        .filter(|reference| !reference.name.is_empty());
    let reference =
        reference.ok_or_else(|| missing(format!("{} has no spec.controlPlaneRef yet", named(cluster))))?;
    let namespace = cluster.namespace().unwrap_or_default();
    let source = Source::referred(&namespace, reference);
    let found = sources.find(&source)?;
    found.ok_or_else(|| {
        missing(format!(
            "{source}, spec.controlPlaneRef of {}, does not exist",
            named(cluster)
        ))
    })
}

/// Returns the machine template of the control plane.
pub(super) fn machine_template<'a>(
    cluster: &Cluster,
    sources: &'a Sources,
) -> Result<&'a Value, ValuesError> {
    let control_plane = control_plane(cluster, sources)?;
    // v1beta1 of the control plane has the reference one level higher than v1beta2.
    let reference = [
        "/spec/machineTemplate/spec/infrastructureRef",
        "/spec/machineTemplate/infrastructureRef",
    ]
    .iter()
    .find_map(|pointer| control_plane.pointer(pointer));
    let name = reference.map_or("", |reference| text(reference, "/name"));
    let namespace = cluster.namespace().unwrap_or_default();
    let source = Source::namespaced(GROUP, "VSphereMachineTemplate", &namespace, name);
    let found = if name.is_empty() {
        None
    } else {
        sources.find(&source)?
    };
    found.ok_or_else(|| {
        let message = format!(
            "{source}, machine template of the control plane of {}, does not exist",
            named(cluster)
        );
        Problem::new(Reason::ControlPlaneNotFound, message).into()
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn cluster(group: &str, kind: &str) -> Cluster {
        let reference = json!({"apiGroup": group, "kind": kind, "name": "one"});
        serde_json::from_value(json!({
            "metadata": {"name": "c1", "namespace": "ns1"},
            "spec": {"infrastructureRef": reference, "controlPlaneRef": reference},
        }))
        .unwrap()
    }

    #[rstest]
    #[case(GROUP, "VSphereCluster", true)]
    #[case(SUPERVISOR_GROUP, "VSphereCluster", true)]
    #[case("apps", "VSphereCluster", false)]
    #[case(GROUP, "VSphereMachine", false)]
    fn infrastructure_is_of_known_kinds(#[case] group: &str, #[case] kind: &str, #[case] read: bool) {
        match vsphere_cluster(&cluster(group, kind), &Sources::default()) {
            Err(ValuesError::Unread(source)) => assert!(read, "{source}"),
            Err(ValuesError::Problem(problem)) => {
                assert!(!read, "{problem}");
                assert_eq!(problem.reason, Reason::InfrastructureUnknown);
            }
            Ok(found) => panic!("{found}"),
        }
    }

    #[test]
    fn the_kind_of_a_control_plane_is_given_by_its_cluster() {
        match control_plane(&cluster("any.group", "Any"), &Sources::default()) {
            Err(ValuesError::Unread(source)) => assert!(source.kind_is_given()),
            other => panic!("{other:?}"),
        }
    }
}
