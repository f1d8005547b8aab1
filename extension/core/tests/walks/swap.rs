//! Walks in which machines of one release are replaced by those of another one of their Kubernetes version.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rstest::rstest;
use serde_json::Value;
use sluice_crds::run::{self, Gate, Hook, Outcome, UpgradeRecord};

use crate::{
    capi::{brief, record, version_at},
    defect::Defect,
    fault::Fault,
    machines::{made_of, pinned, reference},
    named::{CREATED, DEPLOYED, INSTALLED, SEEN},
    objects::{
        HIGHER_RELEASE, HIGHEST_RELEASE, OTHER_RELEASE, PlannedBy, REBUILT_RELEASE, RELEASES, VERSIONS,
        bootstrap, control_plane, package_name, packages_of,
    },
    planted::assert_is_found,
    random::number,
    replica::Reading,
    users::{Edit, Paused},
    walk::{
        Step::{self, *},
        Walk,
    },
};

/// The label names the higher release, and its packages are merged into the ClusterBootstrap.
const LABELLED: [Step; 3] = [User(Edit::Label(HIGHER_RELEASE)), Watch(0), Reconcile(0)];

/// The same in a list.
const MERGED: [&[Step]; 1] = [&LABELLED];

/// A run of the CNI is in progress.
const DEPLOYING: [&[Step]; 3] = [&LABELLED, &INSTALLED, &[Sync(1), Begin(1)]];

/// All packages of the higher release are deployed, and the leader has not observed it.
const PROVEN: [&[Step]; 3] = [&LABELLED, &INSTALLED, &DEPLOYED];

/// The leader has written the entries of the higher release, and has observed them.
const WRITTEN: [&[Step]; 6] = [&LABELLED, &INSTALLED, &DEPLOYED, &SEEN, &SEEN, &SEEN];

const CLUSTER_API: Step = ClusterApi(Reading::AtOnce);

/// Index of the range without the first version.
const WITHOUT_FIRST: usize = 1;

/// Limit of the steps of a leader between the last deployment and the entries.
const STEPS: usize = 80;

/// Every component but kapp-controller acts twice, and refused writes may be repeated.
const HELD: [Step; 12] = [
    Watch(0),
    Reconcile(0),
    Replica,
    CLUSTER_API,
    Roll,
    Wait(40),
    Watch(0),
    Reconcile(0),
    Replica,
    CLUSTER_API,
    Roll,
    Wait(40),
];

/// Returns a walk with a Cluster that these steps follow.
fn walked(steps: &[Step]) -> Walk {
    let mut walk = Walk::with_images();
    walk.take(&CREATED);
    walk.take(steps);
    walk
}

fn recorded(walk: &Walk) -> UpgradeRecord {
    record(&walk.servers).expect("a record")
}

fn swap(walk: &Walk) -> run::Swap {
    let record = recorded(walk);
    let swap = record.swap.clone();
    swap.unwrap_or_else(|| panic!("no swap in {}", brief(Some(&record))))
}

/// Returns the Package of the CNI in the ClusterBootstrap.
fn cni(walk: &Walk) -> &Value {
    let bootstrap = walk.servers.get(&bootstrap()).expect("a ClusterBootstrap");
    &bootstrap["spec"]["cni"]["refName"]
}

/// Asserts that entries of these releases were written, in this order, and that machines were made of them and of no others.
fn assert_written(walk: &Walk, releases: &[usize]) {
    assert_eq!(
        walk.swaps.written,
        releases,
        "{}",
        brief(record(&walk.servers).as_ref())
    );
    for (part, images) in walk.swaps.images.iter().enumerate() {
        let made_of = [0].iter().chain(releases);
        let wanted: Vec<Value> = made_of.map(|release| reference(*release, part, "a")).collect();
        assert_eq!(*images, wanted, "part {part}");
    }
}

/// Completes the swap, then an upgrade to the next Kubernetes version.
fn completed(mut walk: Walk, releases: &[usize]) {
    walk.calm();
    walk.finish_swap();
    assert_written(&walk, releases);
    walk.finish();
    walk.drift();
}

