//! Labels and conditions of an OSImage.

use jiff::Timestamp;
use sluice_crds::{labels::label, run::OSImage};

use super::{
    ReleaseReason,
    conditions::{COMPATIBLE, READY, Said, VALID, quoted, say},
    evaluation::ready,
    labels::{image_labels, version_labels},
    release_status::ReleaseStatus,
};
use crate::version::Ordered;

/// Returns the write of an OSImage; `None` if the OSImage is up to date.
///
/// The infrastructure provider sets condition `Compatible`; the label follows the condition if there is one.
#[must_use]
pub fn of_image(image: &OSImage, now: Timestamp) -> Option<ReleaseStatus> {
    let version = &image.spec.kubernetes_version;
    let is_valid = Ordered::of(version).is_some();
    let before = image.status.as_ref().map(|status| status.conditions.clone());
    let before = before.unwrap_or_default();
    let known = is_valid.then_some(version.as_str());
    let mut labels = version_labels(known, image.metadata.labels.as_ref());
    // A label of a reference field may look like a version prefix.
    labels.extend(image_labels(&image.spec));
    labels.insert(label::INVALID.to_owned(), (!is_valid).then(String::new));
    if let Some(compatible) = before.iter().find(|condition| condition.type_ == COMPATIBLE) {
        let excluded = compatible.status == "False";
        labels.insert(label::INCOMPATIBLE.to_owned(), excluded.then(String::new));
    }
    let said = if is_valid {
        Said::yes(String::new())
    } else {
        let message = format!(
            "spec.kubernetesVersion {} is not a semantic version, such as v1.36.3+vmware.1",
            quoted(version)
        );
        Said::no(
            "Warning",
            ReleaseReason::KubernetesVersionInvalid.as_str(),
            message,
        )
    };
    let ready = ready(image.metadata.labels.as_ref(), &labels);
    let mut conditions = before.clone();
    say(&mut conditions, VALID, said, now);
    say(&mut conditions, READY, ready, now);
    ReleaseStatus::of(image, labels, &before, conditions).if_any()
}
