//! Random walks of `pass` itself between two API servers, a kapp-controller and a Cluster API that are models.
//!
//! Each byte of a walk is one step of one of them: a read or a write of a pass, a watch that shows something, a run of kapp-controller
//! that begins, ends well or fails, an edit of a user, a request that is refused, the end of the process. Two things are checked:
//! - a gate opens only if, at some moment of the pass that opens it, each package was really deployed as its source was;
//! - with every input made good, a fair schedule completes the upgrade within a bound.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that runs outside of test functions, too"
)]

mod kapp;
mod leader;
mod objects;
mod servers;
mod walk;

use proptest::prelude::*;
use walk::Walk;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_released_early_and_nothing_is_held_for_ever(steps in prop::collection::vec(any::<u8>(), 0..160)) {
        let mut walk = Walk::new();
        for step in steps {
            walk.step(step);
        }
        walk.finish();
    }
}

#[test]
fn an_undisturbed_walk_ends_at_the_target() {
    let mut walk = Walk::new();
    walk.bump();
    walk.finish();
}