#[rstest]
#[case::with_later_packages(HIGHER_RELEASE)]
#[case::two_releases_later(HIGHEST_RELEASE)]
#[case::with_the_same_packages(REBUILT_RELEASE)]
fn machines_follow_the_label_to_a_higher_release(
    #[case] release: usize,
    #[values(PlannedBy::Nobody, PlannedBy::Class, PlannedBy::Extension)] planned_by: PlannedBy,
) {
    let mut walk = walked(&[User(Edit::Steps(planned_by)), Round, User(Edit::Label(release))]);
    walk.finish_swap();
    let record = recorded(&walk);
    let found = swap(&walk);
    assert_eq!(
        record.outcome,
        Some(Outcome::Completed),
        "{}",
        brief(Some(&record))
    );
    assert_eq!(
        (found.from.as_str(), found.to.as_str()),
        (RELEASES[0], RELEASES[release])
    );
    assert!(found.written_at.is_some(), "{found:?}");
    completed(walk, &[release]);
}

/// A status from before the entries, or of machines that are not replaced yet, is no evidence.
#[test]
fn a_swap_ends_when_all_machines_are_replaced() {
    let mut walk = walked(&WRITTEN.concat());
    let stages: [&[Step]; 5] = [&[], &[CLUSTER_API], &[Roll], &[Roll], &[Roll]];
    for stage in stages {
        walk.take(stage);
        walk.take(&[&SEEN[..], &[Wait(10)], &SEEN].concat());
        let (record, found) = (recorded(&walk), swap(&walk));
        assert_eq!(record.outcome, None, "after {stage:?}: {found:?}");
        assert_eq!(found.reason, "ReplacingMachines", "after {stage:?}: {found:?}");
        assert!(found.open && found.written_at.is_some(), "{found:?}");
    }
    completed(walk, &[HIGHER_RELEASE]);
}

/// The second release is never used.
#[rstest]
#[case::after_the_merge(&MERGED)]
#[case::while_packages_are_deployed(&DEPLOYING)]
#[case::before_the_last_proof(&PROVEN)]
fn a_label_that_moves_on_drops_the_swap(#[case] steps: &[&[Step]]) {
    let mut walk = walked(&steps.concat());
    walk.step(User(Edit::Label(HIGHEST_RELEASE)));
    completed(walk, &[HIGHEST_RELEASE]);
}

/// The swap has ended without a write of its machines.
fn assert_cancelled(walk: &Walk) {
    assert_written(walk, &[]);
    let record = recorded(walk);
    assert_eq!(
        record.outcome,
        Some(Outcome::Cancelled),
        "{}",
        brief(Some(&record))
    );
}

#[rstest]
#[case::after_the_merge(&MERGED)]
#[case::while_packages_are_deployed(&DEPLOYING)]
#[case::before_the_last_proof(&PROVEN)]
fn a_label_that_moves_back_cancels_the_swap(#[case] steps: &[&[Step]]) {
    let mut walk = walked(&steps.concat());
    walk.step(User(Edit::Label(0)));
    walk.finish_swap();
    assert_cancelled(&walk);
    let merged = package_name(1, packages_of(HIGHER_RELEASE));
    assert_eq!(*cni(&walk), merged, "packages are not lowered");
    // Another try.
    walk.step(User(Edit::Label(HIGHER_RELEASE)));
    walk.finish_swap();
    assert_written(&walk, &[HIGHER_RELEASE]);
    assert_eq!(recorded(&walk).outcome, Some(Outcome::Completed));
    walk.finish();
}

/// The release that machines are made of is deactivated meanwhile.
#[rstest]
#[case::after_the_merge(&MERGED)]
#[case::before_the_last_proof(&PROVEN)]
fn a_label_moves_back_to_a_deactivated_release(#[case] steps: &[&[Step]]) {
    let mut walk = walked(&steps.concat());
    walk.take(&[User(Edit::Deactivate(0, true)), User(Edit::Label(0))]);
    walk.take(&[Round; 6]);
    assert_cancelled(&walk);
    walk.finish();
}

/// Neither packages nor machines follow the label.
#[rstest]
#[case::deactivated(Edit::Deactivate(HIGHER_RELEASE, true), "TKRNotUsable")]
#[case::excluded(
    Edit::Constrain(1, packages_of(HIGHER_RELEASE), WITHOUT_FIRST),
    "PackageExcludesKubernetes"
)]
fn a_release_that_may_not_be_used_is_not_merged(#[case] edit: Edit, #[case] reason: &str) {
    let mut walk = walked(&[User(edit)]);
    walk.take(&LABELLED);
    let plan = walk.plan(None);
    let mut reasons = plan.findings.iter().map(|finding| finding.reason.as_str());
    assert!(
        plan.is_blocked() && reasons.any(|found| found == reason),
        "{plan:?}"
    );
    walk.take(&HELD);
    assert_written(&walk, &[]);
    assert_eq!(*cni(&walk), package_name(1, packages_of(0)));
    completed(walk, &[HIGHER_RELEASE]);
}

