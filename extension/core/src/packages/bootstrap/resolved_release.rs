//! The release whose packages are in the spec of a ClusterBootstrap, and what has to be written so that they are another one's.

use sluice_crds::{labels::annotation, run::ClusterBootstrap};

use crate::upgrade::hop::Progress;

/// What a ClusterBootstrap says about the release of its spec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResolvedRelease<'a> {
    /// Annotation `lifecycle.sluice.dev/resolved-tkr`, written together with the spec: it cannot be behind it, and it goes
    /// where the object goes.
    pub annotation: Option<&'a str>,
    /// `status.resolvedTKR`, which the old manager wrote alone. A moved or restored object has no status.
    pub status: Option<&'a str>,
}

/// What has to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseChange {
    /// Nothing.
    Nothing,
    /// The annotation; the spec is taken as it is.
    Annotate,
    /// Spec and annotation.
    Merge,
}

impl<'a> ResolvedRelease<'a> {
    /// What a ClusterBootstrap says, as it was read or as a write has returned it.
    #[must_use]
    pub fn of(bootstrap: &'a ClusterBootstrap) -> Self {
        let annotations = bootstrap.metadata.annotations.as_ref();
        let annotation = annotations.and_then(|annotations| annotations.get(annotation::RESOLVED_TKR));
        let status = bootstrap.status.as_ref();
        let status = status.and_then(|status| status.resolved_tkr.as_ref());
        let said = |name: &'a String| Some(name.as_str()).filter(|name| !name.is_empty());
        Self {
            annotation: annotation.and_then(said),
            status: status.and_then(said),
        }
    }

    /// The release that the spec was last said to be of, if anything says it.
    #[must_use]
    pub fn release(&self) -> Option<&'a str> {
        self.annotation.or(self.status)
    }

    /// The release whose packages are known to be in the spec. On the way to another version nothing but the annotation says it:
    /// the status may be about a spec that has been replaced since.
    #[must_use]
    pub fn resolved(&self, progress: &Progress) -> Option<&'a str> {
        self.annotation.or(self.status.filter(|_| !on_the_way(progress)))
    }

    /// What it takes for the spec to be that of `release`.
    ///
    /// A spec without the annotation is taken as it is where a user, or the old manager, may have made it for a new or settled cluster.
    /// On the way to another version it may well be the spec of the version before, whatever the status says, so it is merged.
    #[must_use]
    pub fn change(&self, release: &str, progress: &Progress) -> ReleaseChange {
        match (self.annotation, self.resolved(progress)) {
            (Some(annotated), _) if annotated == release => ReleaseChange::Nothing,
            (Some(_), _) => ReleaseChange::Merge,
            (None, _) if on_the_way(progress) => ReleaseChange::Merge,
            (None, Some(status)) if status != release => ReleaseChange::Merge,
            (None, _) => ReleaseChange::Annotate,
        }
    }
}

/// Whether the control plane runs another version than the one that is next.
fn on_the_way(progress: &Progress) -> bool {
    progress.stage().is_some() && !progress.settled_at_hop()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sluice_crds::run::ClusterBootstrapSpec;

    use super::*;
    use crate::upgrade::hop::{ControlPlaneFacts, Plan, progress};

    const NEW: (&str, &str) = ("", "");
    const SETTLED: (&str, &str) = ("v1.36.3", "v1.36.3");
    const NEXT: (&str, &str) = ("v1.35.4", "v1.35.4");
    const ROLLING: (&str, &str) = ("v1.36.3", "v1.35.4");

    #[rstest]
    #[case::as_it_was(Some("36-1"), Some("36-1"), NEXT, ReleaseChange::Nothing)]
    #[case::merged_and_not_yet_reported(Some("36-1"), Some("35-1"), NEXT, ReleaseChange::Nothing)]
    #[case::moved_after_the_merge(Some("36-1"), None, NEXT, ReleaseChange::Nothing)]
    #[case::moved_before_the_merge(Some("35-1"), None, NEXT, ReleaseChange::Merge)]
    #[case::another_label(Some("35-1"), Some("35-1"), SETTLED, ReleaseChange::Merge)]
    #[case::created_for_another_label(Some("36-2"), None, NEW, ReleaseChange::Merge)]
    #[case::of_the_old_manager(None, Some("36-1"), SETTLED, ReleaseChange::Annotate)]
    #[case::of_the_old_manager_on_the_way(None, Some("35-1"), NEXT, ReleaseChange::Merge)]
    #[case::of_a_user_for_a_new_cluster(None, None, NEW, ReleaseChange::Annotate)]
    #[case::of_a_user_for_a_settled_cluster(None, None, SETTLED, ReleaseChange::Annotate)]
    #[case::reported_only_on_the_way(None, Some("36-1"), NEXT, ReleaseChange::Merge)]
    #[case::reported_only_while_it_rolls(None, Some("36-1"), ROLLING, ReleaseChange::Merge)]
    #[case::of_unknown_origin_on_the_way(None, None, NEXT, ReleaseChange::Merge)]
    #[case::of_unknown_origin_while_it_rolls(None, None, ROLLING, ReleaseChange::Merge)]
    fn what_has_to_be_written(
        #[case] annotation: Option<&str>,
        #[case] status: Option<&str>,
        #[case] versions: (&str, &str),
        #[case] change: ReleaseChange,
    ) {
        let found = ResolvedRelease { annotation, status };
        assert_eq!(found.change("36-1", &at(versions)), change);
    }

    #[rstest]
    #[case::marked(Some("36-1"), None, NEXT, Some("36-1"))]
    #[case::not_yet_reported(Some("36-1"), Some("35-1"), NEXT, Some("36-1"))]
    #[case::not_merged(Some("35-1"), Some("36-1"), NEXT, Some("35-1"))]
    #[case::reported_only_on_the_way(None, Some("36-1"), NEXT, None)]
    #[case::reported_only_while_it_rolls(None, Some("36-1"), ROLLING, None)]
    #[case::reported_only_at_rest(None, Some("36-1"), SETTLED, Some("36-1"))]
    #[case::nothing_says_it(None, None, SETTLED, None)]
    fn what_is_resolved_is_what_the_object_says(
        #[case] annotation: Option<&str>,
        #[case] status: Option<&str>,
        #[case] versions: (&str, &str),
        #[case] resolved: Option<&str>,
    ) {
        let found = ResolvedRelease { annotation, status };
        assert_eq!(found.resolved(&at(versions)), resolved);
    }

    #[test]
    fn an_empty_name_says_nothing() {
        let mut bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
        assert_eq!(ResolvedRelease::of(&bootstrap), ResolvedRelease::default());
        bootstrap.metadata.annotations = Some([(annotation::RESOLVED_TKR.to_owned(), String::new())].into());
        assert_eq!(ResolvedRelease::of(&bootstrap), ResolvedRelease::default());
    }

    fn at((spec, status): (&str, &str)) -> Progress {
        let text = |version: &str| (!version.is_empty()).then(|| version.to_owned());
        let control_plane = ControlPlaneFacts {
            spec_version: text(spec),
            status_version: text(status),
        };
        progress(Some(&control_plane), &[], "v1.36.3", &Plan::Direct, None)
    }
}
