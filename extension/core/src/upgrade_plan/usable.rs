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

/// Returns the hold of a release that its labels exclude. A release that waits for a management package is incompatible until then, and its
/// step has a hold of its own.
pub(super) fn excluded(release: &TanzuKubernetesRelease, waits: bool) -> Option<Hold> {
    let is_excluding = |label: &str| !(waits && label == label::INCOMPATIBLE);
    let mut labels = EXCLUDING.iter().filter(|(label, _)| is_excluding(label));
    let (label, says) = labels.find(|(label, _)| release.labels().contains_key(*label))?;
    let name = release.name_any();
    Some(Hold::new(
        GateReason::TKRNotUsable,
        format!("TanzuKubernetesRelease {name} is {says} by label {label}"),
    ))
}
