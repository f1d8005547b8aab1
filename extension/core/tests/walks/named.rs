//! Short walks, one for each earlier defect. All but the last check the invariants of any walk.

use rstest::rstest;

use crate::{
    capi::{brief, record},
    defect::Defect,
    fault::Fault,
    replica::Reading,
    users::Edit,
    walk::{
        Step::{self, *},
        Walk,
    },
};

const CREATED: [Step; 6] = [Round; 6];

/// The upgrade starts, and its packages are merged into the ClusterBootstrap.
const MERGED: [Step; 3] = [User(Edit::Target(1)), Watch(0), Reconcile(0)];

/// kapp-controller is proven, and the PackageInstalls of all others are written.
const INSTALLED: [Step; 3] = [Deploy(0), Watch(0), Reconcile(0)];

const SEEN: [Step; 2] = [Watch(0), Reconcile(0)];

const DEPLOYED: [Step; 2] = [Deploy(1), Deploy(2)];

/// The control plane rolls to the version.
const TAKEN: [Step; 3] = [Replica, ClusterApi(Reading::AtOnce), Roll];

/// A run has applied all resources and waits.
const WAITING: [Step; 5] = [Sync(1), Begin(1), Apply(1), Sync(1), Watch(0)];

/// Runs an upgrade with `steps`, checks all invariants, and completes it.
fn upgraded(steps: &[&[Step]]) {
    let mut walk = Walk::new();
    walk.take(&CREATED);
    walk.take(&steps.concat());
    walk.calm();
    walk.finish();
}

#[test]
fn packages_of_a_failed_merge_are_not_those_of_the_release() {
    let missing = [User(Edit::NoPackage(1, 1))];
    upgraded(&[&missing, &MERGED, &SEEN, &[User(Edit::NoMark)]]);
}

#[test]
fn the_status_of_an_interrupted_run_is_no_proof_of_the_next_run() {
    let interrupted = [
        User(Edit::Policy(1, "readiness", "Applied")),
        Begin(1),
        Apply(1),
        Interrupt(1),
    ];
    let observed = [Sync(1), Begin(1), Sync(1), Deploy(2)];
    upgraded(&[&interrupted, &MERGED, &INSTALLED, &observed, &SEEN]);
}

#[test]
fn restored_packages_of_an_earlier_release_hold() {
    upgraded(&[&MERGED, &[User(Edit::OldManifest)], &[Round; 2]]);
}

#[test]
fn what_is_applied_is_not_reconciled() {
    let policy = [User(Edit::Policy(1, "readiness", "Applied"))];
    let applied = [&WAITING[..], &[Reconcile(0)], &WAITING, &[Deploy(2)]].concat();
    let asked = [User(Edit::NoPolicy)];
    upgraded(&[&policy, &MERGED, &INSTALLED, &applied, &SEEN, &asked]);
}

/// Its PackageInstall changes only the sync period of its App.
#[test]
fn a_package_without_values_is_deployed_again() {
    let again = [Deploy(1), Sync(2)];
    upgraded(&[
        &MERGED, &INSTALLED, &DEPLOYED, &SEEN, &TAKEN, &SEEN, &INSTALLED, &again, &SEEN,
    ]);
}

#[test]
fn another_server_behind_the_same_kubeconfig_gets_its_packages() {
    upgraded(&[&MERGED, &INSTALLED, &[User(Edit::ReplaceServer)]]);
}

#[rstest]
#[case::values("secrets", &[0, 0, 0, 0])]
#[case::package("packages", &[1])]
#[case::role("clusterroles", &[0])]
fn objects_of_an_unproven_package_are_restored(#[case] kind: &'static str, #[case] which: &[u8]) {
    let removed: Vec<Step> = which
        .iter()
        .map(|which| User(Edit::Remove(kind, *which)))
        .collect();
    upgraded(&[&MERGED, &INSTALLED, &[Sync(1), Watch(0)], &removed]);
}

#[test]
fn inputs_of_an_open_gate_are_checked_again() {
    let altered = [0, 1, 2, 3].map(|which| User(Edit::Alter("secrets", which)));
    upgraded(&[&MERGED, &INSTALLED, &DEPLOYED, &SEEN, &altered, &DEPLOYED]);
}

/// A failed run does not restart the time limit of the package.
#[test]
fn a_package_that_never_settles_holds_for_a_limited_time() {
    let never = [User(Edit::Policy(1, "readiness", "Applied")), NeverSettles(1)];
    upgraded(&[&never, &MERGED]);
}

