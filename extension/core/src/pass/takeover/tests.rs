use std::sync::Arc;

use sluice_crds::labels::finalizer;

use super::*;
use crate::pass::{
    Memory,
    tests::{clock, facts},
};

/// It would be removed and set again without an end.
#[test]
fn what_is_there_again_is_said_and_left() {
    let (mut facts, clock) = (facts(), clock());
    let cluster = Arc::make_mut(&mut facts.cluster);
    cluster.metadata.finalizers = Some(vec![finalizer::LEGACY_ADDON.to_owned()]);
    cluster.metadata.resource_version = Some("9".to_owned());
    let look = |memory: &Memory| {
        let known = Known::new(&facts, memory, clock);
        let mut effects = Effects::of(memory);
        let taken = take_over(&known, &mut effects);
        (taken, effects)
    };
    let (first, _) = look(&Memory::default());
    assert!(
        matches!(first, Err(Stop::Need(asks)) if asks.len() == 2),
        "it is looked for"
    );

    let mut memory = Memory::default();
    memory
        .removals
        .removed(Thing::Cluster, "9".to_owned(), clock.instant);
    let (seen, effects) = look(&memory);
    let seen = seen.unwrap();
    assert_eq!(
        (seen.said(), effects.events.len()),
        (None, 0),
        "the watch is behind"
    );

    memory
        .removals
        .removed(Thing::Cluster, "7".to_owned(), clock.instant);
    let (taken, effects) = look(&memory);
    let taken = taken.unwrap();
    let (reason, message) = taken.said().unwrap();
    assert_eq!(reason, "AddonsManagerRuns");
    assert!(
        message.contains("finalizer") && message.contains("addons-manager"),
        "{message}"
    );
    assert_eq!(
        taken.hold().map(|hold| hold.reason),
        Some(GateReason::AddonsManagerRuns)
    );
    assert!(taken.ends().is_none() && effects.events.len() == 1);
    assert!(matches!(taken.sooner(Done::Forget), Done::RequeueAfter(_)));
}