/// The way out of an image that does not boot.
#[rstest]
#[case::before_cluster_api_observes_it(&[])]
#[case::before_any_machine_is_replaced(&[CLUSTER_API])]
#[case::while_machines_are_replaced(&[CLUSTER_API, Roll, Roll])]
fn machines_that_roll_follow_a_still_higher_release(#[case] rolling: &[Step]) {
    let mut walk = walked(&WRITTEN.concat());
    walk.take(rolling);
    walk.step(User(Edit::Label(HIGHEST_RELEASE)));
    walk.calm();
    walk.finish_swap();
    assert_eq!(walk.swaps.written, [HIGHER_RELEASE, HIGHEST_RELEASE]);
    walk.finish();
}

/// The webhook refuses such a label, unless it is not called.
#[test]
fn a_lower_release_replaces_no_machines() {
    let mut walk = walked(&[User(Edit::Label(HIGHEST_RELEASE))]);
    walk.finish_swap();
    walk.step(User(Edit::UnsafeLabel(HIGHER_RELEASE)));
    walk.take(&[Round; 6]);
    assert_written(&walk, &[HIGHEST_RELEASE]);
    assert_eq!(*cni(&walk), package_name(1, packages_of(HIGHEST_RELEASE)));
    completed(walk, &[HIGHEST_RELEASE]);
}

#[rstest]
#[case::after_the_merge(&MERGED)]
#[case::before_the_last_proof(&PROVEN)]
fn another_kubernetes_version_drops_the_swap(#[case] steps: &[&[Step]]) {
    let mut walk = walked(&steps.concat());
    walk.step(User(Edit::Target(1)));
    walk.calm();
    walk.finish();
    let stays = (walk.swaps.written.is_empty(), pinned(&walk.servers, 0));
    assert_eq!(stays, (true, Some(0)), "the entry of the first version stays");
}

/// The release of an entry that machines are getting wins until they have it.
#[test]
fn a_swap_waits_for_an_upgrade() {
    let mut walk = walked(&[User(Edit::Target(1))]);
    for _ in 0..STEPS {
        if made_of(&walk.servers) == Some(1) {
            break;
        }
        walk.step(Round);
    }
    walk.step(User(Edit::OtherRelease));
    walk.take(&[&SEEN[..], &SEEN].concat());
    assert_eq!(recorded(&walk).tkr.as_deref(), Some(RELEASES[1]));
    walk.finish_swap();
    assert_eq!(walk.swaps.written, [OTHER_RELEASE]);
    walk.finish();
}

#[rstest]
fn a_pause_holds_the_swap(
    #[values(Paused::Cluster, Paused::Bootstrap, Paused::Start)] paused: Paused,
    #[values(true, false)] shows_proofs: bool,
) {
    let mut walk = walked(&PROVEN.concat());
    if shows_proofs {
        walk.step(Watch(0));
    }
    walk.take(&[User(Edit::Pause(paused)), Reconcile(0)]);
    walk.take(&HELD);
    assert_written(&walk, &[]);
    walk.step(User(Edit::Resume(paused)));
    completed(walk, &[HIGHER_RELEASE]);
}

#[test]
fn a_deleted_cluster_replaces_no_machines() {
    let mut walk = walked(&PROVEN.concat());
    walk.take(&[Watch(0), User(Edit::Delete), Reconcile(0)]);
    walk.calm();
    walk.finish();
    assert_written(&walk, &[]);
}

#[rstest]
#[case::the_class_does_not_declare_them(&[User(Edit::Declare(false))])]
#[case::no_entry(&[User(Edit::NoEntries)])]
#[case::neither(&[User(Edit::NoEntries), User(Edit::Declare(false))])]
fn packages_without_entries_of_machines_follow_the_label(#[case] without: &[Step]) {
    let mut walk = walked(without);
    walk.take(&[Round, Round, User(Edit::Label(HIGHER_RELEASE))]);
    walk.take(&[Round; 8]);
    assert_written(&walk, &[]);
    let (record, found) = (recorded(&walk), swap(&walk));
    assert_eq!(
        record.outcome,
        Some(Outcome::Completed),
        "{}",
        brief(Some(&record))
    );
    assert_eq!(found.reason, "MachinesKept", "{found:?}");
    assert!(found.message.contains("TKR_DATA"), "{found:?}");
    assert_eq!(*cni(&walk), package_name(1, packages_of(HIGHER_RELEASE)));
    walk.calm();
    let writes = walk.servers.writes();
    walk.calm();
    assert_eq!(walk.servers.writes(), writes, "it is settled");
    walk.finish();
}

