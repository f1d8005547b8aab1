//! Removal of entries of `TKR_DATA` that no part of a Cluster uses any more, when its version changes.

use serde_json::Value;
use sluice_crds::foreign::cluster::Variables;

use super::{
    data::{self, Entries},
    running::Machines,
};
use crate::version::{KubernetesVersion, same_numbers};

/// Change of the version of a Cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct VersionChange<'a> {
    /// The earlier `topology.version`.
    pub(super) from: &'a str,
    /// The new one.
    pub(super) to: &'a str,
    pub(super) machines: &'a Machines<'a>,
}

impl VersionChange<'_> {
    /// Returns these entries without the unused ones that the Cluster had before. All entries stay if the version does not change, or if a
    /// version is no Kubernetes version.
    pub(super) fn without_unused(&self, mut entries: Entries, was_there: impl Fn(&str) -> bool) -> Entries {
        let mut targets = [self.from, self.to].into_iter();
        if self.from != self.to && targets.all(|target| target.parse::<KubernetesVersion>().is_ok()) {
            entries.retain(|version, entry| !(was_there(version) && self.is_unused(version, entry)));
        }
        entries
    }

    /// Returns these new entries of the Cluster or of a part without unused ones that either had before. `own` are the earlier variables of
    /// the part, and `common` the earlier entries of the Cluster.
    pub(super) fn without_unused_of(
        &self,
        entries: Entries,
        own: &Variables,
        common: Option<&Entries>,
    ) -> Entries {
        let own = data::entries_in(own);
        let before = [own.as_ref(), common];
        let was_there = |version: &str| {
            let mut lists = before.into_iter().flatten();
            lists.any(|before| before.contains_key(version))
        };
        self.without_unused(entries, was_there)
    }

    /// Whether no part has the version of an entry, or gets it. An entry without an image stays: it only pins a release.
    fn is_unused(&self, version: &str, entry: &Value) -> bool {
        let mut targets = [self.from, self.to].into_iter();
        data::is_whole(entry)
            && !targets.any(|target| same_numbers(target, version))
            && self.machines.is_passed(version)
    }
}
