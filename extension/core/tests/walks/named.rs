//! Short walks to what once was wrong, one for each defect. All but the last are judged as any other walk is.

use rstest::rstest;

use crate::{
    capi::{brief, record},
    fault::Fault,
    users::Edit,
    walk::{
        Step::{self, *},
        Walk,
    },
};

const CREATED: [Step; 6] = [Round; 6];

/// The upgrade begins, and its packages are in the ClusterBootstrap.
const MERGED: [Step; 3] = [User(Edit::Target(1)), Watch(0), Reconcile(0)];

/// kapp-controller is proven, and the PackageInstalls of all others are written.
const INSTALLED: [Step; 3] = [Deploy(0), Watch(0), Reconcile(0)];

const SEEN: [Step; 2] = [Watch(0), Reconcile(0)];

const DEPLOYED: [Step; 2] = [Deploy(1), Deploy(2)];

/// The control plane takes the version.
const TAKEN: [Step; 3] = [Replica, ClusterApi, Roll];

/// A run that has applied everything, and waits.
const WAITING: [Step; 5] = [Sync(1), Begin(1), Apply(1), Sync(1), Watch(0)];

/// Whatever happens in an upgrade, the walk holds to its rules, and comes to its end.
fn upgraded(steps: &[&[Step]]) {
    let mut walk = Walk::new();
    walk.take(&CREATED);
    walk.take(&steps.concat());
    walk.calm();
    walk.finish();
}

#[test]
fn packages_of_a_merge_that_failed_are_not_those_of_the_release() {
    let missing = [User(Edit::NoPackage(1, 1))];
    upgraded(&[&missing, &MERGED, &SEEN, &[User(Edit::NoMark)]]);
}

#[test]
fn what_an_interrupted_run_has_shown_is_no_proof_of_the_next() {
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
fn packages_of_an_earlier_release_that_are_put_back_hold() {
    upgraded(&[&MERGED, &[User(Edit::OldManifest)], &[Round; 2]]);
}

#[test]
fn what_is_applied_is_not_reconciled() {
    let policy = [User(Edit::Policy(1, "readiness", "Applied"))];
    let applied = [&WAITING[..], &[Reconcile(0)], &WAITING, &[Deploy(2)]].concat();
    let asked = [User(Edit::NoPolicy)];
    upgraded(&[&policy, &MERGED, &INSTALLED, &applied, &SEEN, &asked]);
}

/// Its PackageInstall is written, and nothing of its App differs but the sync period.
#[test]
fn a_package_that_takes_no_values_is_deployed_again() {
    let again = [Deploy(1), Sync(2)];
    upgraded(&[
        &MERGED, &INSTALLED, &DEPLOYED, &SEEN, &TAKEN, &SEEN, &INSTALLED, &again, &SEEN,
    ]);
}

#[test]
fn another_server_behind_the_same_kubeconfig_is_taken_up() {
    upgraded(&[&MERGED, &INSTALLED, &[User(Edit::ReplaceServer)]]);
}

#[rstest]
#[case::values("secrets", &[0, 0, 0, 0])]
#[case::package("packages", &[1])]
#[case::role("clusterroles", &[0])]
fn what_a_package_needs_is_restored_while_it_is_not_proven(#[case] kind: &'static str, #[case] which: &[u8]) {
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

/// A run that fails does not begin the time again that is given to it.
#[test]
fn a_package_that_never_settles_holds_for_a_time_only() {
    let never = [User(Edit::Policy(1, "readiness", "Applied")), NeverSettles(1)];
    upgraded(&[&never, &MERGED]);
}

#[test]
fn a_package_that_is_edited_at_its_version_is_another_one() {
    let edited = [User(Edit::Content(0, 1, "b"))];
    upgraded(&[&MERGED, &INSTALLED, &DEPLOYED, &SEEN, &edited]);
}

#[test]
fn what_arrives_late_overwrites_nothing() {
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
    assert!(!walk.late.is_empty(), "something is on its way");
    walk.take(&[Arrive]);
    walk.calm();
    walk.finish();
}

/// Before the gates of the first hop have opened, there is a second one.
#[test]
fn a_version_that_was_passed_waits_for_packages_of_any_phase() {
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
fn workers_that_are_deleted_do_not_roll() {
    upgraded(&[&[User(Edit::LeavingWorkers)], &MERGED]);
}

/// The Cluster is settled, and then this happens on its workload.
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
fn what_happens_on_a_settled_cluster_is_seen_within_a_sync_period(#[case] drift: Step) {
    let mut walk = Walk::new();
    walk.take(&CREATED);
    walk.finish();
    let closed = record(&walk.servers).expect("a record");
    walk.drifts(&closed, drift);
}

/// Nothing was deployed yet from what is missing.
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

/// It holds nothing of ours, and is never mended.
#[test]
fn an_object_of_others_that_cannot_be_decoded_is_theirs() {
    upgraded(&[&[User(Edit::OddOfOthers)], &MERGED]);
}

#[rstest]
fn what_could_not_be_decoded_holds_no_longer_than_that(#[values(0, 1, 2, 3, 4, 5, 6, 7, 8)] kind: usize) {
    upgraded(&[
        &MERGED,
        &[
            User(Edit::Odd(kind, 1)),
            Watch(0),
            Reconcile(0),
            Replica,
            ClusterApi,
        ],
    ]);
}

/// The ClusterBootstrap of the first Cluster is collected before its values are, and another one is made meanwhile.
#[rstest]
#[case::the_cluster_bootstrap_first(&[Collect(0)])]
#[case::all_values_first(&[Collect(1), Collect(1)])]
#[case::nothing_yet(&[])]
fn a_cluster_that_is_made_again_has_its_values_again(#[case] collected: &[Step]) {
    upgraded(&[&[User(Edit::Again)], collected, &SEEN, &[Round; 2], &MERGED]);
}

#[test]
fn values_that_are_deleted_by_hand_are_copied_again() {
    upgraded(&[&[User(Edit::NoValues)], &MERGED]);
}

/// Its drift check finds that.
#[test]
fn values_of_a_settled_cluster_that_are_deleted_are_copied_again() {
    let mut walk = Walk::new();
    walk.take(&CREATED);
    walk.finish();
    walk.take(&[User(Edit::NoValues)]);
    walk.finish();
}
