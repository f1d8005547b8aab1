//! Walks with a planted defect.

use std::panic::{UnwindSafe, catch_unwind};

use rstest::rstest;
use sluice_core::reconcile::cluster::Server;

use crate::{
    defect::Defect,
    fault::Fault,
    named::{CREATED, DEPLOYED, INSTALLED, MERGED, SEEN},
    objects::{SYSTEM, of_package, values_source},
    replica::Reading,
    servers::place,
    users::{Edit, Paused},
    walk::{
        Step::{self, *},
        Walk,
    },
};

/// The gates before the control plane are open, and the cache of the replica shows them.
pub(crate) const OPEN: [&[Step]; 5] = [&MERGED, &INSTALLED, &DEPLOYED, &SEEN, &[Replica]];

/// The gates close, and the cache of the replica does not show it.
const CLOSED: [Step; 3] = [User(Edit::Content(1, 1, "b")), Watch(0), Reconcile(0)];

/// The upgrade completes, the API servers go back to before it, and the Cluster is upgraded again. The leader observes everything but
/// the control plane.
pub(crate) const RESTORED: [Step; 18] = [
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

/// kapp-controller and the last package are deployed, and the App of the CNI has changed.
const CHANGED: [&[Step]; 4] = [&MERGED, &INSTALLED, &[Deploy(2), Sync(1)], &SEEN];

/// The PackageInstall of the CNI has its earlier values again, the cached App is from before both edits, and the deployed values are
/// those between them.
const EDITED_TWICE: [&[Step]; 4] = [
    &MERGED,
    &INSTALLED,
    &DEPLOYED,
    &[
        Watch(0),
        User(Edit::Values(2)),
        WatchKind(0, Server::Management, "secrets"),
        Reconcile(0),
        Deploy(1),
        User(Edit::Values(1)),
        WatchBut(0, "apps"),
        Reconcile(0),
        Sync(1),
        WatchBut(0, "apps"),
        Reconcile(0),
    ],
];

/// A frozen process has sent a write of the PackageInstall of the CNI, and another process has changed the PackageInstall since.
pub(crate) const LATE: [&[Step]; 9] = [
    &MERGED,
    &INSTALLED,
    &[User(Edit::Install(1, "values")), Watch(0)],
    &[Lead(0, Fault::Frozen); 12],
    &[Crash(0), Watch(0), Reconcile(0), User(Edit::Values(2))],
    &SEEN,
    &SEEN,
    &DEPLOYED,
    &SEEN,
];

/// The CNI is deployed, its values source is edited, and the metadata watch of the leader has lost the event.
const LOST: [&[Step]; 4] = [
    &MERGED,
    &INSTALLED,
    &DEPLOYED,
    &[
        Watch(0),
        User(Edit::Values(2)),
        WatchBut(0, "secrets"),
        Reconcile(0),
    ],
];

/// A user edits the PackageInstall of the CNI, whose values source was created again with other values. The leader observes both.
const RECREATED: [&[Step]; 4] = [
    &MERGED,
    &INSTALLED,
    &DEPLOYED,
    &[
        User(Edit::Install(1, "values")),
        User(Edit::RecreatedValues(2)),
        Watch(0),
        Reconcile(0),
    ],
];

const CALL: [Step; 2] = [Replica, ClusterApi(Reading::AtOnce)];

/// Each planted defect fails one walk by the name of its invariant, and that walk passes without it.
#[rstest]
#[case::no_read(Defect::Unconfirmed, &[&OPEN.concat()[..], &CLOSED, &[ClusterApi(Reading::AtOnce)]].concat(), "stale: ")]
#[case::cached_read(Defect::ConfirmedByCache, &[&OPEN.concat()[..], &CLOSED, &[ClusterApi(Reading::AtOnce)]].concat(), "stale: ")]
#[case::cached_read_of_an_earlier_record(
    Defect::ConfirmedByCache,
    &[&OPEN.concat()[..], &CLOSED, &[Replica, ReplicaKind("clusterbootstraps", 2), ClusterApi(Reading::AtOnce)]].concat(),
    "stale: "
)]
#[case::shared_read(Defect::SharedTooLate, &[&OPEN.concat()[..], &[AnotherCall], &CLOSED, &[ClusterApi(Reading::AtOnce)]].concat(), "stale: ")]
#[case::edit_of_the_cluster(
    Defect::GenerationUnseen,
    &[&OPEN.concat()[..], &[User(Edit::Unimportant)], &CALL].concat(),
    "stale: "
)]
#[case::another_label(Defect::LabelUnseen, &[&OPEN.concat()[..], &[User(Edit::OtherRelease)], &CALL].concat(), "stale: ")]
#[case::edit_of_the_bootstrap(
    Defect::BootstrapEditUnseen,
    &[&OPEN.concat()[..], &[User(Edit::Choose(1, 0))], &CALL].concat(),
    "stale: "
)]
#[case::earlier_cluster(
    Defect::EarlierClusterUnseen,
    &[
        &OPEN.concat()[..],
        &[User(Edit::UnsafeVersion(0)), User(Edit::Label(0)), User(Edit::Again), User(Edit::Target(1))],
        &CALL,
    ]
    .concat(),
    "stale: "
)]
#[case::control_plane_not_read(Defect::ControlPlaneUnread, &RESTORED, "early: ")]
#[case::cluster_not_read(
    Defect::ClusterUnread,
    &[&MERGED[..], &INSTALLED, &DEPLOYED, &[Watch(0), User(Edit::Label(2)), Reconcile(0)]].concat(),
    "outdated: "
)]
#[case::packages_not_read(
    Defect::PackagesUnread,
    &[&MERGED[..], &INSTALLED, &DEPLOYED, &[Watch(0), Begin(1), End(1, false), Reconcile(0)]].concat(),
    "early: "
)]
#[case::app_not_read(Defect::PackagesUnread, &EDITED_TWICE.concat(), "early: ")]
#[case::values_not_read(Defect::ValuesUnread, &LOST.concat(), "early: ")]
#[case::server_not_read(
    Defect::ServerUnread,
    &[&MERGED[..], &INSTALLED, &DEPLOYED, &[Duplicate, Watch(0), Swap, Reconcile(0)]].concat(),
    "early: "
)]
#[case::kubeconfig_not_read(
    Defect::KubeconfigUnread,
    // The kubeconfig was read a moment ago.
    &[&MERGED[..], &INSTALLED, &[Wait(9)], &SEEN, &DEPLOYED, &[Duplicate, Watch(0), Redirect, Reconcile(0)]].concat(),
    "early: "
)]
#[case::paused_cluster(Defect::PauseUnseen, &[&[User(Edit::Pause(Paused::Cluster))][..], &MERGED, &SEEN].concat(), "paused: ")]
#[case::paused_bootstrap(Defect::PauseUnseen, &[&[User(Edit::Pause(Paused::Bootstrap))][..], &MERGED, &SEEN].concat(), "paused: ")]
#[case::start_held(Defect::PauseUnseen, &[&[User(Edit::Pause(Paused::Start))][..], &MERGED, &SEEN].concat(), "paused: ")]
#[case::deleted_cluster(Defect::DeletionUnseen, &[&[User(Edit::Delete)][..], &MERGED, &SEEN].concat(), "paused: ")]
#[case::rollout(
    Defect::RolloutUnseen,
    &[&OPEN.concat()[..], &CALL, &SEEN, &INSTALLED, &DEPLOYED, &SEEN, &SEEN].concat(),
    "early: "
)]
#[case::changed_app(Defect::ChangeUnseen, &CHANGED.concat(), "early: ")]
#[case::changed_kapp_controller(Defect::ChangeUnseen, &[&MERGED[..], &[Sync(0)], &SEEN].concat(), "order: ")]
#[case::run_in_progress(Defect::RunUnseen, &[&CHANGED.concat()[..], &[Begin(1), Sync(1)], &SEEN].concat(), "early: ")]
#[case::failed_run(
    Defect::FailureUnseen,
    &[&OPEN.concat()[..], &[Begin(1), End(1, false), Begin(1), Calm]].concat(),
    "open: "
)]
#[case::stopped_kapp_controller(
    Defect::StopUnseen,
    &[&MERGED[..], &[Deploy(0), User(Edit::Stop(0, "packageinstalls", "paused")), Sync(0), Begin(0)], &SEEN].concat(),
    "order: "
)]
#[case::nothing_to_uninstall(
    Defect::InstallsUnlisted,
    &[&[User(Edit::Delete)][..], &SEEN, &CALL].concat(),
    "deleted: "
)]
#[case::silence(Defect::SilenceUnseen, &[&OPEN.concat()[..], &[User(Edit::Silent(true)), Calm]].concat(), "open: ")]
#[case::earlier_stage(
    Defect::StageUnseen,
    &[&OPEN.concat()[..], &CALL, &[Roll], &SEEN, &SEEN, &SEEN, &SEEN].concat(),
    "early: "
)]
#[case::label_instead_of_a_proof(
    Defect::InstallerUnseen,
    &[&MERGED[..], &[User(Edit::ManagementLabel(true)), User(Edit::Uninstall(0))], &SEEN].concat(),
    "order: "
)]
#[case::precondition(Defect::PreconditionIgnored, &[&LATE.concat()[..], &[Arrive]].concat(), "late: ")]
fn a_planted_defect_is_found(#[case] defect: Defect, #[case] steps: &[Step], #[case] invariant: &str) {
    let run = |defect: Option<Defect>| {
        let mut walk = Walk::new();
        walk.plant(defect);
        walk.take(&CREATED);
        walk.take(steps);
        walk
    };
    assert_is_found(|| run(Some(defect)), invariant);
    let mut walk = run(None);
    walk.calm();
    walk.finish();
}