#[rstest]
#[case::release_is_deactivated(
    &[User(Edit::Deactivate(HIGHER_RELEASE, true))],
    &[User(Edit::Deactivate(HIGHER_RELEASE, false))]
)]
#[case::image_is_deleted(&[User(Edit::NoImage(HIGHER_RELEASE))], &[])]
fn a_release_that_cannot_be_used_any_more_holds(
    #[case] edits: &[Step],
    #[case] repairs: &[Step],
    #[values(true, false)] shows_proofs: bool,
) {
    let mut walk = walked(&PROVEN.concat());
    if shows_proofs {
        walk.step(Watch(0));
    }
    walk.take(edits);
    walk.step(Reconcile(0));
    walk.take(&HELD);
    assert_written(&walk, &[]);
    let (record, found) = (recorded(&walk), swap(&walk));
    assert_eq!((record.outcome, found.open), (None, false), "{found:?}");
    assert_eq!(found.reason, "MachinesNotResolved", "{found:?}");
    walk.take(repairs);
    completed(walk, &[HIGHER_RELEASE]);
}

/// The entries are rendered from the current image, and never again.
#[test]
fn an_image_replaced_before_the_entries_is_used() {
    let mut walk = walked(&PROVEN.concat());
    walk.take(&[Watch(0), User(Edit::Image(HIGHER_RELEASE, "b")), Reconcile(0)]);
    walk.finish_swap();
    assert_eq!(walk.swaps.written, [HIGHER_RELEASE]);
    assert_eq!(
        walk.swaps.images[0].last(),
        Some(&reference(HIGHER_RELEASE, 0, "b"))
    );
    walk.finish();
}

#[rstest]
#[case::image(User(Edit::Image(HIGHER_RELEASE, "b")))]
#[case::no_image(User(Edit::NoImage(HIGHER_RELEASE)))]
#[case::release(User(Edit::Deactivate(HIGHER_RELEASE, true)))]
#[case::class(User(Edit::Steps(PlannedBy::Extension)))]
#[case::cluster(User(Edit::Unimportant))]
#[case::bootstrap(User(Edit::NoMark))]
#[case::record(User(Edit::NoStatus))]
#[case::moved(User(Edit::Move))]
#[case::values(User(Edit::Values(2)))]
#[case::another_process(Crash(0))]
fn nothing_is_rendered_again(#[case] edit: Step, #[values(true, false)] rolls: bool) {
    let mut walk = walked(&WRITTEN.concat());
    if !rolls {
        walk.finish_swap();
    }
    walk.step(edit);
    walk.take(&[Round; 6]);
    completed(walk, &[HIGHER_RELEASE]);
}

#[test]
fn a_webhook_that_refuses_the_entries_holds() {
    let mut walk = walked(&PROVEN.concat());
    walk.step(User(Edit::RefusePatches(true)));
    walk.take(&[&SEEN[..], &[Wait(6)], &SEEN].concat());
    assert_written(&walk, &[]);
    let found = swap(&walk);
    assert_eq!(
        (found.open, found.reason.as_str()),
        (false, "WriteRefused"),
        "{found:?}"
    );
    walk.take(&HELD);
    walk.step(User(Edit::RefusePatches(false)));
    completed(walk, &[HIGHER_RELEASE]);
}

/// The packages of the earlier release are still deployed, and the annotation already names the next one.
#[test]
fn an_old_manifest_right_after_the_merge_replaces_no_machines() {
    let mut walk = walked(&[User(Edit::Label(HIGHER_RELEASE)), Watch(0)]);
    let merged = package_name(1, packages_of(HIGHER_RELEASE));
    for _ in 0..STEPS {
        if *cni(&walk) == merged {
            break;
        }
        walk.step(Lead(0, Fault::OneWrite));
    }
    assert_eq!(*cni(&walk), merged);
    walk.take(&[Crash(0), User(Edit::OldManifest)]);
    walk.take(&HELD);
    assert_written(&walk, &[]);
    completed(walk, &[HIGHER_RELEASE]);
}

