use proptest::prelude::*;
use rstest::rstest;
use sluice_crds::{
    lifecycle::OverriddenGate,
    run::{GateOverride, MAX_USED_OVERRIDES, PackageRecord, PackageState, PastUpgrade, Rollback},
};

use super::*;
use crate::{
    held_cause::{Cause, held_cause},
    reasons::PackageReason,
};

const V35: &str = "v1.35.4";
const V36: &str = "v1.36.3";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn gate(hook: Hook, reason: &str) -> Gate {
    Gate {
        hook,
        version: V36.to_owned(),
        open: reason.is_empty(),
        reason: reason.to_owned(),
        message: format!("about {reason}"),
        overridden_by: None,
    }
}

fn package(name: &str, state: PackageState, reason: &str) -> PackageRecord {
    PackageRecord {
        name: name.to_owned(),
        version: "3.0.0".to_owned(),
        values_digest: String::new(),
        state,
        reason: reason.to_owned(),
        message: String::new(),
        app_uid: None,
        app_generation: None,
        proven_readiness: None,
        first_seen_run: None,
        repairs: 0,
    }
}

/// An upgrade to v1.36.3 with these gates; all others are open.
fn record(gates: Vec<Gate>) -> UpgradeRecord {
    UpgradeRecord {
        cluster_uid: "uid".to_owned(),
        from: Some(V35.to_owned()),
        to: V36.to_owned(),
        hop: Some(V36.to_owned()),
        gates,
        packages: vec![
            package("kapp-controller", PackageState::Ready, ""),
            package("antrea", PackageState::Reconciling, "AppReconciling"),
        ],
        started_at: Some(Time(at(0))),
        ..UpgradeRecord::default()
    }
}

/// The status after `current` at this second, with this record.
fn next(
    current: &ClusterBootstrapStatus,
    record: UpgradeRecord,
    deadline: Option<&str>,
    second: i64,
) -> ClusterBootstrapStatus {
    let status = ClusterBootstrapStatus {
        conditions: current.conditions.clone(),
        upgrade: Some(record),
        ..ClusterBootstrapStatus::default()
    };
    let policy = UpgradePolicy {
        deadline: deadline.map(str::to_owned),
        ..UpgradePolicy::default()
    };
    summarize(current, status, Some(&policy), None, at(second))
}

fn first(record: UpgradeRecord, second: i64) -> ClusterBootstrapStatus {
    next(&ClusterBootstrapStatus::default(), record, None, second)
}

fn ready(status: &ClusterBootstrapStatus) -> (&str, &str, i64) {
    let mut conditions = status.conditions.iter();
    let ready = conditions.find(|condition| condition.type_ == "Ready").unwrap();
    (
        &ready.status,
        &ready.reason,
        ready.last_transition_time.0.as_second(),
    )
}

const WAITS: &str = "PackagesNotReady";

#[rstest]
#[case::packages(Hook::BeforeClusterUpgrade, WAITS, ClusterPhase::UpgradingPackages)]
#[case::packages_of_a_later_hop(Hook::BeforeControlPlaneUpgrade, WAITS, ClusterPhase::UpgradingPackages)]
#[case::control_plane(
    Hook::AfterControlPlaneUpgrade,
    "ControlPlaneUpgrading",
    ClusterPhase::UpgradingControlPlane
)]
#[case::proofs(Hook::AfterControlPlaneUpgrade, WAITS, ClusterPhase::ProvingPackages)]
#[case::proofs_that_are_lost(Hook::BeforeWorkersUpgrade, "PackageFailed", ClusterPhase::ProvingPackages)]
#[case::workers(Hook::AfterWorkersUpgrade, "WorkersUpgrading", ClusterPhase::UpgradingWorkers)]
#[case::deferred_workers(Hook::AfterWorkersUpgrade, "WorkersDeferred", ClusterPhase::UpgradingWorkers)]
#[case::workers_before_the_next_step(
    Hook::BeforeClusterUpgrade,
    "WorkersUpgrading",
    ClusterPhase::UpgradingWorkers
)]
#[case::nodes(Hook::AfterClusterUpgrade, "PackagesNotSettled", ClusterPhase::Settling)]
#[case::a_pause(Hook::BeforeClusterUpgrade, "ClusterPaused", ClusterPhase::Paused)]
#[case::a_deletion(Hook::BeforeClusterDelete, "UninstallInProgress", ClusterPhase::Deleting)]
#[case::all_is_open(Hook::AfterClusterUpgrade, "", ClusterPhase::UpgradingWorkers)]
fn the_first_closed_gate_says_how_far_a_cluster_is(
    #[case] hook: Hook,
    #[case] reason: &str,
    #[case] expected: ClusterPhase,
) {
    let status = first(record(vec![gate(hook, reason)]), 1);
    assert_eq!(status.phase, Some(expected));
    assert_eq!(status.packages_ready.as_deref(), Some("1/2"));
}

