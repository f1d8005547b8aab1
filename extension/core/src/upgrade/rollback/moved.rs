//! Cancellations that come too late for a rollback: the control plane has taken the hop.

use sluice_crds::run::{UpgradePolicy, UpgradeRecord};

use crate::{
    upgrade::hop::ControlPlaneFacts,
    version::{reached, same},
};

/// Returns why no package goes back although the policy asks for it: the control plane has taken a version above the target `to` since the
/// upgrade began.
pub(super) fn moved(
    to: &str,
    control_plane: Option<&ControlPlaneFacts>,
    record: &UpgradeRecord,
    policy: Option<&UpgradePolicy>,
) -> Option<String> {
    let is_above = |version: &str| !same(version, to) && reached(version, to);
    let version = control_plane?.spec_version.as_deref()?;
    // Otherwise the target was moved below the version that the upgrade began with.
    let began_at_target = record.from.as_deref().is_some_and(|from| !is_above(from));
    let is_moved = record.outcome.is_none() && began_at_target && is_above(version);
    (is_moved && policy.is_some_and(UpgradePolicy::rolls_back)).then(|| {
        format!(
            "ControlPlaneMoved: the control plane has {version} already, so packages stay; set topology.version to {version} again with \
             the label of its release, then correct the values or the Package, set the label to a repaired release, or create an \
             UpgradeOverride for the workers"
        )
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sluice_crds::run::{OnCancel, Outcome};

    use super::*;

    const V34: &str = "v1.34.4";
    const V35: &str = "v1.35.4";
    const V36: &str = "v1.36.3";

    #[rstest]
    #[case::took_the_hop(V35, V36, Some(V35), None, OnCancel::Rollback, true)]
    #[case::of_a_chain(V34, V35, Some(V34), None, OnCancel::Rollback, true)]
    #[case::build_of_the_target(V35, "v1.35.4+vmware.1", Some(V35), None, OnCancel::Rollback, false)]
    #[case::still_below(V36, V35, Some(V35), None, OnCancel::Rollback, false)]
    #[case::packages_stay_anyway(V35, V36, Some(V35), None, OnCancel::Keep, false)]
    #[case::lowered_after_the_upgrade(V35, V36, Some(V36), None, OnCancel::Rollback, false)]
    #[case::completed(V35, V36, Some(V35), Some(Outcome::Completed), OnCancel::Rollback, false)]
    #[case::first_installation(V35, V36, None, None, OnCancel::Rollback, false)]
    fn nothing_goes_back_after_the_control_plane_has_moved(
        #[case] to: &str,
        #[case] version: &str,
        #[case] from: Option<&str>,
        #[case] outcome: Option<Outcome>,
        #[case] on_cancel: OnCancel,
        #[case] expected: bool,
    ) {
        let control_plane = ControlPlaneFacts {
            spec_version: Some(version.to_owned()),
            // It refuses before the rollout has ended.
            status_version: Some(V34.to_owned()),
        };
        let record = UpgradeRecord {
            from: from.map(str::to_owned),
            outcome,
            ..UpgradeRecord::default()
        };
        let policy = UpgradePolicy {
            on_cancel: Some(on_cancel),
            ..UpgradePolicy::default()
        };
        let why = moved(to, Some(&control_plane), &record, Some(&policy));
        assert_eq!(why.is_some(), expected, "{why:?}");
        assert!(why.is_none_or(|why| why.contains(version)));
        assert_eq!(moved(to, None, &record, Some(&policy)), None);
        assert_eq!(moved(to, Some(&control_plane), &record, None), None);
    }
}
