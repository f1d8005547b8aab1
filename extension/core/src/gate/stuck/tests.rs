use rstest::rstest;
use sluice_crds::lifecycle::CheckRecord;
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
            overridden_by: None,
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

fn check(name: &str, state: CheckState) -> CheckRecord {
    CheckRecord {
        gate: "cni".into(),
        name: name.into(),
        state,
        version: "1.18.2".into(),
        ..CheckRecord::default()
    }
}

fn record_of_gates() -> GateRecord {
    GateRecord {
        cluster_uid: "uid".into(),
        to: "v1.36.3".into(),
        hop: Some("v1.35.4".into()),
        set: Some("digest".into()),
        gates: vec![Gate {
            hook: Hook::BeforeClusterUpgrade,
            version: "v1.35.4".into(),
            open: false,
            reason: "ChecksNotReady".into(),
            message: "cni/chart: HelmReleaseProxy cilium is not at 1.18.2".into(),
            overridden_by: None,
        }],
        checks: vec![
            check("chart", CheckState::Waiting),
            check("agent", CheckState::Waiting),
        ],
        ..GateRecord::default()
    }
}

fn check_fails(record: &mut GateRecord) {
    record.checks[0].state = CheckState::Failed;
    record.checks[0].reason = "DeliveryFailed".into();
    record.gates[0].reason = "CheckFailed".into();
    record.gates[0].message = "cni/chart: HelmReleaseProxy cilium failed".into();
}

#[rstest]
#[case::nothing(|_: &mut GateRecord| {}, false)]
#[case::a_try_that_fails(check_fails, false)]
#[case::another_check_is_named(|r: &mut GateRecord| r.gates[0].message = "cni/agent: not rolled out".into(), false)]
#[case::what_an_object_reports(|r: &mut GateRecord| r.checks[0].detail = "timed out".into(), false)]
#[case::a_time(|r: &mut GateRecord| r.ready_at = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH)), false)]
#[case::a_proof(|r: &mut GateRecord| r.checks[0].state = CheckState::Proven, true)]
#[case::another_proof(|r: &mut GateRecord| r.checks[0].reproven = true, true)]
#[case::another_object(|r: &mut GateRecord| r.checks[0].uid = Some("other".into()), true)]
#[case::another_version(|r: &mut GateRecord| r.checks[0].version = "1.18.3".into(), true)]
#[case::a_gate(|r: &mut GateRecord| r.gates[0].open = true, true)]
#[case::another_reason(|r: &mut GateRecord| r.gates[0].reason = "WorkloadUnreachable".into(), true)]
#[case::another_hop(|r: &mut GateRecord| r.hop = Some("v1.36.3".into()), true)]
#[case::an_edit_of_a_gate(|r: &mut GateRecord| r.set = Some("other".into()), true)]
#[case::an_edit_of_the_cluster(|r: &mut GateRecord| r.observed_cluster_generation += 1, true)]
#[case::another_workload(|r: &mut GateRecord| r.workload_uid = Some("other".into()), true)]
fn progress_of_a_record_of_gates(#[case] edit: fn(&mut GateRecord), #[case] progress: bool) {
    let mut edited = record_of_gates();
    edit(&mut edited);
    assert_eq!(
        ProgressHash::of_gates(&record_of_gates()) != ProgressHash::of_gates(&edited),
        progress
    );
}

#[test]
fn progress_toward_another_end_counts_too() {
    let (one, two) = (ProgressHash(1), ProgressHash(2));
    assert_eq!(one.with(None), one);
    assert_eq!(one.with(Some(two)), one.with(Some(two)));
    assert_ne!(one.with(Some(two)), one);
    assert_ne!(one.with(Some(two)), one.with(Some(one)));
    assert_ne!(one.with(Some(two)), two.with(Some(two)));
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
