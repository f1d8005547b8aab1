//! Short walks, one for each earlier defect. All but the last check the invariants of any walk.

use rstest::rstest;
use sluice_core::reconcile::cluster::Server;
use sluice_crds::run::{Hook, KappControllerMode, Outcome};

use crate::{
    capi::{brief, record, version_at},
    fault::Fault,
    objects::{
        PACKAGES, PlannedBy, VERSIONS, additional, bootstrap, control_plane, of_package, package_name, worker,
    },
    planted::{LATE, OPEN, RESTORED},
    random::number,
    replica::Reading,
    users::{Edit, Paused},
    walk::{
        Step::{self, *},
        Walk,
    },
};

pub(crate) const CREATED: [Step; 6] = [Round; 6];

/// The upgrade starts, and its packages are merged into the ClusterBootstrap.
pub(crate) const MERGED: [Step; 3] = [User(Edit::Target(1)), Watch(0), Reconcile(0)];

/// kapp-controller is proven, and the PackageInstalls of all others are written.
pub(crate) const INSTALLED: [Step; 3] = [Deploy(0), Watch(0), Reconcile(0)];

pub(crate) const SEEN: [Step; 2] = [Watch(0), Reconcile(0)];

pub(crate) const DEPLOYED: [Step; 2] = [Deploy(1), Deploy(2)];

/// The control plane rolls to the version.
pub(crate) const TAKEN: [Step; 3] = [Replica, ClusterApi(Reading::AtOnce), Roll];

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
    let mut walk = Walk::new();
    walk.take(&CREATED);
    walk.take(&LATE.concat());
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

/// The PackageInstall of kapp-controller belongs to the first Cluster, and its values Secret has the same name for both workload clusters.
#[test]
fn a_package_install_of_an_earlier_cluster_is_not_kept() {
    let mut walk = Walk::new();
    walk.take(&[User(Edit::Steps(PlannedBy::Class)), Round, Deploy(0)]);
    walk.step(User(Edit::OfAddonsManager));
    walk.take(&[SEEN, [Deploy(0), Watch(0)]].concat());
    walk.take(&[Reconcile(0), Deploy(0), User(Edit::Again), User(Edit::Version(0))]);
    walk.step(Lead(0, Fault::None));
    walk.calm();
    walk.finish();
}