#[test]
fn a_package_edited_in_place_needs_another_proof() {
    let edited = [User(Edit::Content(0, 1, "b"))];
    upgraded(&[&MERGED, &INSTALLED, &DEPLOYED, &SEEN, &edited]);
}

#[test]
fn late_writes_overwrite_nothing() {
    let frozen = [Lead(0, Fault::Frozen); 12];
    let edited = [User(Edit::Install(1, "values")), Watch(0)];
    let others = [
        &[Crash(0), Watch(0), Reconcile(0), User(Edit::Values(2))],
        &SEEN[..],
        &SEEN,
    ]
    .concat();
    let before = [
        &CREATED[..],
        &MERGED,
        &INSTALLED,
        &edited,
        &frozen,
        &others,
        &DEPLOYED,
        &SEEN,
    ];
    let mut walk = Walk::new();
    walk.take(&before.concat());
    assert!(!walk.late.is_empty(), "late writes exist");
    walk.take(&[Arrive]);
    walk.calm();
    walk.finish();
}

/// The target changes to a second hop before the gates of the first one open.
#[test]
fn a_passed_version_waits_for_packages_of_any_phase() {
    let policy = [User(Edit::Policy(2, "phase", "AfterControlPlane"))];
    let on = [User(Edit::Target(2)), Watch(0), Reconcile(0)];
    upgraded(&[
        &policy,
        &MERGED,
        &INSTALLED,
        &DEPLOYED,
        &SEEN,
        &TAKEN,
        &on,
        &INSTALLED,
        &[Deploy(1)],
        &SEEN,
    ]);
}

#[test]
fn deleted_workers_do_not_roll() {
    upgraded(&[&[User(Edit::LeavingWorkers)], &MERGED]);
}

#[rstest]
#[case::a_package_install_is_deleted(User(Edit::Remove("packageinstalls", 0)))]
#[case::values_are_deleted(User(Edit::Remove("secrets", 0)))]
#[case::values_are_edited(User(Edit::Alter("secrets", 0)))]
#[case::a_package_is_deleted(User(Edit::Remove("packages", 0)))]
#[case::a_package_is_edited(User(Edit::Alter("packages", 0)))]
#[case::the_role_is_deleted(User(Edit::Remove("clusterroles", 0)))]
#[case::the_account_is_deleted(User(Edit::Remove("serviceaccounts", 0)))]
#[case::a_package_install_is_edited(User(Edit::Install(1, "values")))]
#[case::the_server_is_another_one(User(Edit::ReplaceServer))]
#[case::a_package_fails(End(1, false))]
fn drift_of_a_settled_cluster_is_found_within_a_sync_period(#[case] drift: Step) {
    let mut walk = Walk::new();
    walk.take(&CREATED);
    walk.finish();
    let closed = record(&walk.servers).expect("a record");
    walk.drifts(&closed, drift);
}

/// No package was deployed yet from the missing objects.
#[test]
fn packages_of_a_new_cluster_were_not_altered() {
    let mut walk = Walk::new();
    for step in CREATED {
        walk.step(step);
        let record = record(&walk.servers).expect("a record");
        let altered = record.packages.iter().any(|package| package.repairs > 0);
        let unknown = record.gates.iter().any(|gate| gate.reason == "PackagesUnknown");
        assert!(
            !altered && !unknown,
            "{} {:?}",
            brief(Some(&record)),
            record.packages
        );
    }
}

#[test]
fn an_undecodable_object_of_another_team_holds_no_cluster() {
    upgraded(&[&[User(Edit::OddOfOthers)], &MERGED]);
}

#[rstest]
fn an_undecodable_object_holds_only_until_its_repair(#[values(0, 1, 2, 3, 4, 5, 6, 7, 8)] kind: usize) {
    upgraded(&[
        &MERGED,
        &[
            User(Edit::Odd(kind, 1)),
            Watch(0),
            Reconcile(0),
            Replica,
            ClusterApi(Reading::AtOnce),
        ],
    ]);
}

/// The garbage collector deletes objects of the first Cluster while the second one is created.
#[rstest]
#[case::the_cluster_bootstrap_first(&[Collect(0)])]
#[case::all_values_first(&[Collect(1), Collect(1)])]
#[case::nothing_yet(&[])]
fn a_recreated_cluster_has_its_values(#[case] collected: &[Step]) {
    upgraded(&[&[User(Edit::Again)], collected, &SEEN, &[Round; 2], &MERGED]);
}

#[test]
fn deleted_values_are_copied_again() {
    upgraded(&[&[User(Edit::NoValues)], &MERGED]);
}