#[test]
fn a_closed_record_and_a_first_installation_say_so() {
    let closed = |outcome| UpgradeRecord {
        outcome: Some(outcome),
        ..record(Vec::new())
    };
    assert_eq!(
        first(closed(Outcome::Completed), 1).phase,
        Some(ClusterPhase::Completed)
    );
    assert_eq!(
        first(closed(Outcome::Cancelled), 1).phase,
        Some(ClusterPhase::Cancelled)
    );
    let created = UpgradeRecord {
        from: None,
        ..record(vec![gate(Hook::AfterControlPlaneUpgrade, "ControlPlaneCreating")])
    };
    let status = first(created.clone(), 1);
    assert_eq!(status.phase, Some(ClusterPhase::Creating));
    assert_eq!((status.held, status.history), (None, Vec::new()));
    let waits = UpgradeRecord {
        gates: vec![gate(Hook::AfterControlPlaneUpgrade, WAITS)],
        ..created
    };
    assert_eq!(first(waits, 1).held, None, "hooks of upgrades are not called");
}

#[test]
fn the_worst_package_is_named_first() {
    let mut record = record(vec![gate(Hook::BeforeClusterUpgrade, WAITS)]);
    assert_eq!(
        first(record.clone(), 1).waiting_for.as_deref(),
        Some("antrea 3.0.0: App reconciling")
    );
    let mut failed = package("metrics", PackageState::Failed, "AppFailed");
    failed.message = format!("ytt: \u{1b}[31mError:\n {}", "x".repeat(65_536));
    record.packages.push(failed);
    let status = first(record, 1);
    let said = status.waiting_for.as_deref().unwrap();
    assert!(
        said.starts_with("metrics 3.0.0: App failed: ytt: \\u{1b}[31mErr"),
        "{said}"
    );
    assert_eq!(said.chars().count(), 46);
    assert_eq!(ready(&status), ("False", "AppFailed", 1));
    let condition = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .unwrap();
    assert_eq!(condition.severity, "Error");
    assert!(condition.message.chars().count() <= 512 && !condition.message.contains('\u{1b}'));
}

#[test]
fn the_column_has_no_build_metadata() {
    let mut record = record(vec![gate(Hook::BeforeClusterUpgrade, WAITS)]);
    record.packages[1].version = "1.11.2+vmware.3-tkg.1-advanced".to_owned();
    let status = first(record, 1);
    assert_eq!(
        status.waiting_for.as_deref(),
        Some("antrea 1.11.2: App reconciling")
    );
    let ready = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Ready");
    let said = &ready.unwrap().message;
    assert!(said.contains("1.11.2+vmware.3-tkg.1-advanced"), "{said}");
}

#[rstest]
#[case::missing_input(
    "TKRNotFound",
    GateReason::TKRNotFound.text(),
    Some(Hook::BeforeClusterUpgrade)
)]
#[case::machines(
    "ControlPlaneUpgrading",
    GateReason::ControlPlaneUpgrading.text(),
    None
)]
#[case::of_a_newer_release(
    "SomethingNewer",
    "antrea 3.0.0: App reconciling",
    Some(Hook::BeforeClusterUpgrade)
)]
fn other_causes_are_reported_by_the_gate(
    #[case] reason: &str,
    #[case] expected: &str,
    #[case] held: Option<Hook>,
) {
    let status = first(record(vec![gate(Hook::BeforeClusterUpgrade, reason)]), 1);
    assert_eq!(status.waiting_for.as_deref(), Some(expected));
    assert_eq!(status.held.as_ref().map(|held| held.hook), held);
    assert_eq!(ready(&status).0, "False", "antrea is not proven");
}

/// A rollout of machines neither makes packages faulty nor ready.
#[rstest]
#[case::proven(PackageState::Ready, "", "True", "PackagesReady")]
#[case::deployed_again(PackageState::Reconciling, "AppReconciling", "False", "AppReconciling")]
#[case::failed(PackageState::Failed, "AppFailed", "False", "AppFailed")]
fn while_machines_roll_packages_say_whether_all_is_ready(
    #[case] state: PackageState,
    #[case] reason: &str,
    #[case] expected: &str,
    #[case] why: &str,
) {
    let mut rolls = record(vec![gate(
        Hook::AfterControlPlaneUpgrade,
        "ControlPlaneUpgrading",
    )]);
    rolls.packages[1] = package("antrea", state, reason);
    let status = first(rolls, 1);
    let (is, by, ..) = ready(&status);
    assert_eq!((is, by), (expected, why));
}

#[test]
fn a_cluster_without_a_control_plane_is_not_ready() {
    let mut created = record(vec![gate(Hook::BeforeClusterUpgrade, "ControlPlaneCreating")]);
    (created.from, created.packages) = (None, Vec::new());
    assert_eq!(ready(&first(created, 1)).0, "False");
}

