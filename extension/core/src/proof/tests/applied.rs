//! Readiness `Applied`: the run of kapp-controller to which the step blocks of an App belong, and the scope of such a proof.

use serde_json::{Value, json};

use super::*;

/// A record as it lies in the status of a ClusterBootstrap.
fn recorded(state: &str, more: &Value) -> PackageRecord {
    let mut record = json!({
        "name": TARGET.name, "version": TARGET.version, "valuesDigest": TARGET.digest, "state": state,
    });
    let fields = record.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    serde_json::from_value(record).unwrap()
}

/// A proof of the App at its present generation.
fn proof_of(readiness: Option<&str>) -> PackageRecord {
    recorded(
        "Ready",
        &json!({"appUID": "app", "appGeneration": 5, "provenReadiness": readiness}),
    )
}

/// The run that the App showed when it was first seen: fetched and deployed at these seconds.
fn first_seen(uid: &str, generation: i64, fetched: Option<i64>, deployed: Option<i64>) -> PackageRecord {
    let time = |second| Some(Time(Timestamp::from_second(second?).unwrap()));
    recorded(
        "Reconciling",
        &json!({"firstSeenRun": {
            "appUID": uid,
            "appGeneration": generation,
            "fetchStartedAt": time(fetched),
            "deployStartedAt": time(deployed),
        }}),
    )
}

/// kapp-controller was ended while kapp waited. Its next process says that it has seen the new generation of the App, and
/// every step block is still that of the run before.
#[rstest]
#[case::nothing_is_recorded(None)]
#[case::another_digest(Some(PackageRecord { values_digest: "d1".into(), ..first_seen("app", 5, Some(1), Some(1)) }))]
#[case::first_seen_so(Some(first_seen("app", 5, Some(1), Some(1))))]
#[case::the_generation_before(Some(first_seen("app", 4, Some(0), Some(0))))]
#[case::the_generation_before_never_ran(Some(first_seen("app", 4, None, None)))]
#[case::another_app(Some(first_seen("before", 5, Some(0), Some(0))))]
#[case::the_fetch_alone_is_later(Some(first_seen("app", 5, Some(0), Some(1))))]
#[case::the_deploy_alone_is_later(Some(first_seen("app", 5, Some(1), Some(0))))]
#[case::the_clock_went_back(Some(first_seen("app", 5, Some(2), Some(2))))]
#[case::proven_at_the_generation_before(Some(PackageRecord { app_generation: Some(4), ..proof_of(Some("Applied")) }))]
fn steps_of_an_interrupted_run_are_no_proof(#[case] latch: Option<PackageRecord>) {
    let seen = Seen {
        latch,
        ..Seen::waiting()
    };
    let judged = seen.judge(&APPLIED);
    assert!(!judged.ready() && !judged.settled);
    assert_eq!(judged.record.reason, "AppReconciling");
}

#[rstest]
#[case::later_steps(first_seen("app", 5, Some(0), Some(0)))]
#[case::an_app_that_had_not_run(first_seen("app", 5, None, None))]
#[case::an_app_that_had_not_deployed(first_seen("app", 5, Some(0), None))]
#[case::seen_while_it_had_other_values(PackageRecord { values_digest: "d1".into(), ..first_seen("app", 5, Some(0), Some(0)) })]
fn steps_of_a_later_run_are_a_proof(#[case] latch: PackageRecord) {
    let seen = Seen {
        latch: Some(latch),
        ..Seen::waiting()
    };
    let judged = seen.judge(&APPLIED);
    assert!(judged.ready() && !judged.settled);
    assert!(!seen.judge(&TARGET).ready());
}

/// A latch suffices for the proven readiness and for a lower one.
#[rstest]
#[case::applied(Some("Applied"), &APPLIED, true)]
#[case::reconciled(Some("Reconciled"), &TARGET, true)]
#[case::more_than_asked_for(Some("Reconciled"), &APPLIED, true)]
#[case::less_than_asked_for(Some("Applied"), &TARGET, false)]
#[case::a_record_that_does_not_say(None, &TARGET, false)]
#[case::a_record_that_does_not_say_is_no_better(None, &APPLIED, false)]
fn a_latch_holds_for_the_readiness_that_was_proven(
    #[case] proven: Option<&str>,
    #[case] asked: &Target<'_>,
    #[case] holds: bool,
) {
    let latch = proof_of(proven);
    let seen = Seen {
        latch: Some(latch.clone()),
        ..Seen::resync()
    };
    assert_eq!(seen.judge(asked).ready(), holds, "while it reconciles");
    assert_eq!(
        judge_from_record(asked, Some(&latch)).ready(),
        holds,
        "while it is silent"
    );
    let fully = holds && proven == Some("Reconciled");
    assert_eq!(seen.judge(asked).settled, fully);
    assert_eq!(judge_from_record(asked, Some(&latch)).settled, fully);
}

#[test]
fn applied_suffices_if_the_policy_allows_it() {
    let seen = Seen::waiting();
    assert!(!seen.judge(&TARGET).ready());
    let judged = seen.judge(&APPLIED);
    assert!(judged.ready() && !judged.settled);

    let still = Seen {
        latch: Some(judged.record),
        ..Seen::waiting()
    };
    let judged = still.judge(&APPLIED);
    assert!(judged.ready() && !judged.settled);
}