#[test]
fn deleted_values_of_a_settled_cluster_are_copied_again() {
    let mut walk = Walk::new();
    walk.take(&CREATED);
    walk.finish();
    walk.take(&[User(Edit::NoValues)]);
    walk.finish();
}

/// A PackageInstall without values Secret requests the same as one whose Secret is empty.
#[test]
fn a_package_install_without_values_deploys_the_defaults() {
    let mut walk = Walk::new();
    walk.take(&[User(Edit::Target(1)), User(Edit::Again)]);
    walk.take(&[Round, User(Edit::Install(0, "values"))]);
    walk.calm();
    walk.finish();
}

/// A user lowers the packages of a settled Cluster and removes the annotation of its release.
#[test]
fn restored_packages_of_a_settled_cluster_are_corrected() {
    let lowered = [User(Edit::NoMark), User(Edit::Label(2)), User(Edit::OldManifest)];
    let mut walk = Walk::new();
    walk.take(&[User(Edit::Target(1))]);
    walk.take(&[Round; 8]);
    walk.take(&lowered);
    walk.calm();
    walk.finish();
    let closed = record(&walk.servers).expect("a record");
    walk.drifts(&closed, User(Edit::Remove("secrets", 0)));
}

/// The gates before the control plane are open, and the cache of the replica shows them.
const OPEN: [&[Step]; 5] = [&MERGED, &INSTALLED, &DEPLOYED, &SEEN, &[Replica]];

/// The gates close, and the cache of the replica does not show it.
const CLOSED: [Step; 3] = [User(Edit::Content(1, 1, "b")), Watch(0), Reconcile(0)];

/// The upgrade completes, the API servers go back to before it, and the Cluster is upgraded again. The leader observes everything but
/// the control plane.
const RESTORED: [Step; 18] = [
    BackUp,
    User(Edit::Target(1)),
    Round,
    Round,
    Round,
    Round,
    Round,
    Round,
    Round,
    Round,
    Restore,
    User(Edit::Target(1)),
    WatchBut(0, "goods"),
    Reconcile(0),
    WatchBut(0, "goods"),
    Reconcile(0),
    WatchBut(0, "goods"),
    Reconcile(0),
];

/// Each planted defect fails one walk by the name of its invariant, and that walk passes without it.
#[rstest]
#[case::no_read(Defect::Unconfirmed, &[&OPEN.concat()[..], &CLOSED, &[ClusterApi(Reading::AtOnce)]].concat(), "stale: ")]
#[case::cached_read(Defect::ConfirmedByCache, &[&OPEN.concat()[..], &CLOSED, &[ClusterApi(Reading::AtOnce)]].concat(), "stale: ")]
#[case::shared_read(Defect::SharedTooLate, &[&OPEN.concat()[..], &[AnotherCall], &CLOSED, &[ClusterApi(Reading::AtOnce)]].concat(), "stale: ")]
#[case::control_plane_not_read(Defect::ControlPlaneUnread, &RESTORED, "early: ")]
#[case::cluster_not_read(
    Defect::ClusterUnread,
    &[&MERGED[..], &INSTALLED, &DEPLOYED, &[Watch(0), User(Edit::Label(2)), Reconcile(0)]].concat(),
    "outdated: "
)]
fn a_planted_defect_is_found(#[case] defect: Defect, #[case] steps: &[Step], #[case] invariant: &str) {
    let run = |defect: Option<Defect>| {
        let mut walk = Walk::new();
        walk.plant(defect);
        walk.take(&CREATED);
        walk.take(steps);
        walk
    };
    let found = std::panic::catch_unwind(|| run(Some(defect)))
        .err()
        .expect("the defect is not found");
    let found = found.downcast_ref::<String>().expect("a message");
    assert!(found.starts_with(invariant), "{found}");
    let mut walk = run(None);
    walk.calm();
    walk.finish();
}

#[test]
fn a_restored_api_server_is_followed() {
    upgraded(&[&RESTORED, &[Detect(0)]]);
}

/// The Cluster is edited while its upgrade completes.
#[test]
fn an_upgrade_does_not_end_on_an_outdated_cache() {
    for rounds in 1..8 {
        let mut walk = Walk::new();
        walk.take(&CREATED);
        walk.take(&[User(Edit::Target(1))]);
        walk.take(&[Round].repeat(rounds));
        walk.take(&[Watch(0), User(Edit::Unimportant), Reconcile(0)]);
        walk.calm();
        walk.finish();
    }
}
