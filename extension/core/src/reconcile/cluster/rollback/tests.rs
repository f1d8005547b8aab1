use std::sync::Arc;

use rstest::rstest;
use serde_json::json;
use sluice_crds::run::{
    ClusterBootstrapPackage, ClusterBootstrapSpec, ClusterBootstrapStatus, OnCancel, PackagePolicy, Phase,
    Readiness, Rollback, SCHEMA, UpgradePolicy,
};

use super::*;
use crate::{
    packages::bootstrap::PackageFacts,
    reconcile::cluster::{
        Interrupt, LocalState,
        status::report_release,
        tests::{clock, facts},
        validate::Validated,
    },
    upgrade::swap::NO_SWAP,
};

const V35: &str = "v1.35.4";
const V36: &str = "v1.36.3";

fn record(outcome: Option<Outcome>, is_rollback: bool) -> UpgradeRecord {
    UpgradeRecord {
        schema: SCHEMA,
        cluster_uid: "uid".to_owned(),
        to: V35.to_owned(),
        outcome,
        rollback: is_rollback.then(rollback),
        ..UpgradeRecord::default()
    }
}

fn rollback() -> Rollback {
    Rollback {
        hop: V36.to_owned(),
        release: "v1.35.4---1".to_owned(),
    }
}

/// Returns the ClusterBootstrap of a Cluster whose packages have gone back, except three.
fn bootstrap() -> ClusterBootstrap {
    let package = |name: &str| ClusterBootstrapPackage {
        ref_name: name.to_owned(),
        values_from: None,
    };
    let keeps = PackagePolicy {
        package: "contour".to_owned(),
        readiness: Readiness::default(),
        phase: Phase::default(),
        on_cancel: Some(OnCancel::Keep),
    };
    let mut bootstrap = ClusterBootstrap::new(
        "one",
        ClusterBootstrapSpec {
            additional_packages: ["antrea.1", "contour.2", "metrics.2", "velero.1"]
                .map(package)
                .into(),
            upgrade_policy: Some(UpgradePolicy {
                on_cancel: Some(OnCancel::Rollback),
                packages: vec![keeps],
                ..UpgradePolicy::default()
            }),
            ..ClusterBootstrapSpec::default()
        },
    );
    let before = |name: &str| json!({"name": format!("{name}.1"), "values": false});
    let snapshot = json!({
        "version": V35,
        "release": "v1.35.4---1",
        "packages": {"antrea": before("antrea"), "contour": before("contour"), "metrics": before("metrics")},
    });
    let annotations = bootstrap.annotations_mut();
    annotations.insert(annotation::ROLLBACK_TO.to_owned(), snapshot.to_string());
    bootstrap
}

/// Returns the facts of a Cluster with the packages, and with this record.
fn given(record: UpgradeRecord) -> Facts {
    let known = |name: &str| {
        let (ref_name, _) = name.split_once('.').unwrap();
        let facts = PackageFacts {
            ref_name: ref_name.to_owned(),
            stays: name == "metrics.2",
            ..PackageFacts::default()
        };
        (name.to_owned(), facts)
    };
    let names = [
        "antrea.1",
        "contour.1",
        "contour.2",
        "metrics.1",
        "metrics.2",
        "velero.1",
    ];
    let mut bootstrap = bootstrap();
    bootstrap.status = Some(ClusterBootstrapStatus {
        upgrade: Some(record),
        ..ClusterBootstrapStatus::default()
    });
    Facts {
        catalogue: Arc::new(names.map(known).into()),
        bootstrap: Some(Arc::new(bootstrap)),
        ..facts()
    }
}

#[test]
fn packages_that_stay_are_named_once_the_others_are_proven() {
    let (facts, local) = (given(record(None, true)), LocalState::default());
    let context = Context::new(&facts, &local, clock());
    let bootstrap = bootstrap();
    let message = |bootstrap: &ClusterBootstrap, record: &UpgradeRecord| {
        let conditions = shown(&context, Vec::new(), None, (bootstrap, record));
        conditions.first().map(|condition| condition.message.clone())
    };
    let rolling = message(&bootstrap, &record(None, true)).unwrap();
    assert!(!rolling.contains("stay"), "{rolling}");
    let closed = record(Some(Outcome::RolledBack), true);
    let rolled = message(&bootstrap, &closed).unwrap();
    let named = "; these stay: contour (spec.upgradePolicy), metrics (annotation of its Package), velero (not there before)";
    assert!(rolled.ends_with(named), "{rolled}");
    let mut edited = bootstrap;
    edited.annotations_mut().clear();
    assert!(!message(&edited, &closed).unwrap().contains("stay"));
    assert_eq!(message(&edited, &record(Some(Outcome::Completed), false)), None);
}

