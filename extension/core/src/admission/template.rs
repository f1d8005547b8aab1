//! Validation rules of a ClusterBootstrapTemplate. They need no lookups, because the objects that it names may be created later.

use super::{
    Review, Verdict,
    packages::{each, source_faults},
};
use crate::{fault::Fault, packages::bootstrap::missing};

/// The message of the CRD's own rule.
const IMMUTABLE: &str = "ClusterBootstrapTemplate has immutable spec, update is not allowed";

pub(super) fn judge(review: &Review, system_namespace: &str) -> Verdict {
    let mut faults = Vec::new();
    if review.namespace != system_namespace {
        faults.push(Fault::new(
            "metadata.namespace",
            &review.namespace,
            format!("ClusterBootstrapTemplates of other namespaces than {system_namespace} are not used; create it there"),
        ));
    }
    if review.old.is_some() {
        faults.push(Fault::new("spec", "object", IMMUTABLE));
        return Verdict {
            faults,
            warnings: Vec::new(),
        };
    }
    faults.extend(missing(&review.new.spec, false));
    faults.extend(each(&review.new.spec).filter_map(|listed| source_faults(&listed).err()));
    Verdict {
        faults,
        warnings: Vec::new(),
    }
}
