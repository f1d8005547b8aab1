//! Random expressions of random objects: nothing panics, each evaluation is within its bounds, and its result is that of the evaluator
//! with its own parser and its own values.
//!
//! `FUZZ_CASES` sets the number of cases or `FUZZ_SECONDS` their time, `SEED` their random seed.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails where its input or its expectation is wrong"
)]

mod objects;
mod reference;
mod texts;

use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_core::{
    gates::expression::{Cost, Expression, MAX_BYTES, MAX_OBJECT, MAX_STEPS, Variables},
    reasons::CheckReason,
};

/// Default number of cases, and default seed.
const CASES: u64 = 5_000;
const SEED: u64 = 7;

/// Longest compilation, in time of a processor.
const LONGEST: Duration = Duration::from_millis(250);

/// Message of a parser and of an evaluator that panicked.
const PANICKED: &str = "failed";

/// What became of the cases.
#[derive(Debug, Default)]
struct Outcomes {
    refused: u64,
    costly: u64,
    failed: u64,
    untrue: u64,
    true_: u64,
    compared: u64,
    slowest_text: Duration,
    slowest_evaluation: Duration,
    most: Cost,
}

/// Returns the number in an environment variable.
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn no_expression_escapes_its_bounds() {
    let seed = number("SEED").unwrap_or(SEED);
    let limit = number("FUZZ_SECONDS").map(Duration::from_secs);
    let cases = number("FUZZ_CASES").unwrap_or(if limit.is_some() { u64::MAX } else { CASES });
    let began = Instant::now();
    let mut outcomes = Outcomes::default();
    let mut case = 0;
    while case < cases && limit.is_none_or(|limit| began.elapsed() < limit) {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(case));
        let text = texts::text(&mut random);
        let object = objects::object(&mut random);
        // A failure names the case, which `SEED` and `FUZZ_CASES` make again.
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            try_one(&text, &object, &mut random, &mut outcomes);
        }));
        if made.is_err() {
            let object: String = object.to_string().chars().take(2_000).collect();
            panic!("seed {seed}, case {case}: {text:?} of {object}");
        }
        case += 1;
    }
    eprintln!("seed {seed}: {case} cases in {:?}, {outcomes:?}", began.elapsed());
    let Outcomes {
        refused,
        costly,
        failed,
        untrue,
        true_,
        compared,
        ..
    } = outcomes;
    let few = [refused, costly, failed, untrue, true_, compared]
        .into_iter()
        .min();
    assert!(case < CASES || few > Some(10), "an outcome is rare: {few:?}");
}

#[test]
fn no_known_expression_of_a_long_list_escapes_its_bounds() {
    let (object, mut outcomes) = (objects::long(), Outcomes::default());
    for text in texts::KNOWN {
        try_one(text, &object, &mut fastrand::Rng::with_seed(SEED), &mut outcomes);
    }
    assert!(outcomes.true_ > 1 && outcomes.costly > 0, "{outcomes:?}");
}

/// Returns the time that this thread has run; other processes do not count.
fn ran() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = stat.split_whitespace().next().unwrap();
    Duration::from_nanos(nanoseconds.parse().unwrap())
}

/// Returns the longest time of an evaluation, with that of its cost. Both read the object, whatever the expression.
fn longest(cost: Cost) -> Duration {
    let within = Cost {
        steps: cost.steps.min(MAX_STEPS),
        bytes: cost.bytes.min(MAX_BYTES),
    };
    let time = Duration::from_millis(60)
        + Duration::from_nanos(2_000 * within.steps)
        + Duration::from_nanos(6 * within.bytes);
    time * if cfg!(debug_assertions) { 30 } else { 1 }
}

fn try_one(text: &str, object: &Value, random: &mut fastrand::Rng, outcomes: &mut Outcomes) {
    let began = ran();
    let compiled = Expression::compile(text);
    let took = ran().saturating_sub(began);
    outcomes.slowest_text = outcomes.slowest_text.max(took);
    assert!(took < LONGEST, "the compilation took {took:?}");
    let expression = match compiled {
        Ok(expression) => expression,
        Err(problem) => {
            assert!(!problem.ends_with(PANICKED), "{problem}");
            assert!(
                problem.chars().count() < 700 && !problem.contains('\n'),
                "{problem}"
            );
            outcomes.refused += 1;
            return;
        }
    };
    let cluster = objects::cluster();
    let variables = Variables {
        object,
        version: ["", "v1.18.2", "1.0.0", "é"][random.usize(0..4)],
        hop: ["v1.35.4", "v1.35.4+vmware.1", ""][random.usize(0..3)],
        cluster: Some(&cluster),
    };
    let began = ran();
    let cost = expression.cost(&variables);
    let result = expression.evaluate(&variables);
    let took = ran().saturating_sub(began);
    outcomes.slowest_evaluation = outcomes.slowest_evaluation.max(took);
    let longest = longest(cost);
    assert!(took < longest, "the evaluation took {took:?}, {cost:?}");
    assert_eq!(result, expression.evaluate(&variables));
    let is_within = cost.steps <= MAX_STEPS && cost.bytes <= MAX_BYTES;
    match &result {
        Ok(true) => outcomes.true_ += 1,
        Ok(false) => outcomes.untrue += 1,
        Err(error) => {
            assert!(!error.detail.contains("evaluator failed"), "{error:?}");
            assert!(
                error.detail.chars().count() <= 512 && !error.detail.contains('\n'),
                "{error:?}"
            );
            if error.reason == CheckReason::ExpressionTooCostly {
                outcomes.costly += 1;
                let is_large = object.to_string().len() > MAX_OBJECT;
                assert!(!is_within || is_large, "{cost:?}: {error:?}");
                return;
            }
            outcomes.failed += 1;
        }
    }
    assert!(is_within, "{cost:?}: {result:?}");
    outcomes.most = Cost {
        steps: outcomes.most.steps.max(cost.steps),
        bytes: outcomes.most.bytes.max(cost.bytes),
    };
    // Its own values are copied, which takes longer than the limits allow for.
    if cost.bytes < MAX_BYTES / 16 && cost.steps < MAX_STEPS / 10 {
        let expected = reference::evaluate(text, &variables);
        if let Some((expected, reads)) = expected {
            outcomes.compared += 1;
            assert_eq!(result.ok(), expected, "the evaluator with its own values");
            assert!(reads <= cost.steps, "{reads} variables were read in {cost:?}");
        }
    }
}
