//! Discovered kinds of one API server, kept for a moment: a held Cluster reads the same objects every few seconds.

use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use sluice_core::protocol::ReadResult;

use crate::lock::lock;

/// Time for which a discovered kind counts. Within it, a read of a kind that was removed finds no object.
const KEPT: Duration = Duration::from_mins(1);

/// Maximum number of kept kinds.
const MOST: usize = 64;

/// Served kinds by `apiVersion` and `kind`. One that is not served is discovered each time, so that a new definition counts at once.
#[derive(Default)]
pub(in crate::controllers::gates) struct Kinds(Mutex<HashMap<(String, String), Kept>>);

struct Kept {
    at: Instant,
    found: ReadResult,
}

impl Kept {
    fn counts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < KEPT
    }
}

impl Kinds {
    /// Returns a kind that was discovered a moment ago.
    pub(in crate::controllers::gates) fn get(
        &self,
        api_version: &str,
        kind: &str,
        now: Instant,
    ) -> Option<ReadResult> {
        let named = (api_version.to_owned(), kind.to_owned());
        let kinds = lock(&self.0);
        let kept = kinds.get(&named)?;
        kept.counts(now).then(|| kept.found.clone())
    }

    /// Keeps a kind that is served.
    pub(in crate::controllers::gates) fn keep(
        &self,
        api_version: &str,
        kind: &str,
        found: ReadResult,
        now: Instant,
    ) {
        let named = (api_version.to_owned(), kind.to_owned());
        let mut kinds = lock(&self.0);
        kinds.retain(|_, kept| kept.counts(now));
        if kinds.len() < MOST {
            kinds.insert(named, Kept { at: now, found });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    #[test]
    fn a_kind_counts_for_a_minute() {
        let (kinds, began) = (Kinds::default(), now());
        let knows = |api_version: &str, kind: &str, now| kinds.get(api_version, kind, now).is_some();
        assert!(!knows("apps/v1", "DaemonSet", began));
        kinds.keep("apps/v1", "DaemonSet", ReadResult::Absent, began);
        assert!(knows("apps/v1", "DaemonSet", began + KEPT / 2));
        assert!(!knows("apps/v1", "Deployment", began));
        assert!(!knows("apps/v2", "DaemonSet", began));
        assert!(!knows("apps/v1", "DaemonSet", began + KEPT));
    }

    #[test]
    fn the_number_of_kinds_is_limited() {
        let (kinds, began) = (Kinds::default(), now());
        for number in 0..=MOST {
            kinds.keep("apps/v1", &number.to_string(), ReadResult::Absent, began);
        }
        let len = || lock(&kinds.0).len();
        assert_eq!(len(), MOST);
        kinds.keep("apps/v1", "0", ReadResult::Absent, began + KEPT);
        assert_eq!(len(), 1, "the others have ended");
    }
}
