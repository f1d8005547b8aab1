//! What vSphere configurations take from the infrastructure of their Cluster.

use kube::ResourceExt as _;
use serde_json::Value;
use sluice_crds::foreign::Cluster;

use super::{
    cluster::{infrastructure, named},
    problem::{Problem, Reason},
    source::{Source, Sources, Stop, text},
};

/// Group of VSphereCluster and VSphereMachineTemplate where vCenter is spoken to.
const GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// The VSphereCluster.
pub(super) fn vsphere_cluster<'a>(cluster: &Cluster, sources: &'a Sources) -> Result<&'a Value, Stop> {
    let reference = infrastructure(cluster)?;
    if reference.kind != "VSphereCluster" {
        let message = format!(
            "spec.infrastructureRef of {} is of kind {:?}, not VSphereCluster",
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

/// The control plane object.
pub(super) fn control_plane<'a>(cluster: &Cluster, sources: &'a Sources) -> Result<&'a Value, Stop> {
    let missing = |what: String| Stop::from(Problem::new(Reason::ControlPlaneNotFound, what));
    let reference = cluster
        .spec
        .control_plane_ref
        .as_ref()
        .filter(|reference| !reference.name.is_empty());
    let reference =
        reference.ok_or_else(|| missing(format!("{} has no spec.controlPlaneRef yet", named(cluster))))?;
    let namespace = cluster.namespace().unwrap_or_default();
    let source = Source::namespaced(reference.group(), &reference.kind, &namespace, &reference.name);
    let found = sources.find(&source)?;
    found.ok_or_else(|| {
        missing(format!(
            "{source}, spec.controlPlaneRef of {}, does not exist",
            named(cluster)
        ))
    })
}

/// The machine template that the control plane is made from.
pub(super) fn machine_template<'a>(cluster: &Cluster, sources: &'a Sources) -> Result<&'a Value, Stop> {
    let control_plane = control_plane(cluster, sources)?;
    // v1beta1 of the control plane has the reference one level above v1beta2.
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