/// A user applies the old ClusterBootstrap again while packages are deployed.
#[rstest]
#[case::before_packages_are_installed(&MERGED)]
#[case::while_packages_are_deployed(&DEPLOYING)]
#[case::before_the_last_proof(&PROVEN)]
fn an_old_manifest_holds_the_swap(#[case] steps: &[&[Step]]) {
    let mut walk = walked(&steps.concat());
    walk.step(User(Edit::OldManifest));
    walk.take(&HELD);
    assert_written(&walk, &[]);
    let (record, found) = (recorded(&walk), swap(&walk));
    assert_eq!(record.outcome, None, "{}", brief(Some(&record)));
    assert_eq!(found.reason, "PackageBelowRelease", "{found:?}");
    completed(walk, &[HIGHER_RELEASE]);
}

/// The values Secret of a kept PackageInstall has changed, and kapp-controller has not deployed it: its name is the same.
#[rstest]
#[case::at_once(&[])]
#[case::once_they_are_recorded(&[Watch(0), Reconcile(0), Watch(0), Reconcile(0)])]
fn kept_package_installs_prove_nothing(#[case] seen: &[Step]) {
    let mut walk = walked(&[User(Edit::OfAddonsManager)]);
    walk.take(seen);
    walk.step(User(Edit::Values(9)));
    walk.take(&[0, 1, 2, 3].map(|which| User(Edit::Alter("secrets", which))));
    walk.step(User(Edit::Label(REBUILT_RELEASE)));
    walk.take(&HELD);
    assert_written(&walk, &[]);
    completed(walk, &[REBUILT_RELEASE]);
}

/// Calls `run` between any two steps of a leader that observes the last proof and writes the entries.
fn at_each_step(defect: Option<Defect>, mut run: impl FnMut(Walk)) {
    let mut walk = Walk::with_images();
    walk.plant(defect);
    walk.take(&CREATED);
    walk.take(&PROVEN.concat());
    walk.step(Watch(0));
    for _ in 0..STEPS {
        run(walk.clone());
        if !walk.is_reconciling() {
            if made_of(&walk.servers) == Some(HIGHER_RELEASE) {
                return;
            }
            walk.step(Watch(0));
        }
        walk.step(Lead(0, Fault::None));
    }
    panic!("no entries are written in {STEPS} steps");
}

/// The edits happen at every third step, by `SEED`.
#[rstest]
#[case::another_label(&[User(Edit::Label(HIGHEST_RELEASE))])]
#[case::label_back(&[User(Edit::Label(0))])]
#[case::label_back_and_forth(&[User(Edit::Label(0)), Reconcile(0), User(Edit::Label(HIGHER_RELEASE))])]
#[case::another_version(&[User(Edit::Target(1))])]
#[case::version_back_and_forth(&[User(Edit::UnsafeVersion(1)), Reconcile(0), User(Edit::UnsafeVersion(0))])]
#[case::paused_cluster(&[User(Edit::Pause(Paused::Cluster))])]
#[case::paused_bootstrap(&[User(Edit::Pause(Paused::Bootstrap))])]
#[case::start_held(&[User(Edit::Pause(Paused::Start))])]
#[case::deleted(&[User(Edit::Delete)])]
#[case::deactivated(&[User(Edit::Deactivate(HIGHER_RELEASE, true))])]
#[case::no_image(&[User(Edit::NoImage(HIGHER_RELEASE))])]
#[case::another_image(&[User(Edit::Image(HIGHER_RELEASE, "b"))])]
#[case::not_declared(&[User(Edit::Declare(false))])]
#[case::old_manifest(&[User(Edit::OldManifest)])]
#[case::failed_run(&[Begin(1), End(1, false)])]
#[case::other_values(&[User(Edit::Values(2))])]
#[case::another_server(&[User(Edit::ReplaceServer)])]
#[case::silent(&[User(Edit::Silent(true))])]
#[case::moved(&[User(Edit::Move)])]
#[case::recreated(&[User(Edit::Again)])]
#[case::no_record(&[User(Edit::NoStatus)])]
#[case::another_process(&[Crash(0)])]
#[case::two_leaders(&[Watch(1), Reconcile(1)])]
#[case::two_leaders_and_labels(&[Watch(1), Lead(1, Fault::None), User(Edit::Label(HIGHEST_RELEASE)), Reconcile(0), Reconcile(1)])]
#[case::refused(&[User(Edit::RefusePatches(true)), Reconcile(0), User(Edit::RefusePatches(false))])]
#[case::late_write(&[Lead(0, Fault::Frozen), Watch(0), Reconcile(0), Arrive])]
#[case::late_write_and_another_label(&[
    Lead(0, Fault::Frozen), User(Edit::Label(HIGHEST_RELEASE)), Watch(0), Reconcile(0), Arrive,
])]
#[case::restored(&[BackUp, Reconcile(0), Restore, Detect(0)])]
#[case::paused_bootstrap_of_another_process(&[
    Crash(0), Watch(0), Reconcile(0), Watch(0), User(Edit::Pause(Paused::Bootstrap)), Reconcile(0), WatchBut(0, "clusterbootstraps"),
])]
#[case::old_manifest_of_another_process(&[
    Crash(0), Watch(0), User(Edit::OldManifest), Reconcile(0), WatchBut(0, "clusterbootstraps"),
])]
fn an_edit_at_any_step_delays_a_swap(#[case] edits: &[Step]) {
    let (first, mut step) = (number("SEED", 0_usize) % 3, 0);
    at_each_step(None, |mut walk| {
        step += 1;
        if step % 3 != first {
            return;
        }
        walk.take(edits);
        walk.step(Reconcile(0));
        walk.calm();
        walk.finish_swap();
    });
}

