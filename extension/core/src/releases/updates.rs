//! The releases that may be taken next.

use std::collections::BTreeMap;

use crate::version::Ordered;

/// So many releases are named at most, the newest ones: a condition is read by people.
const NAMED: usize = 20;

/// Releases that nothing excludes, by minor version and in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Updates(BTreeMap<(u64, u64), Vec<(Ordered, String)>>);

impl Updates {
    /// These releases, by their versions.
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

    /// The versions above this one, of its minor version and the next one, the newest last.
    #[must_use]
    pub fn after(&self, version: &Ordered) -> Vec<&str> {
        let (major, minor) = version.minor();
        let next = minor.checked_add(1).map(|next| (major, next));
        let minors = [Some((major, minor)), next].into_iter().flatten();
        let releases = minors.filter_map(|minor| self.0.get(&minor)).flatten();
        let newer = releases.filter(|(other, _)| other > version);
        newer.map(|(_, text)| text.as_str()).collect()
    }

    /// The same as conditions list them, `[v1.35.5 v1.36.3]`; `None` where there is none.
    pub(super) fn message(&self, version: &Ordered) -> Option<String> {
        let newer = self.after(version);
        let newest = &newer[newer.len().saturating_sub(NAMED)..];
        (!newest.is_empty()).then(|| format!("[{}]", newest.join(" ")))
    }
}