/// The confirming reads find the edit, and the next reconcile reads the values again although the watch does not show it.
#[test]
fn a_lost_event_of_a_values_source_delays_its_edit() {
    let mut walk = Walk::new();
    walk.take(&CREATED);
    walk.take(&LOST.concat());
    walk.take(&[WatchBut(0, "secrets"), Reconcile(0)]);
    assert_requested(&walk);
    walk.calm();
    walk.finish();
}

#[test]
fn a_recreated_values_source_that_is_not_read_is_found() {
    let run = |defect: Option<Defect>| {
        let mut walk = Walk::new();
        walk.plant(defect);
        walk.take(&CREATED);
        walk.take(&RECREATED.concat());
        assert_requested(&walk);
        walk
    };
    assert_is_found(|| run(Some(Defect::RecreationUnseen)), "values: ");
    let mut walk = run(None);
    walk.calm();
    walk.finish();
}

/// Asserts that the PackageInstall of the CNI names a Secret with the current values.
fn assert_requested(walk: &Walk) {
    let data = |place| walk.servers.get(&place).map(|secret| &secret["data"]);
    let install = walk.servers.get(&of_package(1, "packageinstalls"));
    let install = install.expect("a PackageInstall");
    let secret = install["spec"]["values"][0]["secretRef"]["name"].as_str();
    let secret = place(Server::Workload, "secrets", SYSTEM, secret.unwrap_or_default());
    let (requested, current) = (data(secret), data(values_source()));
    assert!(
        requested == current,
        "values: the PackageInstall requests {requested:?} instead of {current:?}"
    );
}

/// kapp-controller of the management cluster deploys the packages of all Clusters.
#[rstest]
#[case::without_label(&[User(Edit::OfManagement)])]
#[case::with_label(&[User(Edit::OfManagement), User(Edit::ManagementLabel(true))])]
#[case::label_removed(&[
    User(Edit::ManagementLabel(true)), User(Edit::OfManagement), Round, Round, User(Edit::ManagementLabel(false)),
])]
fn an_install_over_itself_is_found(#[case] steps: &[Step]) {
    let run = |defect: Option<Defect>| {
        let mut walk = Walk::new();
        walk.plant(defect);
        walk.take(steps);
        walk.take(&CREATED);
        walk
    };
    assert_is_found(|| run(Some(Defect::OwnServerUnseen)), "itself: ");
    let mut walk = run(None);
    walk.calm();
    walk.finish();
}

/// Asserts that a walk with a planted defect violates this invariant.
pub(crate) fn assert_is_found<T>(walk: impl FnOnce() -> T + UnwindSafe, invariant: &str) {
    let found = catch_unwind(walk).err().expect("the defect is not found");
    let found = found.downcast_ref::<String>().expect("a message");
    assert!(found.starts_with(invariant), "{found}");
}