/// Cluster API calls no hook for it.
#[test]
fn another_release_of_the_same_version_is_held_by_no_hook() {
    let mut swapped = record(vec![gate(Hook::BeforeWorkersUpgrade, WAITS)]);
    swapped.from = Some(V36.to_owned());
    assert_eq!(first(swapped, 1).held, None);
}

/// A package fails on Monday, and an upgrade begins on Thursday.
#[test]
fn earlier_waits_do_not_count_for_an_upgrade() {
    let mut settled = record(Vec::new());
    settled.outcome = Some(Outcome::Completed);
    settled.completed_at = Some(Time(at(5)));
    let mut status = first(settled, 10);
    let mut begun = record(vec![gate(Hook::BeforeClusterUpgrade, "BootstrapNotMerged")]);
    begun.started_at = Some(Time(at(1000)));
    status = next(&status, begun.clone(), None, 1000);
    assert_eq!(status.history[0].longest_wait_seconds, None);
    // A wait for the same package at the same version continues.
    let mut waits = record(vec![gate(Hook::BeforeClusterUpgrade, WAITS)]);
    waits.started_at = Some(Time(at(1000)));
    status = next(&status, waits, None, 1010);
    status = next(&status, begun, None, 1030);
    assert!(
        status.history[0]
            .longest_wait_seconds
            .is_some_and(|seconds| seconds <= 30)
    );
}

#[test]
fn before_a_later_hop_another_hook_is_called() {
    let passed = Gate {
        version: V35.to_owned(),
        ..gate(Hook::AfterControlPlaneUpgrade, "")
    };
    let waits = gate(Hook::BeforeClusterUpgrade, WAITS);
    let mut chained = record(vec![passed, waits]);
    let hook = |record: &UpgradeRecord| first(record.clone(), 1).held.map(|held| held.hook);
    assert_eq!(
        hook(&chained),
        Some(Hook::BeforeClusterUpgrade),
        "the version that it began with"
    );
    chained.from = Some("v1.34.4".to_owned());
    assert_eq!(hook(&chained), Some(Hook::BeforeControlPlaneUpgrade));
}

#[test]
fn times_change_only_with_the_awaited_object() {
    let held = record(vec![gate(Hook::BeforeClusterUpgrade, WAITS)]);
    let one = first(held.clone(), 10);
    assert_eq!(next(&one, held.clone(), None, 500), one, "the same again, later");
    let mut tried_again = held.clone();
    tried_again.packages[1].reason = "AppNotObserved".to_owned();
    let two = next(&one, tried_again, None, 20);
    assert_eq!(two.since, one.since, "the package is waited for all the time");
    assert_ne!(two.waiting_for, one.waiting_for);
    let mut ready_now = held.clone();
    ready_now.packages[1] = package("antrea", PackageState::Ready, "");
    ready_now.gates = vec![gate(Hook::AfterControlPlaneUpgrade, "ControlPlaneUpgrading")];
    let three = next(&two, ready_now, None, 30);
    assert_eq!(three.since, Some(Time(at(30))));
    assert_eq!(
        (three.held.clone(), ready(&three)),
        (None, ("True", "PackagesReady", 30))
    );
    let four = next(&three, held, None, 40);
    assert_eq!(
        four.held.map(|held| held.since),
        Some(Time(at(40))),
        "it is held again"
    );
}

#[test]
fn an_exceeded_deadline_is_reported_until_the_gate_opens() {
    let held = record(vec![gate(Hook::BeforeClusterUpgrade, WAITS)]);
    let says = |status: &ClusterBootstrapStatus| exceeded(status).map(|condition| condition.message.clone());
    let policy = |deadline: &str| UpgradePolicy {
        deadline: Some(deadline.to_owned()),
        ..UpgradePolicy::default()
    };
    let one = next(&ClusterBootstrapStatus::default(), held.clone(), Some("1m"), 100);
    assert_eq!(says(&one), None);
    let left = until_deadline(&one, Some(&policy("1m")), at(130));
    assert_eq!(left, Some(std::time::Duration::from_secs(30)));
    assert_eq!(
        until_deadline(&one, Some(&policy("soon")), at(130)),
        None,
        "unreadable is none"
    );
    assert_eq!(says(&next(&one, held.clone(), Some("1m"), 159)), None);
    let late = next(&one, held.clone(), Some("1m"), 160);
    let message = says(&late).unwrap();
    assert!(
        message.contains("BeforeClusterUpgrade to v1.36.3") && message.contains("(1m)"),
        "{message}"
    );
    assert_eq!(until_deadline(&late, Some(&policy("1m")), at(160)), None);
    assert_eq!(
        next(&late, held.clone(), Some("1m"), 900),
        late,
        "the same again, later"
    );
    assert_eq!(
        says(&next(&late, held.clone(), Some("1h"), 900)),
        None,
        "another policy"
    );
    let open = record(vec![gate(
        Hook::AfterControlPlaneUpgrade,
        "ControlPlaneUpgrading",
    )]);
    assert_eq!(says(&next(&late, open, Some("1m"), 900)), None);
    let deleted = record(vec![gate(Hook::BeforeClusterDelete, "UninstallInProgress")]);
    let deleted = next(&late, deleted, Some("0s"), 900);
    assert_eq!((says(&deleted), deleted.held.is_some()), (None, true));
}

