//! A CNI beside the annotation that says that it is not ours.

use sluice_crds::{labels::annotation, run::ClusterBootstrapSpec};

use crate::reasons::{GateReason, Hold};

/// What `spec` of the ClusterBootstrap `name` contradicts, which carries the annotation `unmanaged-cni` if `unmanaged`.
#[must_use]
pub fn unmanaged_conflict(name: &str, spec: &ClusterBootstrapSpec, unmanaged: bool) -> Option<Hold> {
    let cni = spec.cni.as_ref().filter(|_| unmanaged)?;
    Some(Hold::new(
        GateReason::UnmanagedCNIConflict,
        format!(
            "spec.cni of ClusterBootstrap {name} is {} although annotation {} is set; remove one of the two",
            cni.ref_name,
            annotation::UNMANAGED_CNI
        ),
    ))
}
