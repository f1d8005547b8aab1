use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rstest::rstest;
use serde_json::json;
use sluice_crds::run::{ClusterBootstrapSpec, Gate, Hook, SCHEMA, UpgradePolicy};

use super::{writing::drops_fields, *};
use crate::{
    reconcile::cluster::{
        LocalState, Object,
        tests::{clock, facts, to_v36},
    },
    upgrade::overrides::tests::by,
};

/// A definition of an earlier release drops the field, and Sluice would rewrite the record endlessly without a report.
#[test]
fn a_definition_that_drops_the_beginning_is_detected() {
    let kept = UpgradeRecord::default();
    let sent = UpgradeRecord {
        begun_at: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            Timestamp::UNIX_EPOCH,
        )),
        ..kept.clone()
    };
    assert!(drops_fields(Some(&sent), &kept));
    assert!(!drops_fields(Some(&sent), &sent));
    let with_swap = UpgradeRecord {
        swap: Some(sluice_crds::run::Swap::default()),
        ..sent.clone()
    };
    assert!(drops_fields(Some(&with_swap), &sent));
    let with_answer = UpgradeRecord {
        supervisor: Some(sluice_crds::run::SupervisorAnswer::default()),
        ..sent.clone()
    };
    assert!(drops_fields(Some(&with_answer), &sent));
    let with_mode = UpgradeRecord {
        kapp_controller: Some(sluice_crds::run::KappControllerMode::Unmanaged),
        ..sent.clone()
    };
    assert!(drops_fields(Some(&with_mode), &sent));
    let with_rollback = UpgradeRecord {
        rollback: Some(sluice_crds::run::Rollback::default()),
        ..sent.clone()
    };
    assert!(drops_fields(Some(&with_rollback), &sent));
}

/// Otherwise columns would stay empty without a report.
#[test]
fn a_definition_that_drops_summary_fields_is_reported() {
    let (facts, local) = (facts(), LocalState::default());
    let bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
    let record = UpgradeRecord {
        from: Some("v1.35.4".to_owned()),
        started_at: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            Timestamp::UNIX_EPOCH,
        )),
        ..UpgradeRecord::default()
    };
    let status = ClusterBootstrapStatus {
        upgrade: Some(record),
        ..ClusterBootstrapStatus::default()
    };
    let status = with_summary(&bootstrap, status, None, Timestamp::UNIX_EPOCH);
    let says = |dropped: &[&str]| {
        let mut context = Context::new(&facts, &local, clock());
        let mut effects = Effects::of(&local);
        let Err(Interrupt::Write(mut asked)) = write(&context, &mut effects, &bootstrap, status.clone())
        else {
            panic!("it is not written");
        };
        let asked = asked.remove(0);
        let mut kept = asked.body.clone();
        for field in dropped {
            assert!(
                kept["status"].as_object_mut().unwrap().remove(*field).is_some(),
                "{field}"
            );
        }
        context.record_outcome(asked, Ok(Object(kept)));
        write(&context, &mut effects, &bootstrap, status.clone()).unwrap();
        let said =
            |event: &Event| matches!(event, Event::Held(hold) if hold.reason == GateReason::CRDOutdated);
        effects.events.iter().any(said)
    };
    assert!(!says(&[]));
    for field in ["phase", "since", "history"] {
        assert!(says(&[field]), "{field}");
    }
    assert!(says(&["phase", "since", "history"]));
}

/// Otherwise Sluice would no longer write packages that keep no gate open.
#[test]
fn gates_are_open_as_in_the_last_written_record() {
    let (facts, local) = (facts(), LocalState::default());
    let mut context = Context::new(&facts, &local, clock());
    let mut effects = Effects::of(&local);
    effects.local.opened = vec![(Hook::BeforeClusterUpgrade, "v1.36.3".to_owned())];
    let bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
    let closed = ClusterBootstrapStatus {
        upgrade: Some(UpgradeRecord::default()),
        ..ClusterBootstrapStatus::default()
    };
    let Err(Interrupt::Write(mut asked)) = write(&context, &mut effects, &bootstrap, closed.clone()) else {
        panic!("it is not written");
    };
    assert_eq!(effects.local.opened.len(), 1, "the gate may still be open");
    let asked = asked.remove(0);
    let written = Object(asked.body.clone());
    context.record_outcome(asked, Ok(written));
    write(&context, &mut effects, &bootstrap, closed).unwrap();
    assert_eq!(effects.local.opened, []);
}