/// A status after `current` at this second, with this cause of a probe.
fn probed(
    current: &ClusterBootstrapStatus,
    record: UpgradeRecord,
    found: Option<&HeldCause>,
    (deadline, second): (Option<&str>, i64),
) -> ClusterBootstrapStatus {
    let status = ClusterBootstrapStatus {
        conditions: current.conditions.clone(),
        upgrade: Some(record),
        ..ClusterBootstrapStatus::default()
    };
    let policy = UpgradePolicy {
        deadline: deadline.map(str::to_owned),
        ..UpgradePolicy::default()
    };
    summarize(current, status, Some(&policy), found, at(second))
}

fn image_pull() -> HeldCause {
    held_cause(
        Cause::ImagePull,
        "Pod kube-system/agent-0",
        "container agent waits: ErrImagePull",
    )
}

fn cause(status: &ClusterBootstrapStatus) -> Option<&str> {
    let cause = status.held.as_ref()?.cause.as_ref()?;
    Some(cause.name.as_str())
}

#[test]
fn a_cause_is_reported_beyond_the_limit() {
    let (held, found) = (
        record(vec![gate(Hook::BeforeClusterUpgrade, WAITS)]),
        image_pull(),
    );
    let one = first(held.clone(), 100);
    let before = probed(&one, held.clone(), Some(&found), (None, 699));
    assert_eq!(cause(&before), None);
    let without_deadline = probed(&one, held.clone(), Some(&found), (None, 700));
    assert_eq!(cause(&without_deadline), Some("ImagePull"));
    assert!(exceeded(&without_deadline).is_none(), "there is no deadline");

    let late = probed(&one, held.clone(), Some(&found), (Some("1m"), 160));
    let message = &exceeded(&late).unwrap().message;
    for part in [
        "BeforeClusterUpgrade to v1.36.3",
        "ImagePull: Pod kube-system/agent-0: container agent waits: ErrImagePull",
    ] {
        assert!(message.contains(part), "{message}");
    }
    // Another leader keeps it until its own probe.
    assert_eq!(next(&late, held.clone(), Some("1m"), 900), late);
    let mut other = held.clone();
    other.packages[1] = package("calico", PackageState::Reconciling, "AppReconciling");
    assert_eq!(
        cause(&next(&late, other, Some("1m"), 900)),
        None,
        "another package"
    );
    let open = record(vec![gate(
        Hook::AfterControlPlaneUpgrade,
        "ControlPlaneUpgrading",
    )]);
    assert_eq!(next(&late, open, Some("1m"), 900).held, None);
}

#[test]
fn a_cause_of_a_hold_reason_ends_with_it() {
    let held = |reason: &str| {
        let mut held = record(vec![gate(Hook::BeforeClusterUpgrade, WAITS)]);
        held.packages[1] = package("antrea", PackageState::Reconciling, reason);
        held
    };
    let one = first(held("AppPaused"), 0);
    let paused = next(&one, held("AppPaused"), None, 600);
    assert_eq!(cause(&paused), Some("PackagePaused"));
    let resumed = next(&paused, held("AppReconciling"), None, 700);
    assert_eq!(cause(&resumed), None);
    let other = first(record(vec![gate(Hook::BeforeClusterUpgrade, "TKRNotFound")]), 0);
    let other = next(
        &other,
        record(vec![gate(Hook::BeforeClusterUpgrade, "TKRNotFound")]),
        None,
        600,
    );
    assert_eq!(cause(&other), Some("Unknown"), "the reason says it");
}

