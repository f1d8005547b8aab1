//! Available updates.

use std::collections::{BTreeMap, BTreeSet};

use crate::version::Ordered;

/// Maximum number of releases in a condition, the newest ones, to keep it readable.
const NAMED: usize = 20;

/// Releases that nothing excludes, by minor version, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Updates(BTreeMap<(u64, u64), Vec<Update>>);

/// One of these releases.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Update {
    pub(super) version: Ordered,
    /// The version as written.
    pub(super) text: String,
    /// Name of the release.
    pub(super) name: String,
}

impl Updates {
    /// Creates the index of these releases by version.
    pub(super) fn of(updates: impl IntoIterator<Item = Update>) -> Self {
        let mut minors = BTreeMap::<_, Vec<_>>::new();
        for update in updates {
            minors.entry(update.version.minor()).or_default().push(update);
        }
        for releases in minors.values_mut() {
            releases.sort_unstable();
        }
        Self(minors)
    }

    /// Returns the releases with these names.
    pub(super) fn only(&self, names: &BTreeSet<&str>) -> Self {
        let all = self.0.values().flatten();
        Self::of(all.filter(|update| names.contains(update.name.as_str())).cloned())
    }

    /// Returns the versions above this one, of the same and the next minor version, the newest last, 20 at most.
    #[must_use]
    pub fn after(&self, version: &Ordered) -> Vec<&str> {
        let (major, minor) = version.minor();
        let next = minor.checked_add(1).map(|next| (major, next));
        let minors = [next, Some((major, minor))].into_iter().flatten();
        // Each minor version is sorted, so the iteration stops after the named ones.
        let newest_first = minors
            .filter_map(|minor| self.0.get(&minor))
            .flat_map(|releases| {
                let first = releases.partition_point(|other| other.version <= *version);
                releases[first..].iter().rev()
            });
        let newest_first = newest_first.map(|update| update.text.as_str());
        let mut newer: Vec<&str> = newest_first.take(NAMED).collect();
        newer.reverse();
        newer
    }

    /// Returns the same as a text for conditions, `[v1.35.5 v1.36.3]`; `None` if there is none.
    pub(super) fn message(&self, version: &Ordered) -> Option<String> {
        let newer = self.after(version);
        (!newer.is_empty()).then(|| format!("[{}]", newer.join(" ")))
    }
}