/// The leader records edits that the restore of a backup has taken back.
#[test]
fn a_restored_api_server_holds_no_cluster() {
    let mut walk = Walk::new();
    walk.take(&[
        User(Edit::Steps(PlannedBy::Class)),
        Step::BackUp,
        User(Edit::Target(2)),
        User(Edit::Target(1)),
        Watch(0),
        Step::Restore,
    ]);
    walk.calm();
    walk.finish();
    walk.drift();
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

/// A proof outlives resyncs of kapp-controller, and a failed run delays an upgrade.
#[test]
fn a_failed_run_closes_a_gate_and_a_resync_does_not() {
    let is_open = |walk: &Walk| {
        let record = record(&walk.servers).expect("a record");
        let mut gates = record.gates.iter();
        gates.any(|gate| {
            gate.open && gate.hook == Hook::BeforeControlPlaneUpgrade && gate.version == VERSIONS[1]
        })
    };
    let mut walk = Walk::new();
    walk.take(
        &[
            &CREATED[..],
            &MERGED,
            &INSTALLED,
            &[Sync(1), Begin(1), End(1, false)],
            &SEEN,
            &SEEN,
        ]
        .concat(),
    );
    assert!(!is_open(&walk), "the run failed");
    walk.take(&[&DEPLOYED[..], &SEEN].concat());
    assert!(is_open(&walk), "all packages are proven");
    walk.take(&[&[Begin(1), Sync(1)], &SEEN[..], &SEEN].concat());
    assert!(is_open(&walk), "kapp-controller resyncs the App");
    walk.take(&[&[End(1, true)], &SEEN[..], &TAKEN].concat());
    walk.calm();
    walk.finish();
}

/// Caches of PackageInstalls and Apps have different ages, on both servers. Package 0 is on the management server.
#[rstest]
fn no_gate_opens_by_caches_of_different_ages(
    #[values("packageinstalls", "apps")] outdated: &'static str,
    #[values(0, 1)] which: usize,
) {
    let before = match which {
        0 => MERGED.to_vec(),
        _ => [&MERGED[..], &INSTALLED, &[Deploy(2)]].concat(),
    };
    let states = [
        vec![Sync(which)],
        vec![Sync(which), Begin(which), Sync(which)],
        vec![Deploy(which)],
        vec![Deploy(which), Begin(which), End(which, false), Sync(which)],
    ];
    let seen = [WatchBut(0, outdated), Reconcile(0)];
    for state in states {
        upgraded(&[&before, &state, &seen, &seen]);
    }
}

/// The cached PackageInstall or App requests the same values as the current one, and was deployed before the current one.
#[rstest]
fn no_gate_opens_by_a_cache_from_before_two_edits(
    #[values("packageinstalls", "apps")] outdated: &'static str,
) {
    let seen = [WatchBut(0, outdated), Reconcile(0)];
    let seen_values = WatchKind(0, Server::Management, "secrets");
    let edited = [
        Watch(0),
        User(Edit::Values(2)),
        seen_values,
        Reconcile(0),
        Deploy(1),
    ];
    let back = [&[User(Edit::Values(1))], &seen[..], &[Sync(1)]].concat();
    upgraded(&[&MERGED, &INSTALLED, &DEPLOYED, &edited, &seen, &back, &seen]);
}

/// One cache of the replica lags during the upgrade, and also shows earlier states again.
#[rstest]
fn a_cache_of_the_replica_that_lags_delays_an_upgrade(
    #[values(
        "clusters",
        "clusterbootstraps",
        "tanzukubernetesreleases",
        "clusterbootstraptemplates",
        "clusterclasses"
    )]
    kind: &'static str,
) {
    let call = ClusterApi(Reading::AtOnce);
    let lags = [ReplicaLags(kind), User(Edit::Target(1)), Round, Round, Round];
    let edited = [User(Edit::OtherRelease), Round, ReplicaKind(kind, 0), call];
    let earlier = [ReplicaKind(kind, 8), call, ReplicaKind(kind, 64), call, Round];
    upgraded(&[&lags, &edited, &earlier, &[Replica, call]]);
}

/// Packages keep their names and content, so kapp-controller deploys them again only for each version of the API server.
#[rstest]
#[case::of_the_target(&[User(Edit::SameRelease), User(Edit::Version(1))])]
#[case::of_the_first_hop(&[User(Edit::SameRelease), User(Edit::NoRelease(1)), User(Edit::Target(2))])]
fn a_release_with_the_same_packages_is_an_upgrade(
    #[case] edits: &[Step],
    #[values(PlannedBy::Nobody, PlannedBy::Class, PlannedBy::Extension)] planned_by: PlannedBy,
) {
    let mut walk = Walk::new();
    walk.take(&[User(Edit::Steps(planned_by))]);
    walk.take(&CREATED);
    walk.take(edits);
    walk.take(&[Round; 24]);
    let record = record(&walk.servers).expect("a record");
    let workers = version_at(&walk.servers, &worker(), "status");
    assert_eq!(
        (record.outcome, record.to.as_str()),
        (Some(Outcome::Completed), VERSIONS[workers]),
        "{}",
        brief(Some(&record))
    );
    assert!(workers > 0, "{}", brief(Some(&record)));
    walk.calm();
    walk.finish();
}

/// Packages are uninstalled before the infrastructure of a Cluster goes, also if the workload does not respond meanwhile.
#[rstest]
#[case::at_once(&[User(Edit::Delete)])]
#[case::while_silent(&[
    User(Edit::Silent(true)), User(Edit::Delete), Watch(0), Reconcile(0), Replica, ClusterApi(Reading::AtOnce), User(Edit::Silent(false)),
])]
#[case::during_an_upgrade(&[User(Edit::Target(1)), Round, Round, User(Edit::Delete)])]
fn a_deletion_waits_for_its_packages(#[case] steps: &[Step]) {
    let mut walk = Walk::new();
    walk.take(&[&CREATED[..], steps, &SEEN].concat());
    let leaving = walk.servers.get(&additional()).expect("a PackageInstall");
    assert!(!leaving["metadata"]["deletionTimestamp"].is_null(), "{leaving}");
    walk.take(&[Replica, ClusterApi(Reading::AtOnce), Sync(2)]);
    assert!(walk.servers.get(&additional()).is_none(), "it is uninstalled");
    walk.finish();
}

