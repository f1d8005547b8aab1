//! Available updates.

use std::collections::BTreeMap;

use crate::version::Ordered;

/// Maximum number of releases in a condition, the newest ones, to keep it readable.
const NAMED: usize = 20;

/// Releases that nothing excludes, by minor version, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Updates(BTreeMap<(u64, u64), Vec<(Ordered, String)>>);

impl Updates {
    /// Creates the index of these releases by version.
    pub(super) fn of<'a>(versions: impl IntoIterator<Item = (&'a Ordered, &'a str)>) -> Self {
        let mut minors = BTreeMap::<_, Vec<_>>::new();
        for (version, text) in versions {
            let releases = minors.entry(version.minor()).or_default();
            releases.push((version.clone(), text.to_owned()));
        }
        for releases in minors.values_mut() {
            releases.sort_unstable();
        }
        Self(minors)
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
                let first = releases.partition_point(|(other, _)| other <= version);
                releases[first..].iter().rev()
            });
        let mut newer: Vec<&str> = newest_first.take(NAMED).map(|(_, text)| text.as_str()).collect();
        newer.reverse();
        newer
    }

    /// Returns the same as a text for conditions, `[v1.35.5 v1.36.3]`; `None` if there is none.
    pub(super) fn message(&self, version: &Ordered) -> Option<String> {
        let newer = self.after(version);
        (!newer.is_empty()).then(|| format!("[{}]", newer.join(" ")))
    }
}
