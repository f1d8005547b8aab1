//! Which release the spec of a ClusterBootstrap belongs to, and what has to be written so that it belongs to another.

use crate::hop::Progress;

/// What is known of the release of a ClusterBootstrap's spec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Belonging<'a> {
    /// Annotation `lifecycle.sluice.dev/resolved-tkr`, written together with the spec: it cannot be behind it, and it goes
    /// where the object goes.
    pub marked: Option<&'a str>,
    /// `status.resolvedTKR`, which the old manager wrote alone. A moved or restored object has no status.
    pub reported: Option<&'a str>,
}

/// What has to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Nothing,
    /// The mark; the spec is taken as it is.
    Mark,
    /// Spec and mark.
    Merge,
}

impl<'a> Belonging<'a> {
    /// The release, if anything says it.
    #[must_use]
    pub fn release(&self) -> Option<&'a str> {
        self.marked.or(self.reported)
    }

    /// What it takes for the spec to be that of `release`.
    ///
    /// A spec of unknown origin is taken as it is where a user may have made it for a new or settled cluster. On the way to
    /// another version it may well be the spec of the version before, so it is merged.
    #[must_use]
    pub fn change(&self, release: &str, progress: &Progress) -> Change {
        let on_the_way = progress.stage().is_some() && !progress.settled_at_hop();
        match self.release() {
            Some(known) if known != release => Change::Merge,
            None if on_the_way => Change::Merge,
            _ if self.marked.is_none() => Change::Mark,
            _ => Change::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::hop::{ControlPlaneFacts, Plan, progress};

    const NEW: (&str, &str) = ("", "");
    const SETTLED: (&str, &str) = ("v1.36.3", "v1.36.3");
    const NEXT: (&str, &str) = ("v1.35.4", "v1.35.4");
    const ROLLING: (&str, &str) = ("v1.36.3", "v1.35.4");

    #[rstest]
    #[case::as_it_was(Some("36-1"), Some("36-1"), NEXT, Change::Nothing)]
    #[case::merged_and_not_yet_reported(Some("36-1"), Some("35-1"), NEXT, Change::Nothing)]
    #[case::moved_after_the_merge(Some("36-1"), None, NEXT, Change::Nothing)]
    #[case::moved_before_the_merge(Some("35-1"), None, NEXT, Change::Merge)]
    #[case::another_label(Some("35-1"), Some("35-1"), SETTLED, Change::Merge)]
    #[case::created_for_another_label(Some("36-2"), None, NEW, Change::Merge)]
    #[case::of_the_old_manager(None, Some("36-1"), SETTLED, Change::Mark)]
    #[case::of_the_old_manager_on_the_way(None, Some("35-1"), NEXT, Change::Merge)]
    #[case::of_a_user_for_a_new_cluster(None, None, NEW, Change::Mark)]
    #[case::of_a_user_for_a_settled_cluster(None, None, SETTLED, Change::Mark)]
    #[case::of_unknown_origin_on_the_way(None, None, NEXT, Change::Merge)]
    #[case::of_unknown_origin_while_it_rolls(None, None, ROLLING, Change::Merge)]
    fn what_has_to_be_written(
        #[case] marked: Option<&str>,
        #[case] reported: Option<&str>,
        #[case] (spec, status): (&str, &str),
        #[case] change: Change,
    ) {
        let text = |version: &str| (!version.is_empty()).then(|| version.to_owned());
        let control_plane = ControlPlaneFacts {
            spec_version: text(spec),
            status_version: text(status),
        };
        let progress = progress(Some(&control_plane), &[], "v1.36.3", &Plan::Direct, None);
        let belonging = Belonging { marked, reported };
        assert_eq!(belonging.change("36-1", &progress), change);
    }
}