/// No later reconcile reports a condition that already exists.
#[test]
fn a_deadline_that_passes_during_failed_reconciles_is_warned_of_once() {
    let policy = UpgradePolicy {
        deadline: Some("1m".to_owned()),
        ..UpgradePolicy::default()
    };
    let mut bootstrap = ClusterBootstrap::new(
        "one",
        ClusterBootstrapSpec {
            upgrade_policy: Some(policy),
            ..ClusterBootstrapSpec::default()
        },
    );
    let hold = |message: &str| Hold::new(GateReason::ReconcileError, message.to_owned());
    let record = UpgradeRecord {
        schema: SCHEMA,
        cluster_uid: "uid".to_owned(),
        from: Some("v1.35.4".to_owned()),
        to: "v1.36.3".to_owned(),
        gates: vec![Gate {
            hook: Hook::BeforeClusterUpgrade,
            version: "v1.36.3".to_owned(),
            open: false,
            reason: "ReconcileError".to_owned(),
            message: "a".to_owned(),
            overridden_by: None,
        }],
        ..UpgradeRecord::default()
    };
    let status = ClusterBootstrapStatus {
        upgrade: Some(record),
        ..ClusterBootstrapStatus::default()
    };
    bootstrap.status = Some(with_summary(&bootstrap, status, None, Timestamp::UNIX_EPOCH));
    let mut warned = Vec::new();
    for (second, message) in [(30, "b"), (70, "c"), (80, "d")] {
        let now = Timestamp::from_second(second).unwrap();
        let Close::Write(write, late) = close(Some(&bootstrap), "uid", &hold(message), now) else {
            panic!("nothing is written at {second} s");
        };
        bootstrap = serde_json::from_value(write.body.clone()).unwrap();
        warned.push(late);
    }
    let says = |event: &Option<Event>| matches!(event, Some(Event::Warned(DEADLINE_EXCEEDED, _)));
    assert_eq!(warned.iter().map(says).collect::<Vec<_>>(), [false, true, false]);
}

/// Messages of kapp-controller for many failing packages must not make the ClusterBootstrap too large for the cache.
#[test]
fn messages_of_many_packages_share_the_limit_of_a_status() {
    let bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
    let status = |packages: usize, bytes: usize| {
        let message = |package: usize| format!("{package:04}").repeat(bytes / 4);
        let conditions = (0..packages).map(|package| {
            serde_json::from_value(json!({
                "type": format!("P{package}-ReconcileFailed"), "status": "True", "message": message(package),
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }))
            .unwrap()
        });
        let status = ClusterBootstrapStatus {
            conditions: conditions.collect(),
            ..ClusterBootstrapStatus::default()
        };
        let status = with_summary(&bootstrap, status, None, Timestamp::UNIX_EPOCH);
        let messages = status.conditions.iter().map(|condition| condition.message.len());
        messages.sum::<usize>()
    };
    assert_eq!(status(2, 4096), 2 * 4096);
    let all = status(100, 4096);
    assert!(all <= MESSAGES && all > MESSAGES / 2, "{all} bytes");
}

/// Progress waits longer with each write of an upgrade.
#[rstest]
#[case::first(0, 5)]
#[case::second(1, 10)]
#[case::third(2, 15)]
#[case::later(9, 15)]
fn progress_is_written_after_a_delay(#[case] writes: usize, #[case] seconds: u64) {
    let (facts, began) = (facts(), clock());
    let mut local = LocalState::default();
    local.written = began.instant.checked_sub(Duration::from_secs(1));
    local.progress_writes = writes;
    let context = Context::new(&facts, &local, began);
    let status = |edit: fn(&mut UpgradeRecord)| {
        let mut record = UpgradeRecord::default();
        edit(&mut record);
        ClusterBootstrapStatus {
            upgrade: Some(record),
            ..ClusterBootstrapStatus::default()
        }
    };
    let current = status(|_| {});
    let progress = &to_v36(false);
    let steps = Steps {
        progress,
        workers: &[],
    };
    let is_urgent = |next: &ClusterBootstrapStatus| is_urgent_status(&current, next, steps);
    let writes_after =
        |next: &ClusterBootstrapStatus| progress_writes(&context, &current, next, is_urgent(next));
    let progress = status(|record| record.ready_at = Some(Time(Timestamp::UNIX_EPOCH)));
    let left = not_yet(&context, is_urgent(&progress));
    assert_eq!(left, Some(Duration::from_secs(seconds - 1)));
    assert_eq!(writes_after(&progress), writes + 1);
    // Other changes are written at once, and only the next upgrade begins again.
    let gate = status(|record| record.observed_cluster_generation = 1);
    assert_eq!(not_yet(&context, is_urgent(&gate)), None);
    assert_eq!(writes_after(&gate), writes);
    let upgrade = status(|record| record.label = "36-1".to_owned());
    assert_eq!(writes_after(&upgrade), 0);
}