#[test]
fn the_message_about_a_deadline_fits_into_an_event() {
    let held = record(vec![gate(Hook::BeforeClusterUpgrade, WAITS)]);
    let long = "é".repeat(10_000);
    let found = held_cause(Cause::AdmissionDenied, &long, &long);
    let late = probed(&first(held.clone(), 0), held, Some(&found), (Some("1m"), 60));
    let message = &exceeded(&late).unwrap().message;
    assert!(
        message.len() <= 1_000 && message.contains("AdmissionDenied"),
        "{message}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Only the cause itself and the message about it follow from a probe.
    #[test]
    fn a_cause_changes_nothing_else(
        reason in prop::sample::select(vec![WAITS, "PackagesNotSettled", "WorkloadUnreachable", "TKRNotFound", "ClusterPaused"]),
        kept in prop::option::of(prop::sample::select(Cause::ALL)),
        found in prop::option::of(prop::sample::select(Cause::ALL)),
        deadline in prop::option::of(Just("1m")),
        second in 0_i64..1_200,
    ) {
        let held = record(vec![gate(Hook::BeforeClusterUpgrade, reason)]);
        let [kept, found] = [kept, found].map(|cause| cause.map(|cause| held_cause(cause, "Pod a/b", "why")));
        let one = first(held.clone(), 0);
        let mut other = one.clone();
        other.held.as_mut().unwrap().cause = kept;
        let without_cause = |mut status: ClusterBootstrapStatus| {
            status.held.as_mut().unwrap().cause = None;
            status.conditions.retain(|condition| condition.type_ != DEADLINE_EXCEEDED);
            status
        };
        let plain = probed(&one, held.clone(), None, (deadline, second));
        let caused = probed(&other, held, found.as_ref(), (deadline, second));
        prop_assert_eq!(exceeded(&plain).is_some(), exceeded(&caused).is_some());
        prop_assert_eq!(without_cause(plain), without_cause(caused));
    }
}

#[test]
fn a_deferred_pool_is_named_and_exceeds_no_deadline() {
    let waits = |pools: &str| {
        record(vec![Gate {
            message: pools.to_owned(),
            ..gate(Hook::AfterWorkersUpgrade, "WorkersDeferred")
        }])
    };
    let held = record(vec![gate(Hook::BeforeWorkersUpgrade, WAITS)]);
    let held = next(&ClusterBootstrapStatus::default(), held, Some("0s"), 100);
    assert!(exceeded(&held).is_some());
    let deferred = next(&held, waits("md-1, md-2"), Some("0s"), 900);
    assert_eq!(
        deferred.waiting_for.as_deref(),
        Some("deferred by annotation: md-1, md-2")
    );
    assert_eq!((exceeded(&deferred), deferred.held.as_ref()), (None, None));
    let long = first(waits("load-balancers-and-ingress-controllers"), 1);
    assert_eq!(
        long.waiting_for.as_deref(),
        Some("deferred by annotation: load-balancers-and-in…")
    );
}

#[test]
fn the_longest_wait_of_an_upgrade_is_kept() {
    let waits_for = |name: &str| {
        let mut record = record(vec![gate(Hook::BeforeClusterUpgrade, WAITS)]);
        record.packages[1].name = name.to_owned();
        record
    };
    let rolls = || {
        record(vec![gate(
            Hook::AfterControlPlaneUpgrade,
            "ControlPlaneUpgrading",
        )])
    };
    let mut status = first(waits_for("antrea"), 0);
    status = next(&status, waits_for("metrics"), None, 30);
    status = next(&status, rolls(), None, 50);
    let longest = |status: &ClusterBootstrapStatus| {
        let upgrade = &status.history[0];
        (upgrade.longest_wait.clone(), upgrade.longest_wait_seconds)
    };
    assert_eq!(longest(&status), (Some("antrea 3.0.0".to_owned()), Some(30)));
    let mut done = rolls();
    done.outcome = Some(Outcome::Completed);
    done.gates = Vec::new();
    done.packages.pop();
    done.released_at = Some(Time(at(51)));
    done.completed_at = Some(Time(at(900)));
    status = next(&status, done.clone(), None, 900);
    let expected = PastUpgrade {
        from_release: None,
        to_release: None,
        from: V35.to_owned(),
        to: V36.to_owned(),
        began: Time(at(0)),
        released: Some(Time(at(51))),
        ended: Some(Time(at(900))),
        outcome: Some(Outcome::Completed),
        longest_wait: Some("antrea 3.0.0".to_owned()),
        longest_wait_seconds: Some(30),
        overrides: Vec::new(),
    };
    assert_eq!(
        status.history,
        std::slice::from_ref(&expected),
        "waits for machines do not count"
    );
    assert_eq!(
        next(&status, done.clone(), None, 2000).history,
        std::slice::from_ref(&expected)
    );
    // A later failure of a package does not belong to the upgrade.
    done.packages[0].state = PackageState::Failed;
    let failed = next(&status, done.clone(), None, 3000);
    done.packages[0].state = PackageState::Ready;
    assert_eq!(next(&failed, done, None, 9000).history, [expected]);
}

#[test]
fn history_is_bounded_in_number_and_size() {
    let upgrade = |number: i64, version: &str| UpgradeRecord {
        from: Some(version.to_owned()),
        to: version.to_owned(),
        started_at: Some(Time(at(1_764_000_000 + number * 1000))),
        released_at: Some(Time(at(1_764_000_100 + number * 1000))),
        completed_at: Some(Time(at(1_764_000_200 + number * 1000))),
        outcome: Some(Outcome::Completed),
        packages: vec![package(&"antrea".repeat(1000), PackageState::Failed, "AppFailed")],
        ..record(Vec::new())
    };
    let size = |version: &str| {
        let mut status = ClusterBootstrapStatus::default();
        for number in 0..8 {
            let mut open = upgrade(number, version);
            open.outcome = None;
            open.completed_at = None;
            open.gates = vec![gate(Hook::BeforeClusterUpgrade, WAITS)];
            status = next(&status, open, None, 1_764_000_000 + number * 1000);
            let mut closed = upgrade(number, version);
            closed.packages.clear();
            status = next(&status, closed, None, 1_764_000_999 + number * 1000);
        }
        assert_eq!(status.history.len(), 5);
        let latest = at(1_764_007_000);
        assert_eq!(status.history[0].began, Time(latest), "the latest first");
        let longest = status.history[0].longest_wait.as_deref().unwrap();
        assert_eq!(longest.chars().count(), 48);
        serde_json::to_string(&status.history).unwrap().len()
    };
    assert!(size("v1.36.3") <= 1280, "{}", size("v1.36.3"));
    assert!(size(&"v".repeat(4096)) <= 2048, "{}", size(&"v".repeat(4096)));
}

#[test]
fn a_cancelled_upgrade_keeps_its_target_and_an_earlier_cluster_is_forgotten() {
    let status = first(record(vec![gate(Hook::BeforeClusterUpgrade, WAITS)]), 10);
    let cancelled = UpgradeRecord {
        to: V35.to_owned(),
        outcome: Some(Outcome::Cancelled),
        completed_at: Some(Time(at(20))),
        ..record(Vec::new())
    };
    let status = next(&status, cancelled, None, 20);
    let upgrade = &status.history[0];
    assert_eq!(
        (upgrade.to.as_str(), upgrade.outcome),
        (V36, Some(Outcome::Cancelled))
    );
    let other = UpgradeRecord {
        cluster_uid: "another".to_owned(),
        started_at: Some(Time(at(30))),
        ..record(vec![gate(Hook::BeforeClusterUpgrade, WAITS)])
    };
    let other = next(&status, other, None, 30);
    assert_eq!(other.history.len(), 1);
    assert_eq!(other.since, Some(Time(at(30))));
}

#[test]
fn a_rollback_is_part_of_the_cancelled_upgrade() {
    let status = first(record(vec![gate(Hook::BeforeClusterUpgrade, WAITS)]), 10);
    let cancelled = UpgradeRecord {
        to: V35.to_owned(),
        outcome: Some(Outcome::Cancelled),
        completed_at: Some(Time(at(20))),
        ..record(Vec::new())
    };
    let status = next(&status, cancelled, None, 20);
    let rolls = UpgradeRecord {
        to: V35.to_owned(),
        hop: Some(V35.to_owned()),
        released_at: Some(Time(at(30))),
        rollback: Some(Rollback {
            hop: V36.to_owned(),
            release: "v1.35.4---1".to_owned(),
        }),
        ..record(vec![gate(Hook::AfterControlPlaneUpgrade, "RollbackInProgress")])
    };
    let status = next(&status, rolls.clone(), None, 30);
    assert_eq!(status.phase, Some(ClusterPhase::RollingBack));
    assert_eq!(
        status.waiting_for.as_deref(),
        Some("antrea 3.0.0: App reconciling")
    );
    let held = status.held.as_ref().map(|held| held.hook);
    assert_eq!(
        (ready(&status).0, held),
        ("False", Some(Hook::AfterControlPlaneUpgrade)),
        "workers may wait, up to the deadline"
    );
    let upgrade = &status.history[0];
    assert_eq!(
        (upgrade.ended.as_ref(), upgrade.outcome),
        (None, None),
        "it goes on"
    );

    let paused = UpgradeRecord {
        gates: vec![gate(Hook::BeforeWorkersUpgrade, "BootstrapPaused")],
        ..rolls.clone()
    };
    assert_eq!(next(&status, paused, None, 35).phase, Some(ClusterPhase::Paused));
    let mut closed = UpgradeRecord {
        outcome: Some(Outcome::RolledBack),
        completed_at: Some(Time(at(40))),
        gates: Vec::new(),
        ..rolls
    };
    closed.packages[1] = package("antrea", PackageState::Ready, "");
    let status = next(&status, closed, None, 40);
    assert_eq!(status.phase, Some(ClusterPhase::RolledBack));
    assert_eq!(
        (status.packages_ready.as_deref(), status.waiting_for.as_deref()),
        (Some("2/2"), None)
    );
    let [upgrade] = status.history.as_slice() else {
        panic!("{:?}", status.history)
    };
    assert_eq!(
        (upgrade.from.as_str(), upgrade.to.as_str(), upgrade.outcome),
        (V35, V36, Some(Outcome::RolledBack))
    );
    assert_eq!(
        (upgrade.ended.clone(), upgrade.released.clone()),
        (Some(Time(at(40))), None)
    );
}

/// The annotation of a rollback is missing, which no package explains.
#[test]
fn a_rollback_that_is_refused_waits_for_a_user() {
    let status = first(
        record(vec![gate(Hook::AfterControlPlaneUpgrade, "RollbackRefused")]),
        1,
    );
    assert_eq!(
        status.waiting_for.as_deref(),
        Some(GateReason::RollbackRefused.text())
    );
}

/// Names and versions are those of packages of Tanzu releases.
#[rstest]
#[case::short(
    "antrea",
    "1.11.2+vmware.3",
    "AppNotFound",
    "",
    "antrea 1.11.2: App not created yet"
)]
#[case::a_long_name(
    "load-balancer-and-ingress-service",
    "1.8.2+vmware.1-tkg.1",
    "AppReconciling",
    "",
    "load-balancer-and-ingr… 1.8.2: App reconciling"
)]
#[case::a_long_message(
    "kapp-controller",
    "0.41.5+vmware.1-tkg.1",
    "AppFailed",
    "kapp: Error: waiting on reconcile deployment/kapp-controller",
    "kapp-cont… 0.41.5: App failed: kapp: Error: w…"
)]
#[case::of_a_newer_release("antrea", "1.11.2", "SomethingNewer", "", "antrea 1.11.2: SomethingNewer")]
fn a_long_name_is_cut_off_before_its_cause(
    #[case] name: &str,
    #[case] version: &str,
    #[case] reason: &str,
    #[case] message: &str,
    #[case] expected: &str,
) {
    let state = if message.is_empty() {
        PackageState::Applied
    } else {
        PackageState::Failed
    };
    let mut waits = record(Vec::new());
    waits.packages = vec![PackageRecord {
        version: version.to_owned(),
        message: message.to_owned(),
        ..package(name, state, reason)
    }];
    assert_eq!(first(waits, 1).waiting_for.as_deref(), Some(expected));
}