#[test]
fn applied_needs_everything_but_the_end() {
    for (name, edit, _) in WRONG {
        let mut seen = Seen::waiting();
        edit(&mut seen);
        let waits = [
            "install reconciling",
            "app reconciling",
            "install succeeded and reconciling",
        ]
        .contains(name);
        assert_eq!(seen.judge(&APPLIED).ready(), waits, "{name}");
    }
}

#[test]
fn reconciled_is_applied_too() {
    let judged = Seen::proven().judge(&APPLIED);
    assert!(judged.ready() && judged.settled);
}

/// The read before a gate opens is judged with the recorded latch. Otherwise a fresh judgement would be its own latch.
#[test]
fn an_unrecorded_judgement_confirms_nothing() {
    let judged = Seen::proven().judge(&TARGET);
    assert!(judged.ready());
    let mut fresh = Seen::resync();
    fresh.latch = None;
    assert!(!fresh.judge(&TARGET).ready(), "nothing was recorded");
    fresh.latch = Some(judged.record);
    assert!(fresh.judge(&TARGET).ready(), "once it is recorded it is a latch");
}

/// The first seen run of a generation is in the record before a later run may count.
#[test]
fn a_run_that_is_first_seen_is_recorded_and_proves_nothing_yet() {
    let seen = Seen {
        latch: None,
        ..Seen::waiting()
    };
    let first = seen.judge(&APPLIED);
    assert!(!first.ready());
    let run = first.record.first_seen_run.clone().unwrap();
    assert_eq!((run.app_uid.as_str(), run.app_generation), ("app", 5));
    assert_eq!(
        (&run.fetch_started_at, &run.deploy_started_at),
        (&Some(then()), &Some(then()))
    );

    let mut again = Seen {
        latch: Some(first.record),
        ..Seen::waiting()
    };
    assert!(!again.judge(&APPLIED).ready(), "the same run");
    run_again(&mut again, 2);
    let later = again.judge(&APPLIED);
    assert!(later.ready(), "a later run");
    assert_eq!(later.record.first_seen_run, Some(run), "the first seen run stays");
    assert_eq!(
        seen.judge(&TARGET).record.first_seen_run,
        None,
        "kept for Applied only"
    );
}

/// A watch reports states that are gone before the next reconcile. They are recorded like others, and count only then.
#[test]
fn a_run_that_a_watch_reported_first_is_recorded_and_proves_nothing_yet() {
    let mut before = Seen::waiting();
    before.app_status().fetch.as_mut().unwrap().started_at = Some(Time(Timestamp::UNIX_EPOCH));
    before.app_status().deploy.as_mut().unwrap().started_at = Some(Time(Timestamp::UNIX_EPOCH));
    let noted = first_seen_run(None, before.app.as_ref());
    let unrecorded = Seen {
        latch: None,
        ..Seen::waiting()
    };
    let judged = unrecorded.judge(&APPLIED).noting(noted.as_ref());
    assert!(!judged.ready());
    assert_eq!(judged.record.first_seen_run, noted);
    let recorded = Seen {
        latch: Some(judged.record),
        ..Seen::waiting()
    };
    assert!(recorded.judge(&APPLIED).ready());

    let other_generation = noted.map(|run| FirstSeenRun {
        app_generation: 4,
        ..run
    });
    let judged = unrecorded.judge(&APPLIED).noting(other_generation.as_ref());
    assert_eq!(
        judged.record.first_seen_run,
        first_seen_run(None, unrecorded.app.as_ref())
    );
}

/// An App that is missing or not observed neither adds nor removes a first seen run.
#[rstest]
#[case::not_observed(|s: &mut Seen| s.app().metadata.generation = Some(6))]
#[case::gone(|s: &mut Seen| s.app = None)]
fn a_first_seen_run_is_kept(#[case] edit: Edit) {
    let mut seen = Seen::waiting();
    edit(&mut seen);
    let kept = seen.latch().first_seen_run.clone();
    assert!(kept.is_some());
    assert_eq!(seen.judge(&APPLIED).record.first_seen_run, kept);
    let latch = PackageRecord {
        values_digest: "d1".into(),
        ..seen.latch().clone()
    };
    assert_eq!(
        judge_from_record(&APPLIED, Some(&latch)).record.first_seen_run,
        kept
    );
    assert_eq!(
        judge(&APPLIED, None, None, Some(&latch)).record.first_seen_run,
        kept
    );
}

/// kapp times out, and kapp-controller retries: a package whose first seen run was its own is proven by the next one.
#[test]
fn a_run_that_was_given_up_is_followed_by_one_that_counts() {
    let mut seen = Seen {
        latch: None,
        ..Seen::waiting()
    };
    seen.latch = Some(seen.judge(&APPLIED).record);
    seen.app_status().conditions = is("ReconcileFailed");
    seen.app_status().deploy.as_mut().unwrap().finished = true;
    let failed = seen.judge(&APPLIED).record;
    assert_eq!(failed.state, PackageState::Failed);
    seen.latch = Some(failed);
    seen.app_status().conditions = is("Reconciling");
    seen.app_status().deploy.as_mut().unwrap().finished = false;
    run_again(&mut seen, 2);
    assert!(seen.judge(&APPLIED).ready());
}

/// All steps of the App are those of a run that began at `second`.
fn run_again(seen: &mut Seen, second: i64) {
    let time = || Some(Time(Timestamp::from_second(second).unwrap()));
    let status = seen.app_status();
    for step in [status.fetch.as_mut(), status.template.as_mut()] {
        let step = step.unwrap();
        (step.started_at, step.updated_at) = (time(), time());
    }
    status.deploy.as_mut().unwrap().started_at = time();
}
