//! Conflict of a CNI with the annotation `unmanaged-cni`.

use sluice_crds::{labels::annotation, run::ClusterBootstrapSpec};

use crate::reasons::{GateReason, Hold};

/// Returns the hold if `spec` of the ClusterBootstrap `name` has a CNI although it has the annotation `unmanaged-cni` (`unmanaged`).
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
