use sluice_crds::run::Outcome;

use super::*;

const V35: &str = "v1.35.4";
const V36: &str = "v1.36.3";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Returns the record of a rollback from `hop`, or of an upgrade.
fn record(hop: Option<&str>, outcome: Option<Outcome>) -> UpgradeRecord {
    UpgradeRecord {
        to: V35.to_owned(),
        outcome,
        rollback: hop.map(|hop| Rollback {
            hop: hop.to_owned(),
            release: "v1.35.4---1".to_owned(),
        }),
        ..UpgradeRecord::default()
    }
}

/// Returns status, reason, message and transition time of the condition.
fn shown(conditions: &[Condition]) -> Option<(&str, &str, &str, i64)> {
    let found = condition(conditions)?;
    let since = found.last_transition_time.0.as_second();
    Some((&found.status, &found.reason, &found.message, since))
}

/// Returns the event of the change from `before` to `now`, as the reason and whether it is a warning.
fn event(before: &[Condition], now: &[Condition]) -> Option<(&'static str, bool)> {
    let status = |conditions: &[Condition]| ClusterBootstrapStatus {
        conditions: conditions.to_vec(),
        ..ClusterBootstrapStatus::default()
    };
    match rollback_event(&status(before), &status(now))? {
        Event::Said(reason, _) => Some((reason, false)),
        Event::Warned(reason, _) => Some((reason, true)),
        Event::Held(hold) => panic!("{hold}"),
        Event::Overridden(note) => panic!("{note}"),
    }
}

#[test]
fn the_condition_and_its_events_follow_a_rollback() {
    let cancelled = record(None, Some(Outcome::Cancelled));
    let refused = with_rollback(Vec::new(), &cancelled, Some("of v1"), &[], at(1));
    assert_eq!(shown(&refused), Some(("False", "RollbackRefused", "of v1", 1)));
    assert_eq!(event(&[], &refused), Some(("RollbackRefused", true)));

    // A user has corrected the annotation.
    let open = record(Some(V36), None);
    let rolling = with_rollback(refused.clone(), &open, None, &[], at(2));
    let text = "packages go back to those of v1.35.4---1: the upgrade to v1.36.3 was cancelled";
    assert_eq!(shown(&rolling), Some(("True", "RollingBack", text, 2)));
    assert_eq!(event(&refused, &rolling), Some(("RollingBack", false)));
    let again = with_rollback(rolling.clone(), &open, None, &[], at(3));
    assert_eq!(again, rolling);
    assert_eq!(event(&rolling, &again), None);

    let staying = [
        ("contour".to_owned(), Stays::Policy),
        ("metrics".to_owned(), Stays::Package),
        ("velero".to_owned(), Stays::Added),
    ];
    let closed = record(Some(V36), Some(Outcome::RolledBack));
    let rolled = with_rollback(rolling.clone(), &closed, None, &staying, at(4));
    let (status, reason, message, since) = shown(&rolled).unwrap();
    assert_eq!((status, reason, since), ("True", "RolledBack", 2));
    let ends = "; these stay: contour (spec.upgradePolicy), metrics (annotation of its Package), velero (not there before)";
    assert!(message.ends_with(ends), "{message}");
    assert_eq!(event(&rolling, &rolled), Some(("RolledBack", false)));

    // Later edits change nothing, and the next upgrade ends it.
    assert_eq!(with_rollback(rolled.clone(), &closed, None, &[], at(5)), rolled);
    let next = with_rollback(rolled.clone(), &record(None, None), None, &staying, at(6));
    assert_eq!(next, []);
    assert_eq!(event(&rolled, &next), None);
}

#[test]
fn an_upgrade_to_another_release_is_told_apart() {
    let conditions = with_rollback(Vec::new(), &record(Some(V35), None), None, &[], at(1));
    let (.., message, _) = shown(&conditions).unwrap();
    assert!(message.contains("another release of v1.35.4"), "{message}");
}

/// Users edit the annotation, and its content reaches the text.
#[test]
fn texts_are_bounded() {
    for why in ["x".repeat(65_536), format!("\u{1b}[2J\n{}", "y".repeat(2000))] {
        let refused = with_rollback(Vec::new(), &record(None, None), Some(&why), &[], at(1));
        let (.., message, _) = shown(&refused).unwrap();
        assert!(message.chars().count() <= LONGEST && !message.contains(char::is_control));
    }
}