/// kapp-controller is neither installed nor part of the proof.
#[rstest]
#[case::own_server(&[User(Edit::OfManagement)])]
#[case::own_server_with_label(&[User(Edit::OfManagement), User(Edit::ManagementLabel(true))])]
#[case::label(&[User(Edit::ByHand), User(Edit::ManagementLabel(true))])]
fn a_management_cluster_is_upgraded_without_its_kapp_controller(#[case] steps: &[Step]) {
    let mut walk = Walk::new();
    walk.take(steps);
    walk.take(&CREATED);
    walk.take(&[User(Edit::Target(2)), Round, Calm]);
    walk.finish();
    let record = record(&walk.servers).expect("a record");
    assert_eq!(record.kapp_controller, Some(KappControllerMode::Unmanaged));
    let names: Vec<&str> = record
        .packages
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    assert_eq!(names, ["antrea", "metrics"]);
    let install = walk.servers.get(&of_package(0, "packageinstalls"));
    assert_eq!(install, None, "it is never installed");
}

/// kapp-controller of another client is not replaced, and the packages are not uninstalled by a deletion.
#[rstest]
fn a_removed_label_changes_nothing(#[values(false, true)] is_deleted: bool) {
    let mut walk = Walk::new();
    walk.take(&[User(Edit::ByHand), User(Edit::ManagementLabel(true))]);
    walk.take(&CREATED);
    walk.take(&[User(Edit::ManagementLabel(false)), Round]);
    let change = if is_deleted { Edit::Delete } else { Edit::Target(2) };
    walk.take(&[User(change), Round]);
    walk.finish();
    assert_eq!(walk.servers.get(&of_package(0, "packageinstalls")), None);
    let stays = walk.servers.get(&additional()).expect("a PackageInstall");
    assert!(stays["metadata"]["deletionTimestamp"].is_null(), "{stays}");
}

#[rstest]
#[case::own_server(&[User(Edit::OfManagement)])]
#[case::label(&[User(Edit::ByHand), User(Edit::ManagementLabel(true))])]
fn the_deletion_of_a_management_cluster_uninstalls_nothing(#[case] steps: &[Step]) {
    let mut walk = Walk::new();
    walk.take(steps);
    walk.take(&CREATED);
    walk.take(&[User(Edit::Delete), Watch(0), Reconcile(0)]);
    walk.finish();
    let stays = walk.servers.get(&additional()).expect("a PackageInstall");
    assert!(stays["metadata"]["deletionTimestamp"].is_null(), "{stays}");
}

/// The kubeconfig leads to the management API server, and later to a workload cluster again.
#[test]
fn a_cluster_that_comes_to_reach_the_management_cluster_holds() {
    let mut walk = Walk::new();
    walk.take(&CREATED);
    let before = record(&walk.servers).and_then(|record| record.workload_uid);
    walk.take(&[User(Edit::OfManagement), User(Edit::Target(1))]);
    walk.take(&[Round; 8]);
    walk.calm();
    let held = record(&walk.servers).expect("a record");
    assert_eq!(held.workload_uid, before);
    let gate = held
        .gates
        .iter()
        .find(|gate| gate.hook == Hook::BeforeClusterUpgrade && gate.version == VERSIONS[1] && !gate.open);
    let reason = gate.map(|gate| gate.reason.as_str());
    assert_eq!(reason, Some("ReachesManagementCluster"), "{}", brief(Some(&held)));
    assert_eq!(version_at(&walk.servers, &control_plane(), "spec"), 0);
    walk.step(User(Edit::ReplaceServer));
    walk.finish();
}

