use rstest::rstest;
use sluice_crds::foreign::packaging::PackageInstallStatus;

use super::*;

fn now(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn install(type_: &str) -> PackageInstall {
    PackageInstall {
        status: Some(PackageInstallStatus {
            conditions: vec![condition::Condition {
                type_: type_.into(),
                status: "True".into(),
                ..condition::Condition::default()
            }],
            ..PackageInstallStatus::default()
        }),
        ..PackageInstall::default()
    }
}

fn record(state: PackageState) -> PackageRecord {
    PackageRecord {
        name: "antrea".into(),
        version: "1.9.0".into(),
        values_digest: "d".into(),
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

fn shown(conditions: &[Condition]) -> Vec<&str> {
    conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect()
}

/// The conditions after one reconcile of package antrea.
fn antrea(existing: &[Condition], summary: &str, state: PackageState) -> Vec<Condition> {
    mirror_one(existing, "antrea.x.y", Some(&install(summary)), state)
}

fn mirror_one(
    existing: &[Condition],
    ref_name: &str,
    install: Option<&PackageInstall>,
    state: PackageState,
) -> Vec<Condition> {
    let record = record(state);
    mirror(
        existing,
        &[Mirrored {
            ref_name,
            seen: true,
            install,
            record: &record,
        }],
        now(9),
    )
}

#[rstest]
#[case("antrea.tanzu.vmware.com", "Antrea-ReconcileSucceeded")]
#[case("kapp-controller.tanzu.vmware.com", "Kapp-Controller-ReconcileSucceeded")]
#[case("vsphere-cpi.tanzu.vmware.com", "Vsphere-Cpi-ReconcileSucceeded")]
#[case(
    "load-balancer-and-ingress-service.tanzu.vmware.com",
    "Load-Balancer-And-Ingress-Service-ReconcileSucceeded"
)]
fn types_are_named_as_ever(#[case] ref_name: &str, #[case] expected: &str) {
    let conditions = mirror_one(
        &[],
        ref_name,
        Some(&install("ReconcileSucceeded")),
        PackageState::Ready,
    );
    assert_eq!(shown(&conditions), [expected]);
}

#[test]
fn a_package_has_one_condition_that_follows_its_state() {
    let succeeded = antrea(&[], "ReconcileSucceeded", PackageState::Ready);
    let failed = antrea(&succeeded, "ReconcileFailed", PackageState::Failed);
    assert_eq!(shown(&failed), ["Antrea-ReconcileFailed"]);
}

#[test]
fn a_package_does_not_touch_another_whose_name_contains_its_own() {
    let other = mirror_one(
        &[],
        "antrea-interworking.x.y",
        Some(&install("ReconcileFailed")),
        PackageState::Failed,
    );
    let both = antrea(&other, "ReconcileSucceeded", PackageState::Ready);
    assert_eq!(
        shown(&both),
        ["Antrea-Interworking-ReconcileFailed", "Antrea-ReconcileSucceeded"]
    );
    assert_eq!(
        shown(&mirror_one(&both, "antrea.x.y", None, PackageState::Pending)),
        ["Antrea-Interworking-ReconcileFailed"]
    );
}

#[test]
fn conditions_of_others_stay() {
    let others = [Condition {
        type_: "PackagesSettled".into(),
        status: "False".into(),
        last_transition_time: Time(now(1)),
        severity: String::new(),
        reason: String::new(),
        message: String::new(),
    }];
    let conditions = mirror_one(&others, "antrea.x.y", None, PackageState::Pending);
    assert_eq!(conditions, others);
}

#[test]
fn doubled_conditions_of_a_package_become_one() {
    let one = antrea(&[], "ReconcileSucceeded", PackageState::Ready);
    let doubled = [one.clone(), antrea(&[], "Deleting", PackageState::Pending)].concat();
    assert_eq!(antrea(&doubled, "ReconcileSucceeded", PackageState::Ready), one);
}

#[test]
fn a_resync_of_a_proven_package_changes_nothing() {
    let before = antrea(&[], "ReconcileSucceeded", PackageState::Ready);
    let record = record(PackageState::Ready);
    let reconciling = install("Reconciling");
    let package = Mirrored {
        ref_name: "antrea.x.y",
        seen: true,
        install: Some(&reconciling),
        record: &record,
    };
    assert_eq!(mirror(&before, &[package], now(500)), before);
    let unproven = antrea(&before, "Reconciling", PackageState::Reconciling);
    assert_eq!(shown(&unproven), ["Antrea-Reconciling"]);
}

#[test]
fn a_package_that_is_not_seen_keeps_its_condition() {
    let before = antrea(&[], "ReconcileSucceeded", PackageState::Ready);
    let record = record(PackageState::Ready);
    let package = Mirrored {
        ref_name: "antrea.x.y",
        seen: false,
        install: None,
        record: &record,
    };
    assert_eq!(mirror(&before, &[package], now(500)), before);
    let failed = install("ReconcileFailed");
    let old = Mirrored {
        install: Some(&failed),
        ..package
    };
    assert_eq!(mirror(&before, &[old], now(500)), before);
    let seen = Mirrored {
        seen: true,
        ..package
    };
    assert_eq!(mirror(&before, &[seen], now(500)), [], "it is gone");
}

#[test]
fn the_whole_error_is_shown() {
    let mut failed = install("ReconcileFailed");
    failed.status.as_mut().unwrap().useful_error_message = Some("ytt: Error: no such key".into());
    let conditions = mirror_one(&[], "antrea.x.y", Some(&failed), PackageState::Failed);
    assert_eq!(conditions[0].message, "ytt: Error: no such key");
}

#[test]
fn the_first_true_condition_counts() {
    let of = |types: &[&str]| {
        let conditions: Vec<condition::Condition> = types
            .iter()
            .flat_map(|type_| install(type_).status.unwrap().conditions)
            .collect();
        Summary::of(&conditions)
    };
    assert_eq!(
        of(&["ReconcileSucceeded", "Reconciling"]),
        Some(Summary::Reconciling)
    );
    assert_eq!(
        of(&["DeleteFailed", "ReconcileSucceeded"]),
        Some(Summary::ReconcileSucceeded)
    );
    assert_eq!(of(&[]), None);
}

#[test]
fn a_bootstrap_without_packages_says_that_there_is_nothing_to_prove() {
    let now = Timestamp::UNIX_EPOCH;
    let empty = with_nothing_to_prove(Vec::new(), true, now);
    assert_eq!(empty.len(), 1);
    assert_eq!(
        (
            empty[0].type_.as_str(),
            empty[0].status.as_str(),
            empty[0].reason.as_str()
        ),
        ("NothingToProve", "True", "NoPackages")
    );
    let later = Timestamp::from_second(100).unwrap();
    assert_eq!(with_nothing_to_prove(empty.clone(), true, later), empty);
    assert_eq!(with_nothing_to_prove(empty, false, later), Vec::new());
}

#[test]
fn an_unmanaged_kapp_controller_is_reported_until_sluice_installs_it() {
    let now = Timestamp::UNIX_EPOCH;
    let unmanaged = with_unmanaged(Vec::new(), Some(("ManagementCluster", "why")), now);
    assert_eq!(shown(&unmanaged), ["KappControllerUnmanaged"]);
    assert_eq!(with_unmanaged(unmanaged, None, now), Vec::new());
}

#[test]
fn an_unreachable_workload_is_reported_until_it_responds() {
    let now = Timestamp::UNIX_EPOCH;
    let hold = |message| Hold::new(crate::reasons::GateReason::WorkloadUnreachable, message);
    let unseen = with_unseen(Vec::new(), Some(&hold("silent")), now);
    let said = |conditions: &[Condition]| {
        let said = conditions
            .iter()
            .map(|it| format!("{} {} {}", it.type_, it.reason, it.message));
        said.collect::<Vec<_>>()
    };
    assert_eq!(said(&unseen), ["WorkloadUnseen WorkloadUnreachable silent"]);
    let later = Timestamp::from_second(100).unwrap();
    assert_eq!(with_unseen(unseen.clone(), Some(&hold("silent")), later), unseen);
    let refused = with_unseen(unseen, Some(&hold("refused")), later);
    assert_eq!(said(&refused), ["WorkloadUnseen WorkloadUnreachable refused"]);
    assert_eq!(refused[0].last_transition_time, Time(now), "it was true before");
    assert_eq!(with_unseen(refused, None, later), Vec::new());
}

#[test]
fn conditions_about_the_release_are_those_of_the_cluster() {
    let said = |type_: &str, status: &str, message: &str| condition::Condition {
        type_: type_.into(),
        status: status.into(),
        reason: "Reason".into(),
        message: message.into(),
        ..condition::Condition::default()
    };
    let own = mirror_one(
        &[],
        "antrea.x.y",
        Some(&install("Reconciling")),
        PackageState::Reconciling,
    );
    let other = said("TopologyReconciled", "True", "");
    let compatible = said(RELEASE_COMPATIBLE, "True", "");
    let none = said(UPDATES_AVAILABLE, "False", "");
    let copied = with_release(own.clone(), &[other, none, compatible.clone()], now(1));
    assert_eq!(
        shown(&copied),
        ["Antrea-Reconciling", RELEASE_COMPATIBLE, UPDATES_AVAILABLE]
    );
    let newer = said(UPDATES_AVAILABLE, "True", "[v1.37.0]");
    let changed = with_release(copied, &[compatible.clone(), newer.clone()], now(2));
    assert_eq!(changed[1].last_transition_time, Time(now(1)), "unchanged");
    assert_eq!(changed[2].last_transition_time, Time(now(2)));
    assert_eq!(changed[2].message, "[v1.37.0]");
    let again = with_release(changed.clone(), &[compatible, newer], now(3));
    assert_eq!(again, changed, "a resync changes nothing");
    assert_eq!(
        with_release(changed, &[], now(3)),
        own,
        "the Cluster has no release"
    );
}
