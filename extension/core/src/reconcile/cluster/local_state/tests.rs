use jiff::Timestamp;

use super::*;
use crate::schedule::spread;

const OVER: Duration = Duration::from_mins(10);

#[test]
fn a_settled_cluster_has_one_drift_check_at_its_time_in_each_period() {
    let (mut local, began) = (LocalState::default(), Instant::now());
    let period = SyncPeriod {
        length: OVER,
        since: began,
    };
    let time = spread("uid", OVER);
    let left = |local: &mut LocalState, at| local.until_drift_check("uid", period, at);
    assert_eq!(left(&mut local, began), Some(time));
    let nearly = began + time.saturating_sub(Duration::from_millis(1));
    assert_eq!(left(&mut local, nearly), Some(Duration::from_millis(1)));
    assert_eq!(left(&mut local, began + time), None);
    assert_eq!(left(&mut local, began + OVER), None, "until the check was made");
    local.drift_check_made(OVER, began + OVER);
    assert_eq!(left(&mut local, began + OVER), Some(OVER));
    local.forget_drift_check();
    assert_eq!(left(&mut local, began + OVER), Some(time), "settled again");
}

#[test]
fn the_requeue_delay_of_a_waiting_cluster_grows_and_is_spread() {
    let began = Instant::now();
    let mut local = LocalState::default();
    let mut wait = |uid, waited| local.wait(uid, began + Duration::from_secs(waited)).as_millis();
    let (shortest, longest) = (7_500..=10_000, 45_000..=60_000);
    assert!(shortest.contains(&wait("uid", 0)) && shortest.contains(&wait("uid", 100)));
    assert!(longest.contains(&wait("uid", 600)) && longest.contains(&wait("uid", 6_000)));
    assert_ne!(wait("one", 600), wait("two", 600));
    local.waited();
    let again = local.wait("uid", began + Duration::from_mins(100));
    assert!(shortest.contains(&again.as_millis()), "it waits again");
}

#[test]
fn a_cluster_rests_until_a_change() {
    let mut local = LocalState::default();
    let from = |own, catalogue| PlannedFrom { own, catalogue };
    assert!(!local.rests(from(1, 1), false), "never planned");
    assert!(local.rests(from(1, 1), true), "settled by its record");
    assert!(local.rests(from(1, 1), false));
    assert!(!local.rests(from(2, 1), true), "planned from something else");
    assert!(local.rests(from(1, 2), true), "a Package was edited");
    assert!(!local.rests(from(1, 2), false), "and it is not settled");
    local.end_rest();
    assert!(!local.rests(from(1, 1), true), "requeued");
    local.rest(Some(from(1, 1)));
    assert!(local.rests(from(1, 1), true));
    let mut requeued = LocalState::default();
    requeued.end_rest();
    assert!(
        !requeued.rests(from(1, 1), true),
        "requeued before its first reconcile"
    );
}

#[test]
fn needed_objects_are_checked_periodically() {
    use Need::{NextGate, Nothing, OpenGate, Proof};
    let (mut local, began) = (LocalState::default(), Instant::now());
    let at = |seconds| began + Duration::from_secs(seconds);
    local.use_connection(1);
    assert!(local.is_due("Secret one", "a", OVER, at(0)), "never checked");
    local.checked("Secret one", "a", at(0));
    let due = |need: Need, second| local.is_due("Secret one", "a", need.check_interval(OVER), at(second));
    assert!(!due(OpenGate, 1), "in the same burst");
    assert!(due(OpenGate, 10), "at the next requeue");
    for need in [Proof, NextGate] {
        assert!(!due(need, 10), "at the next requeue");
        assert!(due(need, 20), "at the one after it");
    }
    assert!(!due(Nothing, 599), "not needed");
    assert!(due(Nothing, 600), "once in each period");
    let short = Duration::from_secs(1);
    let (none, proof) = (Nothing.check_interval(short), Proof.check_interval(short));
    assert_eq!(none, proof, "no more often than during an upgrade");
    assert!(local.is_due("Secret one", "b", OVER, at(1)), "of other content");
    assert!(local.is_due("Secret two", "a", OVER, at(1)), "another one");
}