/// A search for the text in the column finds its reason.
#[test]
fn the_column_has_the_whole_text_of_each_reason() {
    let versions = ["0.41.5", "1.25.10", "2023.10.12"];
    for (reason, version) in PackageReason::ALL
        .iter()
        .flat_map(|reason| versions.map(|version| (reason, version)))
    {
        let mut waits = record(Vec::new());
        waits.packages = vec![PackageRecord {
            version: format!("{version}+vmware.1-tkg.1"),
            ..package(
                "load-balancer-and-ingress-service",
                PackageState::Applied,
                reason.as_str(),
            )
        }];
        let said = first(waits, 1).waiting_for.unwrap();
        assert!(
            said.ends_with(&format!(" {version}: {}", reason.text())),
            "{said}"
        );
    }
    for reason in GateReason::ALL {
        let mut waits = record(vec![gate(Hook::BeforeClusterUpgrade, reason.as_str())]);
        waits.packages.clear();
        let said = first(waits, 1).waiting_for.unwrap();
        assert!(said.starts_with(reason.text()), "{said}");
    }
}

fn by(uid: &str) -> GateOverride {
    GateOverride {
        name: format!("override-{uid}"),
        uid: uid.to_owned(),
        user: "ada".to_owned(),
        reason: "CHG-4711".to_owned(),
        expires_at: Time(at(3600)),
    }
}