/// Each planted defect fails one walk by the name of its invariant, and that walk passes without it.
#[rstest]
#[case::class_not_read(Defect::ClassUnread, &[Watch(0), User(Edit::Declare(false)), Reconcile(0)], "unconfirmed: ")]
#[case::release_not_read(
    Defect::ReleaseUnread,
    &[Watch(0), User(Edit::Deactivate(HIGHER_RELEASE, true)), Reconcile(0)],
    "unconfirmed: "
)]
#[case::images_not_read(Defect::ImagesUnread, &[Watch(0), User(Edit::NoImage(HIGHER_RELEASE)), Reconcile(0)], "unconfirmed: ")]
#[case::edited_image_not_read(
    Defect::ImagesUnread,
    &[Watch(0), User(Edit::Image(HIGHER_RELEASE, "b")), Reconcile(0)],
    "unconfirmed: "
)]
#[case::deactivated_release(
    Defect::DeactivationUnseen,
    &[User(Edit::Deactivate(HIGHER_RELEASE, true)), Watch(0), Reconcile(0)],
    "unconfirmed: "
)]
#[case::cluster_not_read(Defect::ClusterUnread, &[Watch(0), User(Edit::Label(HIGHEST_RELEASE)), Reconcile(0)], "outdated: ")]
#[case::packages_not_read(Defect::PackagesUnread, &[Watch(0), Begin(1), End(1, false), Reconcile(0)], "early: ")]
#[case::server_not_read(Defect::ServerUnread, &[Duplicate, Watch(0), Swap, Reconcile(0)], "early: ")]
#[case::changed_app(
    Defect::ChangeUnseen,
    &[User(Edit::Values(2)), Watch(0), Reconcile(0), Sync(1), Watch(0), Reconcile(0), Watch(0), Reconcile(0)],
    "early: "
)]
#[case::run_in_progress(
    Defect::RunUnseen,
    &[User(Edit::Values(2)), Watch(0), Reconcile(0), Sync(1), Begin(1), Sync(1), Watch(0), Reconcile(0), Watch(0), Reconcile(0)],
    "early: "
)]
#[case::paused_cluster(Defect::PauseUnseen, &[User(Edit::Pause(Paused::Cluster)), Watch(0), Reconcile(0)], "paused: ")]
#[case::paused_bootstrap(Defect::PauseUnseen, &[User(Edit::Pause(Paused::Bootstrap)), Watch(0), Reconcile(0)], "paused: ")]
#[case::start_held(Defect::PauseUnseen, &[User(Edit::Pause(Paused::Start)), Watch(0), Reconcile(0)], "paused: ")]
#[case::deleted_cluster(Defect::DeletionUnseen, &[User(Edit::Delete), Watch(0), Reconcile(0)], "paused: ")]
#[case::early_generation(
    Defect::ChangeOfTopologyUnseen,
    &[Watch(0), Reconcile(0), Watch(0), Reconcile(0), Watch(0), Reconcile(0)],
    "early: "
)]
#[case::machines_not_replaced(
    Defect::ReplacementUnseen,
    &[Watch(0), Reconcile(0), CLUSTER_API, Watch(0), Reconcile(0), Watch(0), Reconcile(0)],
    "early: "
)]
fn a_planted_defect_of_a_swap_is_found(
    #[case] defect: Defect,
    #[case] steps: &[Step],
    #[case] invariant: &str,
) {
    let run = |defect: Option<Defect>| {
        let mut walk = Walk::with_images();
        walk.plant(defect);
        walk.take(&CREATED);
        walk.take(&PROVEN.concat());
        walk.take(steps);
        walk
    };
    assert_is_found(|| run(Some(defect)), invariant);
    let mut walk = run(None);
    walk.calm();
    walk.finish_swap();
}

