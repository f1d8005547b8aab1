use super::*;
use crate::protocol::{Failure, ReconcileFailure, Server};

fn conflict() -> Error {
    Error::Refused(Failure {
        code: Some(409),
        ..Failure::other(Server::Management, "a conflict")
    })
}

#[test]
fn a_slow_reconcile_limits_a_cluster_until_quick_ones_follow_for_a_while() {
    let (mut outcomes, began) = (Outcomes::default(), Instant::now());
    let mut ended = |began: Instant, now: Instant| {
        outcomes.ended("a", Ok(()), began, now);
        outcomes.needs_permit("a")
    };
    assert!(!ended(began, began), "a quick one");
    let slow = began + SLOW;
    assert!(ended(began, slow));
    let nearly = (slow + REMEMBERED).checked_sub(Duration::from_millis(1)).unwrap();
    assert!(ended(nearly, nearly));
    assert!(!ended(slow + REMEMBERED, slow + REMEMBERED));
}

#[test]
fn a_canceled_reconcile_limits_and_holds_its_cluster() {
    let (mut outcomes, now) = (Outcomes::default(), Instant::now());
    outcomes.canceled("a", now);
    assert!(outcomes.needs_permit("a") && !outcomes.needs_permit("b"));
    let hold = outcomes.waits("a", now).map_err(|hold| hold.reason);
    assert_eq!(hold, Err(GateReason::ReconcileTimedOut));
    outcomes.ended("a", Ok(()), now, now);
    assert_eq!(outcomes.waits("a", now), Ok(UNSEEN), "the record is complete");
}

#[test]
fn a_cluster_that_waits_long_is_held() {
    let (mut outcomes, now) = (Outcomes::default(), Instant::now());
    let moment = Duration::from_millis(1);
    assert_eq!(outcomes.waits("a", now), Ok(UNSEEN));
    let nearly = now + UNSEEN.saturating_sub(moment);
    assert_eq!(outcomes.waits("a", nearly), Ok(moment));
    assert!(outcomes.waits("a", now + UNSEEN).is_err());
    outcomes.ended("a", Ok(()), now, now + UNSEEN);
    assert!(outcomes.waits("a", now + UNSEEN).is_ok(), "another wait");
}

#[test]
fn failures_have_growing_delays() {
    let (mut outcomes, now) = (Outcomes::default(), Instant::now());
    assert!(outcomes.failed("a", now) <= MIN_DELAY * 2);
    let last = (0..40).map(|_| outcomes.failed("a", now)).last();
    assert!(last >= Some(MAX_DELAY / 2));
    assert!(
        outcomes.failed("b", now) <= MIN_DELAY * 2,
        "each Cluster has its own"
    );
    outcomes.ended("a", Ok(()), now, now);
    assert!(outcomes.failed("a", now) <= MIN_DELAY * 2, "the backoff is reset");
    outcomes.forget("a");
    assert!(!outcomes.needs_permit("a"));
}

/// Returns, for each of `errors` errors, whether it closes the gates. The errors are `apart` from each other.
fn closes(error: &Error, errors: u64, apart: Duration) -> Vec<bool> {
    let began = Instant::now();
    let mut outcomes = Outcomes::default();
    let now = |number: u64| began + apart * u32::try_from(number).unwrap();
    let mut ended = |number| {
        outcomes
            .ended("a", Err(error), now(number), now(number))
            .is_some()
    };
    (0..errors).map(&mut ended).collect()
}

#[test]
fn continuous_errors_close_the_gates() {
    let refused = Error::Refused(Failure::other(Server::Management, ""));
    let moment = Duration::from_millis(10);
    assert_eq!(
        closes(&Error::Failed(ReconcileFailure::Panicked), 1, moment),
        [true]
    );
    assert_eq!(closes(&refused, 3, moment), [false, true, true]);
    assert_eq!(
        closes(&conflict(), 6, moment),
        [false, false, false, false, true, true]
    );
    assert_eq!(
        closes(&conflict(), 2, SLOW + moment),
        [false, true],
        "after seconds"
    );
}

/// A reconcile may take seconds, on a busy machine or for a slow server.
#[test]
fn a_conflict_of_a_slow_reconcile_closes_no_gate() {
    let (mut outcomes, began) = (Outcomes::default(), Instant::now());
    let slow = SLOW * 2;
    let mut ended = |error: &Error, began: Instant| {
        let hold = outcomes.ended("a", Err(error), began, began + slow);
        hold.is_some()
    };
    assert!(!ended(&conflict(), began));
    assert!(
        ended(&conflict(), began + slow),
        "the gates are not stale for long"
    );
    let refused = Error::Refused(Failure::other(Server::Management, ""));
    let mut outcomes = Outcomes::default();
    assert!(outcomes.ended("a", Err(&refused), began, began + slow).is_some());
}

#[test]
fn few_conflicts_are_retried_soon() {
    let (mut outcomes, now, error) = (Outcomes::default(), Instant::now(), conflict());
    let mut soon = |completed: bool| {
        if completed {
            outcomes.ended("a", Ok(()), now, now);
        }
        outcomes.ended("a", Err(&error), now, now);
        let again = outcomes.again("a", &error, now);
        let soon = match again {
            Again::Soon(wait) => Some(wait.as_millis()),
            Again::Later(_) => None,
        };
        (soon, outcomes.needs_permit("a"))
    };
    for millis in [100, 200, 400, 800] {
        assert_eq!(soon(false), (Some(millis), false), "conflicts are no failures");
    }
    assert_eq!(soon(false), (None, true));
    assert_eq!(soon(true).0, Some(100), "of another row");
}