fn overridden(hook: Hook, uid: &str) -> Gate {
    Gate {
        overridden_by: Some(by(uid)),
        ..gate(hook, "")
    }
}

fn unproven(gates: Vec<Gate>) -> UpgradeRecord {
    let mut record = record(gates);
    record.packages[1] = package("metrics", PackageState::Failed, "AppFailed");
    record
}

/// The record forgets the override of a gate once its step is made or its proof has arrived; the history does not.
#[test]
fn history_names_every_override_of_an_upgrade_once() {
    let used = |status: &ClusterBootstrapStatus| {
        let used = status.history[0].overrides.iter();
        used.map(|used| (used.uid.clone(), used.gate)).collect::<Vec<_>>()
    };
    let status = first(record(vec![gate(Hook::BeforeClusterUpgrade, WAITS)]), 0);
    assert!(used(&status).is_empty());
    let gates =
        [Hook::BeforeClusterUpgrade, Hook::BeforeControlPlaneUpgrade].map(|hook| overridden(hook, "a"));
    let status = next(&status, unproven(gates.to_vec()), None, 10);
    let control_plane = ("a".to_owned(), OverriddenGate::ControlPlane);
    assert_eq!(
        used(&status),
        std::slice::from_ref(&control_plane),
        "a gate has two hooks"
    );
    let upgrade = &status.history[0].overrides[0];
    assert_eq!(
        (
            upgrade.version.as_str(),
            upgrade.user.as_str(),
            upgrade.reason.as_str()
        ),
        (V36, "ada", "CHG-4711")
    );
    let status = next(
        &status,
        record(vec![gate(Hook::AfterControlPlaneUpgrade, WAITS)]),
        None,
        20,
    );
    let workers = overridden(Hook::BeforeWorkersUpgrade, "b");
    let status = next(&status, unproven(vec![workers.clone()]), None, 30);
    let both = [control_plane, ("b".to_owned(), OverriddenGate::Workers)];
    assert_eq!(used(&status), both);
    let done = UpgradeRecord {
        outcome: Some(Outcome::Completed),
        completed_at: Some(Time(at(40))),
        ..record(vec![workers.clone()])
    };
    let status = next(&status, done, None, 40);
    assert_eq!(used(&status), both);
    // The next record keeps the gates of the running version.
    let begun = UpgradeRecord {
        from: Some(V36.to_owned()),
        to: "v1.37.1".to_owned(),
        started_at: Some(Time(at(50))),
        ..record(vec![workers])
    };
    let status = next(&status, begun, None, 50);
    assert_eq!((status.history.len(), used(&status)), (2, Vec::new()));
    assert_eq!(status.history[1].overrides.len(), 2);
}

