//! Release of the packages in the spec of a ClusterBootstrap, and the writes for a change of release.

use sluice_crds::{labels::annotation, run::ClusterBootstrap};

use crate::upgrade::hop::Progress;

/// Statements of a ClusterBootstrap about the release of its spec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResolvedRelease<'a> {
    /// Annotation `lifecycle.sluice.dev/resolved-tkr`, written together with the spec: it never lags behind the spec, and it moves with
    /// the object.
    pub annotation: Option<&'a str>,
    /// `status.resolvedTKR`, the only statement of the addons-manager. A moved or restored object has no status.
    pub status: Option<&'a str>,
}

/// Required write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseChange {
    /// No write.
    Nothing,
    /// Annotation only; the spec stays unchanged.
    Annotate,
    /// Spec and annotation.
    Merge,
}

impl<'a> ResolvedRelease<'a> {
    /// Returns the statements of a ClusterBootstrap that was read or returned by a write.
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

    /// Returns the last stated release of the spec, if there is a statement.
    #[must_use]
    pub fn release(&self) -> Option<&'a str> {
        self.annotation.or(self.status)
    }

    /// Returns the release whose packages are known to be in the spec. During an upgrade only the annotation proves it: the status may
    /// refer to a spec that has been replaced since.
    #[must_use]
    pub fn resolved(&self, progress: &Progress) -> Option<&'a str> {
        self.annotation.or(self.status.filter(|_| !on_the_way(progress)))
    }

    /// Returns the write after which the spec is that of `release`.
    ///
    /// A spec without the annotation stays unchanged if a user, or the addons-manager, may have written it for a new or settled Cluster.
    /// During an upgrade it may be the spec of the previous version, whatever the status, so it is merged.
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

/// Whether the control plane runs another version than the hop.
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
    fn required_writes(
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
    fn the_resolved_release_is_the_stated_one(
        #[case] annotation: Option<&str>,
        #[case] status: Option<&str>,
        #[case] versions: (&str, &str),
        #[case] resolved: Option<&str>,
    ) {
        let found = ResolvedRelease { annotation, status };
        assert_eq!(found.resolved(&at(versions)), resolved);
    }

    #[test]
    fn an_empty_name_counts_as_none() {
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
