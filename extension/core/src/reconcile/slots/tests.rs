use super::{queue::ASKS, *};
use crate::protocol::{Failure, ReconcileFailure, Server};

fn limiter(concurrency: u16, uids: &[&str], now: Instant) -> Troubles {
    let mut limiter = Troubles::new(concurrency);
    for uid in uids {
        limiter.failed(uid, now);
    }
    limiter
}

fn granted(limiter: &mut Troubles, uids: &[&str], now: Instant) -> usize {
    let turns = uids.iter().map(|uid| limiter.turn(uid, now));
    turns.filter(|turn| !matches!(turn, Turn::Later(_))).count()
}

fn conflict() -> Error {
    Error::Refused(Failure {
        code: Some(409),
        ..Failure::other(Server::Management, "a conflict")
    })
}

#[test]
fn limited_clusters_get_half_of_the_slots() {
    let now = Instant::now();
    let mut limiter = limiter(4, &["a", "b", "c"], now);
    assert_eq!(granted(&mut limiter, &["a", "b", "c"], now), 2);
    let others = granted(&mut limiter, &["healthy", "other"], now);
    assert_eq!(others, 2, "others have no limit");
    limiter.release();
    let next = granted(&mut limiter, &["c"], now);
    assert_eq!(next, 1, "a finished reconcile releases its slot");
}

#[test]
fn limited_clusters_always_get_one_slot() {
    let now = Instant::now();
    assert_eq!(granted(&mut limiter(1, &["a"], now), &["a"], now), 1);
}

#[test]
fn a_slow_reconcile_limits_a_cluster_until_quick_ones_follow_for_a_while() {
    let (mut limiter, began) = (limiter(2, &[], Instant::now()), Instant::now());
    let mut turn = |passed: Instant, now: Instant| {
        limiter.ended("a", Ok(()), passed, now);
        let turn = limiter.turn("a", now);
        limiter.release();
        turn
    };
    assert_eq!(turn(began, began + SLOW), Turn::WithSlot);
    let later = began + SLOW;
    assert_eq!(turn(later, later), Turn::WithSlot);
    let later = later + REMEMBERED;
    assert_eq!(turn(later, later), Turn::Granted);
}

#[test]
fn a_slow_reconcile_without_a_slot_limits_its_cluster() {
    let now = Instant::now();
    let mut limiter = limiter(1, &[], now);
    assert_eq!(limiter.slow("a", now), Ok(()), "a slot is free");
    assert!(limiter.slow("b", now).is_err_and(|wait| wait <= MIN_DELAY * 2));
    assert!(matches!(limiter.turn("b", now), Turn::Later(_)), "all are taken");
    let hold = limiter.hold_while_waiting("b", now).map(|hold| hold.reason);
    assert_eq!(hold, Some(GateReason::ReconcileTimedOut));
    limiter.release();
    assert_eq!(limiter.turn("b", now), Turn::WithSlot);
    limiter.ended("b", Ok(()), now, now);
    assert_eq!(limiter.hold_while_waiting("b", now), None);
}

#[test]
fn a_cluster_that_waits_long_is_held() {
    let now = Instant::now();
    let mut limiter = limiter(1, &["a", "b"], now);
    assert_eq!(limiter.turn("a", now), Turn::WithSlot);
    assert!(matches!(limiter.turn("b", now), Turn::Later(_)));
    let nearly = now + UNSEEN.saturating_sub(Duration::from_millis(1));
    assert_eq!(limiter.hold_while_waiting("b", nearly), None);
    assert!(limiter.hold_while_waiting("b", now + UNSEEN).is_some());
    assert_eq!(
        limiter.hold_while_waiting("a", now + UNSEEN),
        None,
        "its reconcile is running"
    );
}

#[test]
fn a_free_slot_goes_to_the_longest_wait() {
    let began = Instant::now();
    let mut limiter = limiter(1, &["a", "b", "c"], began);
    let gets = |limiter: &mut Troubles, uid, now| limiter.turn(uid, now) == Turn::WithSlot;
    assert!(gets(&mut limiter, "a", began) && !gets(&mut limiter, "b", began));
    let now = began + ASKS / 2;
    assert!(!gets(&mut limiter, "c", now) && !gets(&mut limiter, "b", now));
    limiter.release();
    assert!(!gets(&mut limiter, "c", now), "b has waited longer");
    assert!(gets(&mut limiter, "b", now));
    limiter.release();
    assert!(gets(&mut limiter, "c", now));
    limiter.release();

    assert!(gets(&mut limiter, "a", now) && !gets(&mut limiter, "b", now));
    assert!(!gets(&mut limiter, "c", now + ASKS / 2));
    limiter.release();
    assert!(gets(&mut limiter, "c", now + ASKS), "b no longer requests a slot");
}

#[test]
fn failures_have_growing_delays() {
    let now = Instant::now();
    let mut limiter = limiter(2, &[], now);
    assert!(limiter.failed("a", now) <= MIN_DELAY * 2);
    let last = (0..40).map(|_| limiter.failed("a", now)).last();
    assert!(last >= Some(MAX_DELAY / 2));
    limiter.ended("a", Ok(()), now, now);
    assert!(limiter.failed("a", now) <= MIN_DELAY * 2, "the backoff is reset");
    limiter.forget("a");
    assert_eq!(limiter.turn("a", now), Turn::Granted);
}

/// Returns, for each of `errors` errors, whether it closes the gates. The errors are `apart` from each other.
fn closes(error: &Error, errors: u64, apart: Duration) -> Vec<bool> {
    let began = Instant::now();
    let mut limiter = limiter(2, &[], began);
    let now = |number: u64| began + apart * u32::try_from(number).unwrap();
    let mut ended = |number| limiter.ended("a", Err(error), now(number), now(number)).is_some();
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

#[test]
fn few_conflicts_are_retried_soon() {
    let now = Instant::now();
    let mut limiter = limiter(2, &[], now);
    let error = conflict();
    let mut again = || {
        limiter.ended("a", Err(&error), now, now);
        limiter.again("a", &error, now)
    };
    let soon = [100, 200, 400, 800].map(|millis| Again::Soon(Duration::from_millis(millis)));
    assert_eq!([(); 4].map(|()| again()), soon);
    assert!(matches!(again(), Again::Later(_)));
}