#[test]
fn history_names_the_override_of_replaced_machines() {
    let mut replaced = record(Vec::new());
    replaced.from = Some(V36.to_owned());
    replaced.swap = Some(Swap {
        version: V36.to_owned(),
        open: true,
        overridden_by: Some(by("a")),
        ..Swap::default()
    });
    let status = first(replaced, 1);
    let used = &status.history[0].overrides[0];
    assert_eq!((used.uid.as_str(), used.gate), ("a", OverriddenGate::Machines));
}

/// The longest name of an object, as in that of a ServiceAccount.
#[test]
fn history_keeps_the_user_of_an_override() {
    let user = "u".repeat(253);
    let mut workers = overridden(Hook::BeforeWorkersUpgrade, "a");
    workers.overridden_by = Some(GateOverride {
        user: user.clone(),
        ..by("a")
    });
    assert_eq!(
        first(unproven(vec![workers]), 1).history[0].overrides[0].user,
        user
    );
}

#[test]
fn overrides_in_the_history_are_bounded() {
    let mut status = first(record(Vec::new()), 0);
    for number in 0..20 {
        let mut of = overridden(Hook::BeforeWorkersUpgrade, &format!("{number:036}"));
        if let Some(by) = &mut of.overridden_by {
            by.name = "n".repeat(253);
            (by.user, by.reason) = ("u".repeat(1024), "\u{1b}".repeat(1024));
        }
        of.version = format!("{V36}+{}", "v".repeat(1024));
        status = next(&status, record(vec![of]), None, number);
    }
    let used = &status.history[0].overrides;
    assert_eq!(
        (used.len(), used[0].uid.as_str()),
        (MAX_USED_OVERRIDES, &*"0".repeat(36))
    );
    let size = serde_json::to_string(&status.history).unwrap().len();
    assert!(size <= 5 * 1024, "{size}");
    assert!(!used[0].reason.contains('\u{1b}'), "{}", used[0].reason);
}

/// A package that no gate waits for is not ready all the same.
#[rstest]
#[case::control_plane(
    vec![
        overridden(Hook::BeforeClusterUpgrade, "a"),
        overridden(Hook::BeforeControlPlaneUpgrade, "a"),
        gate(Hook::AfterControlPlaneUpgrade, "ControlPlaneUpgrading"),
    ],
    ClusterPhase::UpgradingControlPlane,
    None
)]
#[case::the_workers_after_it(
    vec![
        overridden(Hook::BeforeClusterUpgrade, "a"),
        gate(Hook::AfterControlPlaneUpgrade, WAITS),
    ],
    ClusterPhase::ProvingPackages,
    Some(Hook::AfterControlPlaneUpgrade)
)]
#[case::workers(
    vec![
        overridden(Hook::AfterControlPlaneUpgrade, "a"),
        overridden(Hook::BeforeWorkersUpgrade, "a"),
        gate(Hook::AfterWorkersUpgrade, "WorkersUpgrading"),
    ],
    ClusterPhase::UpgradingWorkers,
    None
)]
fn an_overridden_cluster_is_not_ready(
    #[case] gates: Vec<Gate>,
    #[case] phase: ClusterPhase,
    #[case] held: Option<Hook>,
) {
    let status = first(unproven(gates), 1);
    assert_eq!(status.phase, Some(phase));
    assert_eq!(ready(&status), ("False", "AppFailed", 1));
    assert_eq!(status.packages_ready.as_deref(), Some("1/2"));
    assert_eq!(status.held.as_ref().map(|held| held.hook), held);
    let waits_for = status.waiting_for.as_deref().unwrap();
    assert_eq!(
        waits_for.starts_with("metrics 3.0.0: App failed"),
        held.is_some(),
        "{waits_for}"
    );
}