/// A user sets the label and deletes the PackageInstall during a hold.
#[rstest]
fn a_label_removes_no_proof(#[values(0, 1, 2, 3, 5, 8)] rounds: usize) {
    let mut walk = Walk::new();
    walk.take(&CREATED);
    walk.step(User(Edit::Target(2)));
    walk.take(&vec![Round; rounds]);
    walk.take(&[
        User(Edit::ManagementLabel(true)),
        User(Edit::Uninstall(0)),
        Round,
        Calm,
    ]);
    walk.finish();
    let record = record(&walk.servers).expect("a record");
    assert_eq!(record.kapp_controller, Some(KappControllerMode::Managed));
    walk.step(User(Edit::ManagementLabel(false)));
    walk.calm();
    walk.finish();
}

/// The record is lost, and a user sets the label and deletes the PackageInstall.
#[rstest]
#[case::status_lost(Edit::NoStatus)]
#[case::moved(Edit::Move)]
fn a_label_on_a_cluster_without_record_holds(#[case] lost: Edit) {
    let mut walk = Walk::new();
    walk.take(&CREATED);
    walk.take(&[
        User(lost),
        User(Edit::ManagementLabel(true)),
        User(Edit::Uninstall(0)),
        User(Edit::Target(1)),
    ]);
    walk.take(&[Round; 8]);
    walk.calm();
    let held = record(&walk.servers).expect("a record");
    assert_eq!((held.workload_uid.as_ref(), held.kapp_controller), (None, None));
    let gate = held
        .gates
        .iter()
        .find(|gate| gate.hook == Hook::BeforeClusterUpgrade && gate.version == VERSIONS[1] && !gate.open);
    let reason = gate.map(|gate| gate.reason.as_str());
    assert_eq!(reason, Some("ManagementLabelUnproven"), "{}", brief(Some(&held)));
    assert_eq!(version_at(&walk.servers, &control_plane(), "spec"), 0);
    walk.step(User(Edit::ManagementLabel(false)));
    walk.finish();
    let install = walk.servers.get(&of_package(0, "packageinstalls"));
    assert!(install.is_some(), "it is installed again");
}

/// Nothing is installed before Sluice can tell whether the Cluster is the management cluster.
#[rstest]
#[case::workload(false)]
#[case::management(true)]
fn a_new_cluster_waits_for_the_uid_of_the_management_cluster(#[case] is_own: bool) {
    let mut walk = Walk::new();
    if is_own {
        walk.step(User(Edit::OfManagement));
    }
    walk.step(User(Edit::ManagementUnread(true)));
    walk.take(&CREATED);
    for package in PACKAGES {
        let install = walk.servers.get(&of_package(package, "packageinstalls"));
        assert_eq!(install, None);
    }
    walk.step(User(Edit::ManagementUnread(false)));
    walk.finish();
    let install = walk.servers.get(&of_package(0, "packageinstalls"));
    assert_eq!(install.is_some(), !is_own);
}

/// A restarted leader cannot read the UID, but knows the workload cluster.
#[test]
fn a_known_cluster_is_upgraded_without_the_uid_of_the_management_cluster() {
    let mut walk = Walk::new();
    walk.take(&CREATED);
    walk.take(&[Crash(0), User(Edit::ManagementUnread(true))]);
    walk.finish();
}

/// The release of a step is deleted, and another one of its version is left.
#[test]
fn a_step_takes_the_only_release_that_is_left() {
    let mut walk = Walk::new();
    walk.step(User(Edit::Steps(PlannedBy::Extension)));
    walk.take(&[
        User(Edit::OtherRelease),
        User(Edit::Target(2)),
        User(Edit::NoRelease(1)),
    ]);
    walk.take(&CREATED);
    walk.calm();
    walk.finish();
    walk.drift();
}

/// kapp-controller is deployed, and the ClusterBootstrap of the new Cluster is created only after that.
#[test]
fn a_recreated_cluster_whose_bootstrap_comes_later_gets_its_packages() {
    let mut walk = Walk::new();
    walk.step(User(Edit::Steps(PlannedBy::Class)));
    walk.take(&[
        User(Edit::Target(2)),
        Watch(0),
        User(Edit::Again),
        Round,
        Watch(0),
    ]);
    walk.take(&[Lead(0, Fault::None), User(Edit::Content(0, 2, "b"))]);
    walk.calm();
    walk.finish();
    walk.drift();
}