#[test]
fn checks_are_discarded_with_their_connection() {
    let (mut local, now) = (LocalState::default(), Instant::now());
    let is_due = |local: &LocalState| local.is_due("Secret one", "a", OVER, now);
    local.use_connection(1);
    local.checked("Secret one", "a", now);
    local.use_connection(1);
    assert!(!is_due(&local), "over the same connection");
    local.use_connection(2);
    assert!(is_due(&local), "over another connection");
    local.checked("Secret one", "a", now);
    local.forget_checks();
    assert!(is_due(&local), "forgotten");
}

#[test]
fn the_last_check_behind_an_open_gate_stays_valid_for_a_while() {
    use Need::{Nothing, OpenGate, Proof};
    let (mut local, began) = (LocalState::default(), Instant::now());
    let at = |seconds| began + Duration::from_secs(seconds);
    assert!(
        !local.is_believed("Secret one", "a", OpenGate, at(0)),
        "never checked"
    );
    local.checked("Secret one", "a", at(0));
    assert!(local.is_believed("Secret one", "a", OpenGate, at(59)));
    assert!(!local.is_believed("Secret one", "a", OpenGate, at(60)));
    assert!(
        !local.is_believed("Secret one", "b", OpenGate, at(1)),
        "of other content"
    );
    for need in [Proof, Nothing] {
        assert!(!local.is_believed("Secret one", "a", need, at(1)));
    }
}

/// Returns an App whose own timestamps show progress at second 0, if `moved`.
fn app(name: &str, version: &str, moved: bool) -> App {
    let moved = moved.then(|| serde_json::json!({"fetch": {"startedAt": "1970-01-01T00:00:00Z"}}));
    let metadata = serde_json::json!({"name": name, "resourceVersion": version});
    serde_json::from_value(serde_json::json!({
        "apiVersion": "kappctrl.k14s.io/v1alpha1", "kind": "App", "metadata": metadata, "spec": {}, "status": moved,
    }))
    .unwrap()
}

fn clock(began: Instant, second: u64) -> Clock {
    Clock {
        instant: began + Duration::from_secs(second),
        now: Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second.cast_signed()),
    }
}

/// Returns whether the App is found stalled at each of these seconds.
fn found(moved: bool, seconds: &[u64]) -> Vec<bool> {
    let (mut local, began) = (LocalState::default(), Instant::now());
    let at = |&second: &u64| local.app_resync_is_due(&app("one", "7", moved), clock(began, second));
    seconds.iter().map(at).collect()
}

#[test]
fn an_app_that_changes_is_never_stalled() {
    let (mut local, began) = (LocalState::default(), Instant::now());
    for step in 0..10 {
        let app = app("one", &step.to_string(), false);
        assert!(!local.app_resync_is_due(&app, clock(began, 90 * step)));
    }
}

#[test]
fn a_stalled_app_is_found_once_for_each_period() {
    assert_eq!(
        found(false, &[0, 60, 89, 90, 100, 179, 180]),
        [false, false, false, true, false, false, true]
    );
}

/// A new leader has no observations; with quick changes of leaders, none would ever find the stalled App.
#[test]
fn an_app_that_has_not_moved_for_long_is_found_soon_and_then_once_for_each_period() {
    assert_eq!(
        found(true, &[100, 105, 109, 110, 115, 130, 199, 200]),
        [false, false, false, true, false, false, false, true]
    );
    assert_eq!(found(true, &[50, 60, 89, 90]), [false, false, false, true]);
}

#[test]
fn each_app_has_its_own_time() {
    let (mut local, began) = (LocalState::default(), Instant::now());
    assert!(!local.app_resync_is_due(&app("one", "7", false), clock(began, 0)));
    assert!(!local.app_resync_is_due(&app("two", "7", false), clock(began, 90)));
    assert!(local.app_resync_is_due(&app("one", "7", false), clock(began, 90)));
}
