//! What a ClusterBootstrap or ClusterBootstrapTemplate is refused for before it is stored (addons-manager §6.1, §6.3, §6.4).
//!
//! [`judge`] is a function of the review and of what was looked up: it returns what has to be looked up first, and then its verdict.
//! The rules are those that a pass holds for, by the same functions. What an update changes is judged more strictly than what it leaves
//! as it was, so that an object that is gone does not block the correction of another field.

mod bootstrap;
mod complete;
mod lookup;
mod packages;
mod template;
mod update;

use crate::fault::Fault;
use std::collections::BTreeMap;

use sluice_crds::{labels::annotation, run::ClusterBootstrapSpec};

pub use complete::{Completion, complete};
pub use lookup::{Lookup, LookupResult, Lookups};

/// The annotations that rules are about.
pub const ANNOTATIONS: [&str; 4] = [
    annotation::RESOLVED_TKR,
    annotation::KEEP_PACKAGE_VERSIONS,
    annotation::UNMANAGED_CNI,
    annotation::ADD_MISSING_FIELDS,
];

/// The kinds that are reviewed.
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

/// What an object says that rules are about. `valuesFrom.inline` is an empty object where there is one: its content matters to none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Its spec.
    pub spec: ClusterBootstrapSpec,
    /// Those of [`ANNOTATIONS`] that are there.
    pub annotations: BTreeMap<String, String>,
}

impl State {
    fn is_unmanaged(&self) -> bool {
        self.annotations.contains_key(annotation::UNMANAGED_CNI)
    }
}

/// What is asked about.
#[derive(Debug, Clone, PartialEq)]
pub struct Review {
    /// The kind of the object.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name; empty where the API server makes it up.
    pub name: String,
    /// Whether it names a Cluster as its owner. Users do not, a move does.
    pub owned: bool,
    /// What it shall be.
    pub new: State,
    /// What it was; none where it is created.
    pub old: Option<State>,
    /// Whether there is no spec at all.
    pub spec_missing: bool,
    /// Whether the specs differ, also in what a [`State`] leaves out.
    pub spec_differs: bool,
}

impl Review {
    /// Whether there is anything to judge: no rule is about status, labels and other annotations.
    fn changes_something(&self) -> bool {
        self.spec_differs
            || self
                .old
                .as_ref()
                .is_none_or(|old| old.is_unmanaged() != self.new.is_unmanaged())
    }
}

/// The answer to a review.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why it is refused; admitted if empty.
    pub faults: Vec<Fault>,
    /// What is admitted and will be held for, or was not looked up.
    pub warnings: Vec<String>,
}

/// Judges a review by what was looked up.
///
/// # Errors
/// What has to be looked up before.
pub fn judge(review: &Review, system_namespace: &str, looked: &Lookups) -> Result<Verdict, Vec<Lookup>> {
    if !review.changes_something() {
        return Ok(Verdict::default());
    }
    match review.kind {
        Kind::Bootstrap => bootstrap::judge(review, looked),
        Kind::Template => Ok(template::judge(review, system_namespace)),
    }
}

#[cfg(test)]
pub(crate) mod tests;