/// The label moves between the read of the Cluster and the patch.
#[test]
fn a_patch_without_precondition_is_found() {
    let mut found = Vec::new();
    at_each_step(Some(Defect::PreconditionIgnored), |mut walk| {
        let written = catch_unwind(AssertUnwindSafe(|| {
            walk.take(&[User(Edit::Label(HIGHEST_RELEASE)), Reconcile(0)]);
        }));
        let message = written
            .err()
            .and_then(|panic| panic.downcast_ref::<String>().cloned());
        found.extend(message);
    });
    let outdated = found
        .iter()
        .find(|message| message.starts_with("outdated: the entries"));
    assert!(outdated.is_some(), "{found:?}");
}

/// An upgrade over two minor versions starts.
const CHAINED: [Step; 1] = [User(Edit::Target(2))];

/// All packages of its first step are deployed, and the leader has observed them.
const STEP_PROVEN: [&[Step]; 7] = [&SEEN, &SEEN, &SEEN, &INSTALLED, &DEPLOYED, &SEEN, &SEEN];

/// Returns the gate of BeforeClusterUpgrade for the first step.
fn first_gate(walk: &Walk) -> Gate {
    let record = recorded(walk);
    let is_first = |gate: &&Gate| gate.hook == Hook::BeforeClusterUpgrade && gate.version == VERSIONS[1];
    let gate = record.gates.iter().find(is_first).cloned();
    gate.unwrap_or_else(|| panic!("no gate in {}", brief(Some(&record))))
}

/// Completes an upgrade over two minor versions. The webhook writes the entry of the target.
fn chained(mut walk: Walk) {
    walk.calm();
    walk.finish();
    let pinned = [0, 1, 2].map(|version| pinned(&walk.servers, version));
    assert_eq!(
        pinned,
        [Some(0), Some(1), Some(2)],
        "{}",
        brief(record(&walk.servers).as_ref())
    );
    assert_eq!(walk.swaps.entered, [1], "each entry is written once");
    assert_eq!(walk.swaps.written, [0; 0]);
}

/// Machines roll once for each version that they take. Before each gate the Cluster has the entry (unmade).
#[rstest]
#[case::workers_take_the_last_version(PlannedBy::Class, &[0, 2])]
#[case::workers_take_each_version(PlannedBy::Extension, &[0, 1, 2])]
fn each_step_has_an_entry(#[case] planned_by: PlannedBy, #[case] of_workers: &[usize]) {
    let mut walk = walked(&[User(Edit::Steps(planned_by)), Round]);
    walk.take(&CHAINED);
    assert_eq!(pinned(&walk.servers, 1), None);
    walk.finish();
    let images = |part: usize, releases: &[usize]| -> Vec<Value> {
        let each = releases.iter().map(|release| reference(*release, part, "a"));
        each.collect()
    };
    let expected = [images(0, &[0, 1, 2]), images(1, of_workers)];
    assert_eq!(walk.swaps.images, expected);
    chained(walk);
}

/// The entry is part of the request.
#[test]
fn the_only_step_has_the_entry_of_its_request() {
    let mut walk = walked(&[User(Edit::Steps(PlannedBy::Nobody)), Round, User(Edit::Target(2))]);
    walk.finish();
    assert_eq!(walk.swaps.entered, [0; 0]);
    assert_eq!(
        [1, 2].map(|version| pinned(&walk.servers, version)),
        [None, Some(2)]
    );
}

