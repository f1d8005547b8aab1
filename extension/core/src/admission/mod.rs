//! Validates a ClusterBootstrap or ClusterBootstrapTemplate before the API server stores it (addons-manager §6.1, §6.3, §6.4).
//!
//! [`judge`] is a function of the review and of finished lookups: it returns the missing lookups first, and then its verdict.
//! The rules are those that a reconcile holds for, by the same functions. Changed fields are judged more strictly than unchanged ones,
//! so a missing object does not block the correction of another field.
//!
//! [`cluster_upgrade`] validates changes of version and release of Clusters, [`upgrade_gate`] UpgradeGates, and [`upgrade_override`] new
//! UpgradeOverrides.

pub mod cluster_upgrade;
pub mod upgrade_gate;
pub mod upgrade_override;

mod bootstrap;
mod complete;
mod lookup;
mod packages;
mod template;
mod update;

use crate::{fault::Fault, packages::bootstrap::LARGEST_SNAPSHOT};
use std::collections::BTreeMap;

use sluice_crds::{labels::annotation, run::ClusterBootstrapSpec};

pub use complete::{Completion, complete};
pub use lookup::{Lookup, LookupResult, Lookups};

/// Annotations that the rules read.
pub const ANNOTATIONS: [&str; 5] = [
    annotation::RESOLVED_TKR,
    annotation::KEEP_PACKAGE_VERSIONS,
    annotation::UNMANAGED_CNI,
    annotation::ADD_MISSING_FIELDS,
    annotation::ROLLBACK_TO,
];

/// Maximum length of an annotation in a review; a longer one is cut, and so cannot be parsed by its rule.
const LONGEST_ANNOTATION: usize = 16 * 1024;

/// Returns the length at which an annotation with this key is cut. A snapshot is restored, so one that can be read must be whole.
#[must_use]
pub fn longest(key: &str) -> usize {
    if key == annotation::ROLLBACK_TO {
        LARGEST_SNAPSHOT + 1
    } else {
        LONGEST_ANNOTATION
    }
}

/// Kinds that the webhooks review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// ClusterBootstrap.
    Bootstrap,
    /// ClusterBootstrapTemplate.
    Template,
}

impl Kind {
    /// Its name in API objects.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bootstrap => "ClusterBootstrap",
            Self::Template => "ClusterBootstrapTemplate",
        }
    }
}

/// The fields of an object that the rules read. `valuesFrom.inline` may be only a digest: no rule reads its content.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Its spec.
    pub spec: ClusterBootstrapSpec,
    /// The [`ANNOTATIONS`] that the object carries.
    pub annotations: BTreeMap<String, String>,
}

impl State {
    fn is_unmanaged(&self) -> bool {
        self.annotations.contains_key(annotation::UNMANAGED_CNI)
    }
}

/// Review of one create or update.
#[derive(Debug, Clone, PartialEq)]
pub struct Review {
    /// The kind of the object.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name; empty if the API server generates it.
    pub name: String,
    /// Whether its owner is a Cluster. Users set no owner, a move does.
    pub owned: bool,
    /// The new state.
    pub new: State,
    /// The old state; `None` for a create.
    pub old: Option<State>,
    /// Whether the object has no spec.
    pub spec_missing: bool,
    /// Whether the specs differ, also in fields that a [`State`] leaves out.
    pub spec_differs: bool,
}

impl Review {
    /// Whether the review changes a field that a rule reads. No rule reads status, labels or other annotations.
    fn changes_something(&self) -> bool {
        self.spec_differs
            || self
                .old
                .as_ref()
                .is_none_or(|old| old.is_unmanaged() != self.new.is_unmanaged())
    }
}

/// Result of a review.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Reasons to refuse the object; it is admitted if there are none.
    pub faults: Vec<Fault>,
    /// Faults that are admitted but hold upgrades, and failed lookups.
    pub warnings: Vec<String>,
}

/// Judges a review by finished lookups.
///
/// # Errors
/// The lookups that the verdict still needs.
pub fn judge(review: &Review, system_namespace: &str, finished: &Lookups) -> Result<Verdict, Vec<Lookup>> {
    if !review.changes_something() {
        return Ok(Verdict::default());
    }
    match review.kind {
        Kind::Bootstrap => bootstrap::judge(review, finished),
        Kind::Template => Ok(template::judge(review, system_namespace)),
    }
}

#[cfg(test)]
pub(crate) mod tests;