#[rstest]
#[case::nothing(Decision::None, None, None)]
#[case::refused(Decision::Refused("of v1".to_owned()), None, Some("of v1"))]
#[case::waits(Decision::Waits(rollback()), None, None)]
#[case::annotation_is_gone(
    Decision::RollsBack(rollback()),
    Some(GateReason::RollbackRefused),
    Some("problem")
)]
#[case::another_problem(Decision::RollsBack(rollback()), Some(GateReason::PackageNotFound), None)]
fn a_refusal_has_a_reason(
    #[case] decision: Decision,
    #[case] problem: Option<GateReason>,
    #[case] expected: Option<&str>,
) {
    let problem = problem.map(|reason| Hold::new(reason, "problem"));
    assert_eq!(refused(&decision, problem.as_ref()), expected);
}

#[rstest]
#[case::cancelled(record(Some(Outcome::Cancelled), false), Decision::None, 1)]
#[case::rolls_back(record(None, true), Decision::RollsBack(rollback()), 1)]
#[case::rolled_back(record(Some(Outcome::RolledBack), true), Decision::None, 1)]
#[case::refused(record(None, false), Decision::Refused(String::new()), 1)]
#[case::under_way(record(None, false), Decision::None, 0)]
#[case::completed(record(Some(Outcome::Completed), false), Decision::None, 0)]
#[case::begins_again(
    UpgradeRecord { to: V36.to_owned(), ..record(Some(Outcome::Cancelled), false) },
    Decision::None,
    0
)]
fn the_annotation_is_warned_of_once_after_a_cancellation(
    #[case] record: UpgradeRecord,
    #[case] decision: Decision,
    #[case] expected: usize,
) {
    let unannotated = given(record);
    let mut cluster = (*unannotated.cluster).clone();
    let key = annotation::DISABLE_VERSION_CHECK.to_owned();
    cluster.annotations_mut().insert(key, String::new());
    let annotated = Facts {
        cluster: Arc::new(cluster),
        ..unannotated.clone()
    };
    let mut local = LocalState::default();
    let mut warnings = |facts: &Facts| {
        let context = Context::new(facts, &local, clock());
        let mut effects = Effects::of(&local);
        warn_of_unchecked_version(&context, &mut effects, &decision);
        let is_named = |event: &Event| matches!(event, Event::Warned(VERSION_UNCHECKED, _));
        assert!(effects.events.iter().all(is_named));
        local = effects.local;
        effects.events.len()
    };
    assert_eq!(warnings(&annotated), expected);
    assert_eq!(warnings(&annotated), 0, "the same again");
    assert_eq!(warnings(&unannotated), 0);
    assert_eq!(warnings(&annotated), expected, "it was set again");
}

/// A cancelled upgrade to another release of the same Kubernetes version leaves the Cluster at rest.
#[test]
fn a_refusal_is_reported_at_rest() {
    let facts = given(record(Some(Outcome::Cancelled), false));
    let local = LocalState::default();
    let report = |rollback: Decision, bootstrap: &ClusterBootstrap| {
        let validated = Validated {
            progress: crate::upgrade::rollback::progress(V35),
            release: Ok("v1.35.4---1".to_owned()),
            change: None,
            paused: None,
            problem: None,
            restored: false,
            swap: NO_SWAP.clone(),
            machines: None,
            entry: None,
            requires: false,
            rollback,
        };
        let context = Context::new(&facts, &local, clock());
        let mut effects = Effects::of(&local);
        match report_release(&context, &mut effects, &validated, bootstrap) {
            Ok(()) => None,
            Err(Interrupt::Write(mut writes)) => Some(writes.remove(0).body),
            Err(other) => panic!("{other:?}"),
        }
    };
    let bootstrap = facts.bootstrap.as_deref().unwrap();
    assert_eq!(report(Decision::None, bootstrap), None);
    let refused = || Decision::Refused("of v1".to_owned());
    let written = report(refused(), bootstrap).unwrap();
    assert_eq!(written["status"]["conditions"][0]["reason"], "RollbackRefused");
    let written: ClusterBootstrap = serde_json::from_value(written).unwrap();
    assert_eq!(report(refused(), &written), None);
}
