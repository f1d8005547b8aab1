//! Whether a release may be used.

use kube::ResourceExt as _;
use sluice_crds::{labels::label, run::TanzuKubernetesRelease};

use crate::reasons::{GateReason, Hold};

/// Labels that exclude a release, each with what it says.
const EXCLUDING: [(&str, &str); 3] = [
    (label::INCOMPATIBLE, "incompatible with the management cluster"),
    (label::DEACTIVATED, "deactivated"),
    (label::INVALID, "invalid"),
];

/// Returns the hold of a release that its labels exclude.
pub(super) fn excluded(release: &TanzuKubernetesRelease) -> Option<Hold> {
    let mut labels = EXCLUDING.iter();
    let (label, says) = labels.find(|(label, _)| release.labels().contains_key(*label))?;
    let name = release.name_any();
    Some(Hold::new(
        GateReason::TKRNotUsable,
        format!("TanzuKubernetesRelease {name} is {says} by label {label}"),
    ))
}
