use super::{queue::ASKS, *};
use crate::protocol::{Failure, ReconcileFailure, Server};

fn troubles(concurrency: u16, uids: &[&str], now: Instant) -> Troubles {
    let mut troubles = Troubles::new(concurrency);
    for uid in uids {
        troubles.failed(uid, now);
    }
    troubles
}

fn granted(troubles: &mut Troubles, uids: &[&str], now: Instant) -> usize {
    let turns = uids.iter().map(|uid| troubles.turn(uid, now));
    turns.filter(|turn| !matches!(turn, Turn::Later(_))).count()
}

fn conflict() -> Error {
    Error::Refused(Failure {
        code: Some(409),
        ..Failure::other(Server::Management, "a conflict")
    })
}

#[test]
fn troubled_clusters_get_half_of_the_slots() {
    let now = Instant::now();
    let mut troubles = troubles(4, &["a", "b", "c"], now);
    assert_eq!(granted(&mut troubles, &["a", "b", "c"], now), 2);
    let others = granted(&mut troubles, &["healthy", "other"], now);
    assert_eq!(others, 2, "others have no limit");
    troubles.release();
    let next = granted(&mut troubles, &["c"], now);
    assert_eq!(next, 1, "a pass that is over gives its slot back");
}

#[test]
fn one_slot_is_always_there_for_them() {
    let now = Instant::now();
    assert_eq!(granted(&mut troubles(1, &["a"], now), &["a"], now), 1);
}

#[test]
fn a_slow_pass_is_trouble_and_quick_ones_end_it_after_a_while() {
    let (mut troubles, began) = (troubles(2, &[], Instant::now()), Instant::now());
    let mut turn = |passed: Instant, now: Instant| {
        troubles.ended("a", Ok(()), passed, now);
        let turn = troubles.turn("a", now);
        troubles.release();
        turn
    };
    assert_eq!(turn(began, began + SLOW), Turn::WithSlot);
    let later = began + SLOW;
    assert_eq!(turn(later, later), Turn::WithSlot);
    let later = later + REMEMBERED;
    assert_eq!(turn(later, later), Turn::Granted);
}

#[test]
fn a_slow_pass_without_a_slot_is_one_of_a_troubled_cluster_next() {
    let now = Instant::now();
    let mut troubles = troubles(1, &[], now);
    assert_eq!(troubles.slow("a", now), Ok(()), "a slot is free");
    assert!(troubles.slow("b", now).is_err_and(|wait| wait <= MIN_DELAY * 2));
    assert!(matches!(troubles.turn("b", now), Turn::Later(_)), "all are taken");
    let hold = troubles.hold_while_waiting("b", now).map(|hold| hold.reason);
    assert_eq!(hold, Some(GateReason::ReconcileTimedOut));
    troubles.release();
    assert_eq!(troubles.turn("b", now), Turn::WithSlot);
    troubles.ended("b", Ok(()), now, now);
    assert_eq!(troubles.hold_while_waiting("b", now), None);
}

#[test]
fn a_cluster_that_waits_for_long_is_unseen() {
    let now = Instant::now();
    let mut troubles = troubles(1, &["a", "b"], now);
    assert_eq!(troubles.turn("a", now), Turn::WithSlot);
    assert!(matches!(troubles.turn("b", now), Turn::Later(_)));
    let nearly = now + UNSEEN.saturating_sub(Duration::from_millis(1));
    assert_eq!(troubles.hold_while_waiting("b", nearly), None);
    assert!(troubles.hold_while_waiting("b", now + UNSEEN).is_some());
    assert_eq!(
        troubles.hold_while_waiting("a", now + UNSEEN),
        None,
        "its pass is under way"
    );
}

#[test]
fn a_free_slot_is_for_the_cluster_that_has_waited_longest() {
    let began = Instant::now();
    let mut troubles = troubles(1, &["a", "b", "c"], began);
    let asks = |troubles: &mut Troubles, uid, now| troubles.turn(uid, now) == Turn::WithSlot;
    assert!(asks(&mut troubles, "a", began) && !asks(&mut troubles, "b", began));
    let now = began + ASKS / 2;
    assert!(!asks(&mut troubles, "c", now) && !asks(&mut troubles, "b", now));
    troubles.release();
    assert!(!asks(&mut troubles, "c", now), "b has waited longer");
    assert!(asks(&mut troubles, "b", now));
    troubles.release();
    assert!(asks(&mut troubles, "c", now));
    troubles.release();

    assert!(asks(&mut troubles, "a", now) && !asks(&mut troubles, "b", now));
    assert!(!asks(&mut troubles, "c", now + ASKS / 2));
    troubles.release();
    assert!(asks(&mut troubles, "c", now + ASKS), "b does not ask any more");
}

#[test]
fn failures_have_growing_delays() {
    let now = Instant::now();
    let mut troubles = troubles(2, &[], now);
    assert!(troubles.failed("a", now) <= MIN_DELAY * 2);
    let last = (0..40).map(|_| troubles.failed("a", now)).last();
    assert!(last >= Some(MAX_DELAY / 2));
    troubles.ended("a", Ok(()), now, now);
    assert!(troubles.failed("a", now) <= MIN_DELAY * 2, "begins again");
    troubles.forget("a");
    assert_eq!(troubles.turn("a", now), Turn::Granted);
}

/// After which of so many errors, one each second, the gates are closed.
fn closes(error: &Error, errors: u64, apart: Duration) -> Vec<bool> {
    let began = Instant::now();
    let mut troubles = troubles(2, &[], began);
    let now = |number: u64| began + apart * u32::try_from(number).unwrap();
    let mut ended = |number| {
        troubles
            .ended("a", Err(error), now(number), now(number))
            .is_some()
    };
    (0..errors).map(&mut ended).collect()
}

#[test]
fn errors_close_the_gates_when_they_do_not_end() {
    let refused = Error::Refused(Failure::other(Server::Management, ""));
    let moment = Duration::from_millis(10);
    assert_eq!(
        closes(&Error::Pass(ReconcileFailure::Panicked), 1, moment),
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
fn a_conflict_is_tried_again_in_a_moment_while_there_are_few() {
    let now = Instant::now();
    let mut troubles = troubles(2, &[], now);
    let error = conflict();
    let mut again = || {
        troubles.ended("a", Err(&error), now, now);
        troubles.again("a", &error, now)
    };
    let soon = [100, 200, 400, 800].map(|millis| Again::Soon(Duration::from_millis(millis)));
    assert_eq!([(); 4].map(|()| again()), soon);
    assert!(matches!(again(), Again::Later(_)));
}