/// Two minor versions, with every source of their steps but Sluice. `disturbance` happens after every fourth number of rounds: `SEED` 0
/// to 3 together cover all.
#[rstest]
#[case::nothing(&[])]
#[case::values(&[User(Edit::Values(2))])]
#[case::another_release(&[User(Edit::OtherRelease)])]
#[case::release_with_the_same_packages(&[User(Edit::SameRelease)])]
#[case::no_label(&[User(Edit::NoLabel), Round, Calm])]
#[case::target_back_and_forth(&[
    User(Edit::UnsafeVersion(0)), Round, User(Edit::Label(0)), Round, User(Edit::UnsafeVersion(1)), Round, User(Edit::Label(1)),
])]
#[case::rolled_back(&[User(Edit::OnCancel(true)), User(Edit::Cancel), Round, Round, Round, Calm])]
#[case::rolled_back_and_cancelled_again(&[
    User(Edit::OnCancel(true)), User(Edit::Cancel), Round, User(Edit::Target(2)), Round, User(Edit::Cancel), Round, Round,
])]
#[case::cancelled_too_late(&[
    User(Edit::OnCancel(true)), Replica, BeginClusterApi(Reading::AtOnce), User(Edit::Cancel), Watch(0), Reconcile(0), Round, Round,
])]
#[case::target_at_the_first_minor(&[User(Edit::UnsafeVersion(1)), Round, User(Edit::Label(1)), Round])]
#[case::target_below_the_control_plane(&[User(Edit::UnsafeVersion(0)), Calm, Round, User(Edit::Label(0)), Calm])]
#[case::paused_cluster(&[User(Edit::Pause(Paused::Cluster)), Round, Calm, User(Edit::Resume(Paused::Cluster))])]
#[case::paused_bootstrap(&[User(Edit::Pause(Paused::Bootstrap)), Round, Calm, User(Edit::Resume(Paused::Bootstrap))])]
#[case::start_held(&[User(Edit::Pause(Paused::Start)), Round, Calm, User(Edit::Resume(Paused::Start))])]
#[case::old_manifest(&[User(Edit::OldManifest), Round])]
#[case::old_manifest_without_mark(&[User(Edit::OldManifest), User(Edit::NoMark), Round])]
#[case::merge_that_fails(&[User(Edit::NoPackage(1, 1)), Round, User(Edit::NoMark), Round, User(Edit::NoStatus), Round, Calm])]
#[case::no_status(&[User(Edit::NoStatus)])]
#[case::no_bootstrap(&[User(Edit::NoBootstrap)])]
#[case::moved(&[User(Edit::Move)])]
#[case::moved_with_another_release(&[User(Edit::Move), User(Edit::OtherRelease)])]
#[case::recreated(&[User(Edit::Again)])]
#[case::recreated_without_bootstrap(&[User(Edit::Again), User(Edit::NoBootstrap)])]
#[case::deleted(&[User(Edit::Delete)])]
#[case::deleted_while_silent(&[User(Edit::Silent(true)), User(Edit::Delete), Round])]
#[case::deleted_without_bootstrap(&[User(Edit::Delete), Round, User(Edit::NoBootstrap)])]
#[case::silent(&[User(Edit::Silent(true)), Round, Round])]
#[case::silent_for_long(&[User(Edit::Silent(true)), Round, Wait(61), Round, Calm])]
#[case::never_answered(&[User(Edit::Silent(true)), Crash(0), Round, Wait(61), Round, Calm])]
#[case::swapped(&[Swap, Round])]
#[case::swapped_with_its_kubeconfig(&[Swap, User(Edit::Kubeconfig("other")), Round, Calm])]
#[case::redirected(&[Redirect, Round, Calm])]
#[case::swapped_there_and_back(&[Swap, Round, Round, Swap])]
#[case::stopped(&[
    User(Edit::Stop(1, "packageinstalls", "canceled")), Round, User(Edit::Stop(1, "apps", "paused")), Round, Calm,
])]
#[case::stopped_kapp_controller(&[User(Edit::Stop(0, "packageinstalls", "paused")), User(Edit::Values(2)), Round, Calm])]
#[case::two_leaders(&[Watch(1), Round, Reconcile(1), Round, Watch(1), Lead(1, Fault::None), Lead(1, Fault::OneWrite), Round, Reconcile(1)])]
#[case::two_replicas(&[Replica, OtherReplica, ClusterApi(Reading::AtOnce), Round, OtherReplica, ClusterApi(Reading::AtOnce)])]
#[case::calls_that_wait(&[ClusterApi(Reading::Fails), User(Edit::UnsafeVersion(1)), ClusterApi(Reading::Late), Round])]
fn a_disturbance_at_any_time_delays_an_upgrade(
    #[case] disturbance: &[Step],
    #[values(PlannedBy::Nobody, PlannedBy::Class, PlannedBy::Extension)] planned_by: PlannedBy,
) {
    disturb(disturbance, planned_by);
}

