use rstest::rstest;
use sluice_crds::run::{Gate, Hook, PackageRecord};

use super::*;
use crate::reasons::GateReason;

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

#[test]
fn a_cluster_with_progress_since_the_last_count_is_not_stuck() {
    let stuck = Stuck::new(ProgressHash(1), Duration::ZERO);
    let now = Duration::from_mins(12);
    assert_eq!(stuck.still(ProgressHash(1), now), now);
    assert_eq!(stuck.still(ProgressHash(2), now), Duration::ZERO);
}
