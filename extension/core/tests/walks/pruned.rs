//! Walks in which the webhook removes entries of passed versions.

use rstest::rstest;

use crate::{
    capi::version_at,
    defect::Defect,
    machines::pinned,
    named::CREATED,
    objects::{PlannedBy, control_plane, worker},
    planted::assert_is_found,
    users::Edit,
    walk::{
        Step::{self, *},
        Walk,
    },
};

/// Rounds in which a control plane takes the next version, and deferred workers would have taken it.
const ROUNDS: [Step; 16] = [Round; 16];

#[rstest]
fn entries_of_a_passed_version_are_removed(
    #[values(PlannedBy::Nobody, PlannedBy::Class, PlannedBy::Extension)] planned_by: PlannedBy,
) {
    let mut walk = Walk::with_images();
    walk.step(User(Edit::Steps(planned_by)));
    walk.take(&CREATED);
    walk.step(User(Edit::Target(1)));
    walk.finish();
    assert_eq!(
        pinned(&walk.servers, 0),
        Some(0),
        "until the next change of the version"
    );
    walk.take(&[Replica, User(Edit::Target(2))]);
    let entries = [0, 1, 2].map(|version| pinned(&walk.servers, version));
    assert_eq!(entries, [None, Some(1), Some(2)]);
    walk.finish();
}

/// Returns a walk whose control plane is upgraded, and whose pool is deferred. The record of the upgrade is lost.
fn deferred(defect: Option<Defect>) -> Walk {
    let mut walk = Walk::with_images();
    walk.plant(defect);
    walk.take(&CREATED);
    walk.take(&[User(Edit::Defer(true)), User(Edit::Target(1))]);
    walk.take(&ROUNDS);
    let versions = [control_plane(), worker()].map(|place| version_at(&walk.servers, &place, "status"));
    assert_eq!(versions, [1, 0]);
    walk.take(&[User(Edit::NoStatus), Replica]);
    walk
}

#[test]
fn the_entry_of_a_deferred_pool_stays() {
    let mut walk = deferred(None);
    walk.step(User(Edit::Target(2)));
    let entries = [0, 1, 2].map(|version| pinned(&walk.servers, version));
    assert_eq!(entries, [Some(0), Some(1), Some(2)]);
    walk.step(User(Edit::Defer(false)));
    walk.calm();
    walk.finish();
}

#[test]
fn an_entry_that_is_pruned_while_its_pool_is_deferred_is_found() {
    let walk = || deferred(Some(Defect::DeferralUnseen)).step(User(Edit::Target(2)));
    assert_is_found(walk, "pruned: ");
}
