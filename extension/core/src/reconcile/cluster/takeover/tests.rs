use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::labels::{annotation, finalizer};

use super::*;
use crate::reconcile::cluster::{
    Clock, Facts, LocalState,
    tests::{clock, facts},
};

/// Otherwise the leftover would be removed and restored endlessly.
#[test]
fn a_returned_leftover_is_reported_and_left_alone() {
    let (mut facts, clock) = (facts(), clock());
    let cluster = Arc::make_mut(&mut facts.cluster);
    cluster.metadata.finalizers = Some(vec![finalizer::LEGACY_ADDON.to_owned()]);
    cluster.metadata.resource_version = Some("9".to_owned());
    let reconcile = |local: &LocalState| {
        let context = Context::new(&facts, local, clock);
        let mut effects = Effects::of(local);
        let taken = take_over(&context, &mut effects);
        (taken, effects)
    };
    let (first, _) = reconcile(&LocalState::default());
    assert!(
        matches!(first, Err(Interrupt::Need(asks)) if asks.len() == 2),
        "leftovers are read"
    );

    let mut local = LocalState::default();
    local
        .removals
        .removed(Thing::Cluster, "9".to_owned(), clock.instant);
    let (seen, effects) = reconcile(&local);
    let seen = seen.unwrap();
    assert_eq!(
        (seen.said(), effects.events.len()),
        (None, 0),
        "the watch is behind"
    );

    local
        .removals
        .removed(Thing::Cluster, "7".to_owned(), clock.instant);
    let (taken, effects) = reconcile(&local);
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

/// The clock of the leader may differ from that of the API server, which has set the deletion timestamp.
#[test]
fn a_clock_that_is_ahead_releases_no_machine_before_its_packages() {
    let (mut facts, clock) = (facts(), clock());
    let cluster = Arc::make_mut(&mut facts.cluster);
    cluster.metadata.deletion_timestamp = Some(Time(clock.now));
    cluster.metadata.finalizers = Some(vec![finalizer::LEGACY_ADDON.to_owned()]);
    let let_go = (annotation::OK_TO_DELETE.to_owned(), String::new());
    cluster.metadata.annotations = Some([let_go].into());
    let minutes = SignedDuration::from_mins;
    let removes = |facts: &Facts, ahead: i64| {
        let clock = Clock {
            now: clock.now + minutes(ahead),
            ..clock
        };
        let local = LocalState::default();
        let context = Context::new(facts, &local, clock);
        let uninstalls = Done::RequeueAfter(Duration::from_secs(1));
        let taken = take_over_deleted(
            &context,
            &mut Effects::of(&local),
            TakenOver::default(),
            uninstalls,
        );
        matches!(taken, Err(Interrupt::Need(_)))
    };
    assert!(!removes(&facts, 11), "no response of the API server yet");
    facts.server_now = Some(clock.now + minutes(9));
    assert!(!removes(&facts, 11));
    facts.server_now = Some(clock.now + minutes(11));
    assert!(removes(&facts, 0));
}
