use rstest::rstest;
use sluice_crds::run::{Gate, Hook, PackageRecord};

use super::*;

fn package(name: &str, state: PackageState) -> PackageRecord {
    PackageRecord {
        name: name.into(),
        version: "1.9.0".into(),
        values_digest: "digest".into(),
        state,
        reason: String::new(),
        message: String::new(),
        app_uid: None,
        app_generation: None,
        proven_readiness: None,
        first_seen_run: None,
        repairs: 0,
    }
}

fn record() -> UpgradeRecord {
    UpgradeRecord {
        cluster_uid: "uid".into(),
        to: "v1.36.3".into(),
        hop: Some("v1.35.4".into()),
        gates: vec![Gate {
            hook: Hook::BeforeClusterUpgrade,
            version: "v1.35.4".into(),
            open: false,
            reason: "PackagesNotReady".into(),
            message: "waiting for antrea 1.9.0".into(),
        }],
        packages: vec![
            package("antrea", PackageState::Reconciling),
            package("metrics", PackageState::Pending),
        ],
        ..UpgradeRecord::default()
    }
}

fn fails(record: &mut UpgradeRecord) {
    record.packages[0].state = PackageState::Failed;
    record.packages[0].reason = "AppFailed".into();
    record.packages[0].message = "timed out after 15m3s".into();
    record.gates[0].reason = "PackageFailed".into();
    record.gates[0].message = "antrea 1.9.0 failed to reconcile".into();
}

#[rstest]
#[case::nothing(|_: &mut UpgradeRecord| {}, false)]
#[case::a_try_that_fails(fails, false)]
#[case::another_package_is_named(|r: &mut UpgradeRecord| r.gates[0].message = "waiting for metrics 1.0".into(), false)]
#[case::a_time(|r: &mut UpgradeRecord| r.ready_at = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH)), false)]
#[case::a_proof(|r: &mut UpgradeRecord| r.packages[0].state = PackageState::Ready, true)]
#[case::a_first_write(|r: &mut UpgradeRecord| r.packages[1].state = PackageState::Applied, true)]
#[case::other_values(|r: &mut UpgradeRecord| r.packages[0].values_digest = "other".into(), true)]
#[case::another_version(|r: &mut UpgradeRecord| r.packages[0].version = "1.9.1".into(), true)]
#[case::a_gate(|r: &mut UpgradeRecord| r.gates[0].open = true, true)]
#[case::another_reason(|r: &mut UpgradeRecord| r.gates[0].reason = "WorkloadUnreachable".into(), true)]
#[case::another_hop(|r: &mut UpgradeRecord| r.hop = Some("v1.36.3".into()), true)]
#[case::another_release(|r: &mut UpgradeRecord| r.tkr = Some("v1.35.4---2".into()), true)]
#[case::an_edit_of_the_cluster(|r: &mut UpgradeRecord| r.observed_cluster_generation += 1, true)]
#[case::an_edit_of_the_bootstrap(|r: &mut UpgradeRecord| r.observed_bootstrap_generation += 1, true)]
#[case::another_workload(|r: &mut UpgradeRecord| r.workload_uid = Some("other".into()), true)]
fn progress_of_a_record(#[case] edit: fn(&mut UpgradeRecord), #[case] progress: bool) {
    let mut edited = record();
    edit(&mut edited);
    assert_eq!(
        ProgressHash::of_record(&record()) != ProgressHash::of_record(&edited),
        progress
    );
}

#[test]
fn without_a_record_progress_is_another_label_or_another_obstacle() {
    let missing = |name: &str| Hold::new(GateReason::TKRNotFound, name);
    let standing = ProgressHash::of_hold("one", &missing("one"));
    assert_eq!(standing, ProgressHash::of_hold("one", &missing("one")));
    assert_ne!(standing, ProgressHash::of_hold("two", &missing("one")));
    assert_ne!(standing, ProgressHash::of_hold("one", &missing("two")));
}

fn held(uid: &str, standing: u64) -> Held {
    Held {
        uid: uid.into(),
        standing: ProgressHash(standing),
        recorded: true,
    }
}

const fn minutes(minutes: u64) -> Duration {
    Duration::from_mins(minutes)
}

fn stuck<const N: usize>(of: [(&str, u64, Duration); N]) -> HashMap<String, Stuck> {
    of.map(|(uid, standing, since)| {
        let standing = ProgressHash(standing);
        (uid.to_owned(), Stuck { standing, since })
    })
    .into()
}

#[test]
fn ten_minutes_without_progress_are_stuck_and_progress_ends_it() {
    let mut progress = HeldProgress::default();
    let both = |one| [held("one", one), held("two", 7)];
    let counted = |moving, stuck| Counted { moving, stuck };

    assert_eq!(progress.observe(minutes(5), both(1)), counted(2, stuck([])));
    let almost = Duration::from_millis(899_999);
    assert_eq!(
        progress.observe(almost, [held("one", 1), held("two", 8)]),
        counted(2, stuck([]))
    );
    let now = progress.observe(minutes(15), [held("one", 1), held("two", 8)]);
    assert_eq!(now, counted(1, stuck([("one", 1, minutes(5))])));
    let now = progress.observe(minutes(60), [held("one", 1), held("two", 8)]);
    assert_eq!(
        now,
        counted(0, stuck([("one", 1, minutes(5)), ("two", 8, almost)]))
    );

    let now = progress.observe(minutes(61), [held("one", 2), held("two", 8)]);
    assert_eq!(now, counted(1, stuck([("two", 8, almost)])), "one has moved");
}

#[test]
fn a_cluster_with_progress_since_the_last_observation_is_not_stuck() {
    let mut progress = HeldProgress::default();
    progress.observe(minutes(0), [held("one", 1)]);
    let stuck = progress.observe(minutes(10), [held("one", 1)]).stuck["one"];
    assert_eq!(stuck.still(ProgressHash(1), minutes(12)), minutes(12));
    assert_eq!(stuck.still(ProgressHash(2), minutes(12)), Duration::ZERO);
}

#[test]
fn a_cluster_that_is_held_again_begins_again() {
    let mut progress = HeldProgress::default();
    progress.observe(minutes(0), [held("one", 1)]);
    assert_eq!(progress.observe(minutes(9), []), Counted::default());
    assert_eq!(progress.observe(minutes(10), [held("one", 1)]).stuck, stuck([]));
    assert!(progress.observe(minutes(11), []).stuck.is_empty());
    assert!(progress.seen.is_empty(), "nothing is kept of what is not held");
}

#[test]
fn a_cluster_without_a_record_slows_no_other_and_may_be_stuck() {
    let mut progress = HeldProgress::default();
    let unrecorded = Held {
        recorded: false,
        ..held("one", 1)
    };
    assert_eq!(
        progress.observe(minutes(0), [unrecorded.clone()]),
        Counted::default()
    );
    let now = progress.observe(minutes(10), [unrecorded]);
    assert_eq!((now.moving, now.stuck), (0, stuck([("one", 1, minutes(0))])));
}
