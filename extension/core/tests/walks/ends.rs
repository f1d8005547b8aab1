//! Final states of walks.

use rstest::rstest;
use serde_json::Value;

use crate::{
    fault::Fault,
    objects::HIGHER_RELEASE,
    random::number,
    servers::Place,
    users::Edit,
    walk::{Step, Walk},
};

/// Fields with times and counters. Redeployed packages also have other digests.
const PASSING: [&str; 26] = [
    "writtenAt",
    "repairs",
    "valuesDigest",
    "syncPeriod",
    "resourceVersion",
    "generation",
    "observedGeneration",
    "observedClusterGeneration",
    "observedBootstrapGeneration",
    "appGeneration",
    "firstSeenRun",
    "lastTransitionTime",
    "startedAt",
    "updatedAt",
    "begunAt",
    "readyAt",
    "releasedAt",
    "completedAt",
    "settlingSince",
    "since",
    "began",
    "released",
    "ended",
    "cause",
    "longestWait",
    "longestWaitSeconds",
];

fn lasting(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !PASSING.contains(&name.as_str()));
            fields.values_mut().for_each(lasting);
        }
        Value::Array(values) => values.iter_mut().for_each(lasting),
        Value::String(text) => without_digest(text),
        _ => {}
    }
}

fn without_digest(name: &mut String) {
    const BEFORE: &str = "-data-values-";
    if let Some(at) = name.find(BEFORE) {
        name.truncate(at + BEFORE.len());
    }
}

fn end(of: &Walk) -> Vec<(Place, Value)> {
    let deleting = of.is_deleting();
    // Leftover values of an earlier version are removed when the next upgrade completes.
    let objects = of
        .servers
        .all()
        .filter(|(place, _)| !place.0 || place.1 != "secrets");
    let objects = objects.map(|(place, object)| {
        let mut object = object.clone();
        lasting(&mut object);
        // A deletion writes no conditions of packages, so earlier ones stay.
        if let Some(conditions) = object.pointer_mut("/status/conditions").filter(|_| deleting) {
            conditions.take();
        }
        // The order of conditions depends on the order of observations.
        let conditions = object.pointer_mut("/status/conditions");
        if let Some(conditions) = conditions.and_then(Value::as_array_mut) {
            conditions.sort_by_key(|condition| condition["type"].to_string());
        }
        let mut place = place.clone();
        without_digest(&mut place.3);
        (place, object)
    });
    objects.collect()
}

/// Creates the Cluster, makes the edit and completes the walk.
fn ended(course: Course, ends_at: (usize, Option<Fault>)) -> Walk {
    let Course { begin, edit, finish } = course;
    let mut walk = begin();
    walk.ends_at = Some(ends_at);
    // Enough also for a disturbed creation.
    walk.take(&[Step::Round; 8]);
    walk.step(Step::User(edit));
    finish(&mut walk);
    walk
}

/// A walk with one edit.
#[derive(Clone, Copy)]
struct Course {
    begin: fn() -> Walk,
    edit: Edit,
    finish: fn(&mut Walk),
}

const fn course(edit: Edit) -> Course {
    Course {
        begin: Walk::new,
        edit,
        finish: Walk::finish,
    }
}

/// Machines are replaced by those of a higher release.
const SWAP: Course = Course {
    begin: Walk::with_images,
    edit: Edit::Label(HIGHER_RELEASE),
    finish: Walk::finish_swap,
};

/// Number of no step.
const NEVER: usize = usize::MAX;

/// A crash before the step, a write without a response, or a refused write: each at a sixth of all steps, by `SEED`.
#[rstest]
#[case::of_an_upgrade(course(Edit::Target(1)))]
#[case::of_a_deletion(course(Edit::Delete))]
#[case::of_a_swap(SWAP)]
fn a_disturbance_at_any_step_leads_to_the_same_end(#[case] course: Course) {
    let undisturbed = ended(course, (NEVER, None));
    let wanted = end(&undisturbed);
    let faults = [None, Some(Fault::Unanswered), Some(Fault::Refused(503))];
    let seed = number("SEED", 0_usize);
    for at in (seed % 2..undisturbed.led()).step_by(2) {
        let fault = faults[(at / 2 + seed) % 3];
        let disturbed = ended(course, (at, fault));
        assert_eq!(
            disturbed.swaps.written, undisturbed.swaps.written,
            "{fault:?} at step {at}"
        );
        let found = end(&disturbed);
        let differs = found.iter().zip(&wanted).find(|(found, wanted)| found != wanted);
        assert!(found == wanted, "{fault:?} at step {at}: {differs:#?}");
    }
}

/// The next run starts before any reconcile observes the failure.
#[test]
fn a_run_that_fails_after_a_proof_withdraws_it() {
    let mut walk = Walk::new();
    walk.take(&[
        Step::User(Edit::Target(1)),
        Step::Round,
        Step::Round,
        Step::Begin(0),
        Step::End(0, false),
        Step::Begin(0),
        Step::Lead(0, Fault::None),
    ]);
    walk.calm();
    walk.finish();
}