/// Several disturbances, with one source of the steps by `SEED`: 0 to 19 together cover all numbers of rounds and all sources.
#[rstest]
#[case::failed_run_and_values(&[
    Begin(1), End(1, false), User(Edit::Values(2)), Watch(0), Reconcile(0), Sync(1), Begin(1), End(1, false), Round,
])]
#[case::failed_run_and_another_release(&[
    Begin(1), End(1, false), User(Edit::OtherRelease), ReplicaKind("clusterbootstraps", 8), ClusterApi(Reading::AtOnce), Round,
])]
#[case::failed_run_and_no_label(&[User(Edit::NoLabel), Begin(1), End(1, false), Round, User(Edit::SameRelease), Round])]
#[case::failed_run_and_no_status(&[Begin(1), End(1, false), User(Edit::NoStatus), Round])]
#[case::failed_run_and_move(&[Begin(1), End(1, false), User(Edit::Move), Round])]
#[case::failed_run_and_swap(&[Begin(1), End(1, false), Swap, Round, Begin(1), End(1, false), Swap])]
#[case::failed_run_and_two_leaders(&[
    Watch(1), Lead(1, Fault::None), Begin(1), End(1, false), Lead(1, Fault::None), Round, Reconcile(1),
])]
#[case::resync_and_values(&[Begin(1), User(Edit::Values(2)), Watch(0), Reconcile(0), Sync(1), End(1, true), Begin(1), Round])]
#[case::two_leaders_and_edits(&[
    Watch(1), Lead(1, Fault::None), User(Edit::Values(2)), Round, Lead(1, Fault::OneWrite), User(Edit::OtherRelease), Watch(1),
    Lead(1, Fault::None), Round, User(Edit::OldManifest), Reconcile(1), Round,
])]
#[case::two_leaders_and_targets(&[
    Watch(1), Lead(1, Fault::None), User(Edit::UnsafeVersion(1)), User(Edit::Label(1)), Round, Reconcile(1), User(Edit::UnsafeVersion(2)),
    Watch(1), Lead(1, Fault::None), User(Edit::Label(2)), Round, Reconcile(1),
])]
#[case::silent_twice(&[
    User(Edit::Silent(true)), Round, User(Edit::Silent(false)), Round, User(Edit::Silent(true)), Wait(61), Calm, User(Edit::Silent(false)),
    Round,
])]
#[case::start_held_twice(&[
    User(Edit::Pause(Paused::Start)), Round, User(Edit::Resume(Paused::Start)), Round, User(Edit::Pause(Paused::Start)), Round,
])]
#[case::merge_that_fails_for_a_while(&[
    User(Edit::NoPackage(1, 1)), Round, Round, User(Edit::RestoreCatalogue), Round, User(Edit::NoMark), Round, User(Edit::NoStatus), Round,
])]
#[case::release_that_is_missing_for_a_while(&[
    User(Edit::NoRelease(1)), User(Edit::NoTemplate(1)), Round, Calm, User(Edit::RestoreCatalogue), Round,
])]
#[case::recreated_before_a_replica_observes_it(&[ReplicaLags("clusterbootstraps"), User(Edit::Again), Round, Round])]
#[case::retry_delays(&[
    RetryAfterRound, ClusterApi(Reading::AtOnce), ClusterApi(Reading::AtOnce), User(Edit::UnsafeVersion(1)), ClusterApi(Reading::AtOnce), Round,
])]
fn combined_disturbances_delay_an_upgrade(#[case] disturbance: &[Step]) {
    let sources = [
        PlannedBy::Class,
        PlannedBy::Extension,
        PlannedBy::Nobody,
        PlannedBy::Sluice { shown: true },
        PlannedBy::Sluice { shown: false },
    ];
    disturb(disturbance, sources[number("SEED", 0_usize) / 4 % sources.len()]);
}