/// The disturbances happen at every third step of a leader that writes the entry, by `SEED`.
#[rstest]
#[case::nothing(&[])]
#[case::another_process(&[Crash(0)])]
#[case::two_leaders(&[Watch(1), Reconcile(1)])]
#[case::late_write(&[Lead(0, Fault::Frozen), Watch(0), Reconcile(0), Arrive])]
#[case::paused_cluster(&[User(Edit::Pause(Paused::Cluster)), Reconcile(0)])]
#[case::start_held(&[User(Edit::Pause(Paused::Start)), Reconcile(0)])]
#[case::edited(&[User(Edit::Unimportant), Reconcile(0)])]
#[case::no_image_for_a_while(&[User(Edit::NoImage(1)), Reconcile(0)])]
#[case::deactivated_for_a_while(&[User(Edit::Deactivate(1, true)), Reconcile(0)])]
#[case::refused_for_a_while(&[User(Edit::RefusePatches(true)), Reconcile(0)])]
#[case::not_declared_for_a_while(&[User(Edit::Declare(false)), Reconcile(0)])]
#[case::no_record(&[User(Edit::NoStatus)])]
#[case::moved(&[User(Edit::Move)])]
fn a_disturbance_at_any_step_delays_an_entry(#[case] disturbance: &[Step]) {
    let (first, mut step) = (number("SEED", 0_usize) % 3, 0);
    let mut walk = walked(&CHAINED);
    walk.step(Watch(0));
    for _ in 0..STEPS {
        step += 1;
        if step % 3 == first {
            let mut disturbed = walk.clone();
            disturbed.take(disturbance);
            chained(disturbed);
        }
        if !walk.is_reconciling() {
            if pinned(&walk.servers, 1).is_some() {
                return chained(walk);
            }
            walk.step(Watch(0));
        }
        walk.step(Lead(0, Fault::None));
    }
    panic!("no entry is written in {STEPS} steps");
}

#[rstest]
#[case::without_an_image(User(Edit::NoImage(1)), "MachinesNotResolved")]
#[case::of_a_deactivated_release(User(Edit::Deactivate(1, true)), "TKRNotUsable")]
#[case::refused(User(Edit::RefusePatches(true)), "WriteRefused")]
fn an_entry_that_cannot_be_written_holds(#[case] edit: Step, #[case] reason: &str) {
    let mut walk = walked(&[edit]);
    walk.take(&[&CHAINED[..], &STEP_PROVEN.concat()].concat());
    walk.take(&HELD);
    let gate = first_gate(&walk);
    assert_eq!((gate.open, gate.reason.as_str()), (false, reason), "{gate:?}");
    assert_eq!(pinned(&walk.servers, 1), None);
    assert_eq!(version_at(&walk.servers, &control_plane(), "spec"), 0);
    chained(walk);
}

/// An earlier release of Sluice wrote no entries for steps, or the class has come to declare the variable.
#[test]
fn an_open_gate_is_closed_before_the_entry_is_written() {
    let mut walk = walked(&[User(Edit::Declare(false))]);
    walk.take(&[&CHAINED[..], &STEP_PROVEN.concat()].concat());
    assert!(first_gate(&walk).open, "no entry is needed");
    walk.step(User(Edit::Declare(true)));
    for _ in 0..STEPS {
        if pinned(&walk.servers, 1).is_some() {
            break;
        }
        if !walk.is_reconciling() {
            walk.step(Watch(0));
        }
        walk.step(Lead(0, Fault::None));
    }
    let gate = first_gate(&walk);
    assert_eq!(
        (gate.open, gate.reason.as_str()),
        (false, "EntryNotWritten"),
        "{gate:?}"
    );
    chained(walk);
}

/// The gate of the first step is open, and the cache of Cluster API does not show the entry of the step.
fn called_before_the_entry(defect: Option<Defect>) -> Walk {
    let mut walk = Walk::with_images();
    walk.plant(defect);
    walk.take(&CREATED);
    walk.take(&[&CHAINED[..], &STEP_PROVEN.concat()].concat());
    assert!(first_gate(&walk).open, "{}", brief(Some(&recorded(&walk))));
    walk.take(&[Replica, OutdatedClusterApi(Reading::AtOnce)]);
    walk
}

/// Otherwise the control plane would roll without its image, and then again.
#[test]
fn a_call_about_an_earlier_generation_is_held() {
    let defect = Some(Defect::EarlierGenerationTaken);
    assert_is_found(|| called_before_the_entry(defect), "generation: ");
    let walk = called_before_the_entry(None);
    assert_eq!(version_at(&walk.servers, &control_plane(), "spec"), 0);
    chained(walk);
}
