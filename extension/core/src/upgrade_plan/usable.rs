//! Whether a release may be used.

use kube::ResourceExt as _;
use sluice_crds::{labels::label, run::TanzuKubernetesRelease};

use crate::reasons::{GateReason, Hold};

/// Labels that exclude a release, each with what it says.
const EXCLUDING: [(&str, &str); 3] = [
    (label::DEACTIVATED, "deactivated"),
    (label::INVALID, "invalid"),
    (label::INCOMPATIBLE, "incompatible with the management cluster"),
];

/// Returns the hold of a release that its labels exclude. If its step is `held` otherwise, only users may have set such a label: the leader
/// sets the other ones because of a missing template or Package, or of a management package that is not proven.
pub(super) fn excluded(release: &TanzuKubernetesRelease, held: bool) -> Option<Hold> {
    let mut labels = EXCLUDING
        .iter()
        .filter(|(label, _)| !held || *label == label::DEACTIVATED);
    let (label, says) = labels.find(|(label, _)| release.labels().contains_key(*label))?;
    let name = release.name_any();
    Some(Hold::new(
        GateReason::TKRNotUsable,
        format!("TanzuKubernetesRelease {name} is {says} by label {label}"),
    ))
}