fn disturb(disturbance: &[Step], planned_by: PlannedBy) {
    for rounds in (number("SEED", 0_usize) % 4..16).step_by(4) {
        let mut walk = Walk::new();
        walk.take(&[User(Edit::Steps(planned_by))]);
        walk.take(&CREATED);
        walk.take(&[Duplicate, User(Edit::Target(2))]);
        walk.take(&[Round].repeat(rounds));
        walk.take(disturbance);
        walk.calm();
        walk.finish();
    }
}

/// The packages of the earlier release are still deployed, and the annotation already names the next one.
#[test]
fn an_old_manifest_right_after_the_merge_holds() {
    let is_merged = |walk: &Walk| {
        let bootstrap = walk.servers.get(&bootstrap());
        bootstrap.is_some_and(|bootstrap| bootstrap["spec"]["cni"]["refName"] == package_name(1, 1))
    };
    let mut walk = Walk::new();
    walk.take(&CREATED);
    walk.take(&[User(Edit::Target(1)), Watch(0)]);
    while !is_merged(&walk) {
        walk.step(Lead(0, Fault::OneWrite));
    }
    walk.take(&[Crash(0), User(Edit::OldManifest)]);
    walk.take(&[&SEEN[..], &SEEN, &TAKEN].concat());
    walk.calm();
    walk.finish();
}

/// Cluster API makes no step to such a target.
#[test]
fn a_target_below_the_control_plane_changes_no_packages() {
    let parts = |walk: &Walk| {
        let bootstrap = walk.servers.get(&bootstrap()).expect("a ClusterBootstrap");
        [
            bootstrap["metadata"]["annotations"].clone(),
            bootstrap["spec"].clone(),
        ]
    };
    let mut walk = Walk::new();
    walk.take(&CREATED);
    walk.take(&[&OPEN.concat()[..], &TAKEN, &SEEN].concat());
    let before = parts(&walk);
    walk.take(&[User(Edit::UnsafeVersion(0)), User(Edit::Label(0))]);
    walk.take(&[&SEEN[..], &SEEN].concat());
    assert_eq!(parts(&walk), before);
    walk.calm();
    walk.finish();
}

/// kapp-controller deploys its own package on another API server, and the first one still has the package.
#[test]
fn an_api_server_that_comes_back_has_its_deployments() {
    let policy = [
        User(Edit::OnCancel(true)),
        User(Edit::Policy(0, "onCancel", "Keep")),
    ];
    let first = [User(Edit::Target(1)), Round, Round, Round];
    let cancelled = [Duplicate, User(Edit::Target(2)), Round, User(Edit::Target(1))];
    upgraded(&[
        &policy,
        &first,
        &cancelled,
        &[Round, Round, Round, Swap, Round, Swap],
    ]);
}

/// Packages that stay would count as those of the release that the record names.
#[test]
fn a_rollback_that_has_begun_continues_without_its_policy() {
    let begun = [User(Edit::OnCancel(true)), User(Edit::Target(1)), Round];
    let cancelled = [User(Edit::Cancel), Round, Round];
    upgraded(&[&begun, &cancelled, &[User(Edit::OnCancel(false))]]);
}

/// The control plane has the version, so its packages stay at those of the cancelled release until a user raises them.
#[test]
fn a_cancelled_release_with_lower_packages_waits_for_a_user() {
    let mut walk = Walk::new();
    walk.take(&[User(Edit::Steps(PlannedBy::Class)), User(Edit::Target(1))]);
    walk.take(&[Round, Round, Round, User(Edit::SameRelease)]);
    walk.calm();
    walk.finish();
}

/// No gate of the target opens before the label names one of its releases.
#[test]
fn a_version_before_its_label_holds() {
    let version = [User(Edit::Version(1)), Watch(0), Reconcile(0)];
    upgraded(&[&version, &INSTALLED, &DEPLOYED, &SEEN, &TAKEN]);
}
