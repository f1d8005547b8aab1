use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rstest::rstest;
use sluice_crds::run::{ClusterBootstrapSpec, Gate, HeldGate, Hook, SCHEMA, UpgradePolicy};

use super::*;
use crate::{
    held_cause::Probing,
    reconcile::cluster::tests::{clock, facts},
};

const MINUTE: i64 = 60;

fn record(reason: &str) -> UpgradeRecord {
    UpgradeRecord {
        schema: SCHEMA,
        cluster_uid: "uid".to_owned(),
        from: Some("v1.35.4".to_owned()),
        to: "v1.36.3".to_owned(),
        gates: vec![Gate {
            hook: Hook::BeforeClusterUpgrade,
            version: "v1.36.3".to_owned(),
            open: false,
            reason: reason.to_owned(),
            message: String::new(),
            overridden_by: None,
        }],
        ..UpgradeRecord::default()
    }
}

/// A status whose gate has been held for some seconds at the time of [`clock`].
fn held(hook: Hook, reason: &str, seconds: i64) -> ClusterBootstrapStatus {
    ClusterBootstrapStatus {
        held: Some(HeldGate {
            hook,
            version: "v1.36.3".to_owned(),
            since: Time(Timestamp::from_second(-seconds).unwrap()),
            cause: None,
        }),
        upgrade: Some(record(reason)),
        ..ClusterBootstrapStatus::default()
    }
}

fn bootstrap(deadline: Option<&str>) -> ClusterBootstrap {
    let mut bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
    bootstrap.spec.upgrade_policy = deadline.map(|deadline| UpgradePolicy {
        deadline: Some(deadline.to_owned()),
        ..UpgradePolicy::default()
    });
    bootstrap
}

/// Checks whether a probe is due, some seconds later. Returns the delay and the effects.
fn after(
    local: &LocalState,
    status: &ClusterBootstrapStatus,
    deadline: Option<&str>,
    later: u64,
) -> (Option<u64>, Effects) {
    let facts = facts();
    let mut began = clock();
    began.instant += Duration::from_secs(later);
    let context = Context::new(&facts, local, began);
    let mut effects = Effects::of(local);
    let packages = Packages::of(Vec::new(), None);
    let left = check(&context, &mut effects, &bootstrap(deadline), status, &packages);
    (left.map(|left| left.as_secs()), effects)
}

#[rstest]
#[case::shortly(Hook::BeforeClusterUpgrade, "PackagesNotReady", 9 * MINUTE, None, Some(60), false)]
#[case::long(Hook::BeforeClusterUpgrade, "PackagesNotReady", 10 * MINUTE, None, Some(30), true)]
#[case::before_the_deadline(Hook::BeforeClusterUpgrade, "PackagesNotReady", 30 * MINUTE, Some("1h"), Some(1_800), false)]
#[case::after_the_deadline(
    Hook::BeforeClusterUpgrade,
    "PackagesNotReady",
    MINUTE,
    Some("1m"),
    Some(30),
    true
)]
#[case::unreachable(Hook::BeforeClusterUpgrade, "WorkloadUnreachable", 10 * MINUTE, None, Some(30), true)]
#[case::told_by_the_reason(Hook::BeforeClusterUpgrade, "TKRNotFound", 10 * MINUTE, None, None, false)]
#[case::paused(Hook::BeforeClusterUpgrade, "ClusterPaused", 10 * MINUTE, None, None, false)]
#[case::deleted(Hook::BeforeClusterDelete, "PackagesNotReady", 60 * MINUTE, Some("1m"), None, false)]
fn a_probe_is_due_beyond_the_limit(
    #[case] hook: Hook,
    #[case] reason: &str,
    #[case] seconds: i64,
    #[case] deadline: Option<&str>,
    #[case] left: Option<u64>,
    #[case] is_due: bool,
) {
    let status = held(hook, reason, seconds);
    let (next, effects) = after(&LocalState::default(), &status, deadline, 0);
    assert_eq!((next, effects.probe.is_some()), (left, is_due));
}

#[test]
fn a_cluster_that_is_not_held_is_not_probed() {
    let status = ClusterBootstrapStatus {
        upgrade: Some(record("PackagesNotReady")),
        ..ClusterBootstrapStatus::default()
    };
    let (next, effects) = after(&LocalState::default(), &status, None, 0);
    assert_eq!((next, effects.probe), (None, None));
}

#[test]
fn a_cluster_is_probed_once_in_five_minutes() {
    let status = held(Hook::BeforeClusterUpgrade, "PackagesNotReady", 60 * MINUTE);
    let (_, first) = after(&LocalState::default(), &status, None, 0);
    assert!(first.probe.is_some());
    let (next, early) = after(&first.local, &status, None, 240);
    assert!(
        early.probe.is_none() && next.is_some_and(|next| next <= 60),
        "{next:?}"
    );
    let (_, later) = after(&first.local, &status, None, 301);
    assert!(later.probe.is_some());
    // There was no permit.
    let mut local = first.local;
    local.probe_later();
    let (_, again) = after(&local, &status, None, 30);
    assert!(again.probe.is_some());
}

#[test]
fn a_result_counts_while_the_cluster_waits_for_the_same() {
    let status = held(Hook::BeforeClusterUpgrade, "PackagesNotReady", 60 * MINUTE);
    let (_, effects) = after(&LocalState::default(), &status, None, 0);
    let mut local = effects.local;
    local.was_probed(Probing::new(effects.probe.unwrap()).end());
    let cause = |local: &LocalState, reason: &str| found(local, &record(reason)).map(|cause| cause.name);
    assert_eq!(cause(&local, "PackagesNotReady").as_deref(), Some("Unknown"));
    assert_eq!(cause(&local, "PackagesNotSettled"), None);
    // It is dropped once the gate is held for less than the limit.
    let shortly = held(Hook::BeforeClusterUpgrade, "PackagesNotReady", MINUTE);
    let (_, effects) = after(&local, &shortly, None, 0);
    assert_eq!(cause(&effects.local, "PackagesNotReady"), None);
}