/// Each reconcile confirms a proof again under an open gate until it is recorded. The control plane may have passed the gate.
#[rstest]
#[case::that_holds(false, None)]
#[case::that_is_passed(true, Some(Duration::from_secs(4)))]
fn a_proof_under_an_open_gate_is_written_at_once(#[case] taken: bool, #[case] left: Option<Duration>) {
    let (facts, began) = (facts(), clock());
    let mut local = LocalState::default();
    local.written = began.instant.checked_sub(Duration::from_secs(1));
    let context = Context::new(&facts, &local, began);
    let status = |state: &str| {
        let record = json!({
            "hop": "v1.36.3",
            "gates": [{"hook": "BeforeControlPlaneUpgrade", "version": "v1.36.3", "open": true}],
            "packages": [{"name": "antrea", "version": "1.9.0", "state": state}],
        });
        let mut empty = serde_json::to_value(UpgradeRecord::default()).unwrap();
        empty
            .as_object_mut()
            .unwrap()
            .extend(record.as_object().unwrap().clone());
        ClusterBootstrapStatus {
            upgrade: Some(serde_json::from_value(empty).unwrap()),
            ..ClusterBootstrapStatus::default()
        }
    };
    let (before, after) = (status("Reconciling"), status("Ready"));
    let progress = &to_v36(taken);
    let steps = Steps {
        progress,
        workers: &[],
    };
    assert_eq!(not_yet(&context, is_urgent_status(&before, &after, steps)), left);
}

/// A text of one part does not remove another from the note, which the API server limits in bytes.
#[rstest]
#[case::ascii("u", "r")]
#[case::of_four_bytes("\u{1f600}", "\u{1f680}")]
fn the_note_of_an_override_names_user_and_reason(#[case] user: &str, #[case] reason: &str) {
    let by = GateOverride {
        name: "n".repeat(253),
        user: user.repeat(120),
        reason: reason.repeat(1024),
        ..by("a")
    };
    let note = note_of_use(OverriddenGate::ControlPlane, &"v".repeat(128), &by);
    assert!(note.len() < 1024, "{} bytes", note.len());
    for part in ["n".repeat(62), user.repeat(99), reason.repeat(109)] {
        assert!(note.contains(&part), "{note}");
    }
}

/// A gate has two hooks, and closes for a moment.
#[test]
fn a_use_of_an_override_is_reported_once() {
    let record = |by: Option<&GateOverride>| UpgradeRecord {
        from: Some("v1.35.4".to_owned()),
        to: "v1.36.3".to_owned(),
        started_at: Some(Time(Timestamp::UNIX_EPOCH)),
        gates: [Hook::BeforeClusterUpgrade, Hook::BeforeControlPlaneUpgrade]
            .map(|hook| Gate {
                hook,
                version: "v1.36.3".to_owned(),
                open: by.is_some(),
                reason: by.map_or("PackagesNotReady", |_| "").to_owned(),
                message: String::new(),
                overridden_by: by.cloned(),
            })
            .into(),
        ..UpgradeRecord::default()
    };
    let mut bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
    let mut reported = Vec::new();
    for name in [None, Some("a"), Some("a"), None, Some("a"), Some("b"), Some("a")] {
        let by = name.map(by);
        let next = ClusterBootstrapStatus {
            upgrade: Some(record(by.as_ref())),
            ..ClusterBootstrapStatus::default()
        };
        let next = with_summary(&bootstrap, next, None, Timestamp::UNIX_EPOCH);
        let current = bootstrap.status.unwrap_or_default();
        reported.push(used_overrides(&current, &next).len());
        bootstrap.status = Some(next);
    }
    assert_eq!(reported, [0, 1, 0, 0, 0, 1, 0]);
}
