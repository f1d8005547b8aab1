//! Random walks.

use std::cell::Cell;

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use crate::{
    addons::{Delivery, NODES},
    leader::{CACHES, Fault},
    objects::{Setup, System},
    users::{Edit, Rows},
    walk::{Step, Walk},
};

/// Default number of walks, and default seed.
const WALKS: u32 = 100;
const SEED: u64 = 7;

fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        6 => Just(Fault::None),
        3 => Just(Fault::Alone),
        1 => prop::sample::select(&[403, 404, 409, 429, 500][..]).prop_map(Fault::Refused),
        1 => Just(Fault::Unanswered),
    ]
}

fn edits() -> impl Strategy<Value = Edit> {
    let version = || 0..3_usize;
    let values = &["fine", "fine", "broken", "broken for another Cluster"][..];
    let rows = &[Rows::All, Rows::Old, Rows::Alternative][..];
    // Most inputs stay correct, or become so: otherwise few walks open a gate.
    let rarely = || prop::bool::weighted(0.3);
    prop_oneof![
        8 => (1..3_usize).prop_map(Edit::Target),
        2 => Just(Edit::Back),
        3 => prop::bool::weighted(0.7).prop_map(Edit::Label),
        2 => rarely().prop_map(Edit::PauseCluster),
        1 => Just(Edit::Again),
        1 => Just(Edit::NoRecord),
        2 => rarely().prop_map(Edit::Silent),
        10 => version().prop_map(Edit::Chart),
        1 => version().prop_map(Edit::SuspendAt),
        2 => prop::sample::select(values).prop_map(Edit::Values),
        2 => rarely().prop_map(Edit::InstallOnce),
        2 => rarely().prop_map(Edit::PauseChart),
        2 => rarely().prop_map(Edit::PauseRelease),
        1 => Just(Edit::Request),
        1 => Just(Edit::Commit),
        1 => rarely().prop_map(Edit::Elsewhere),
        4 => version().prop_map(Edit::Definition),
        2 => prop::bool::weighted(0.8).prop_map(Edit::Established),
        1 => Just(Edit::NoDefinition),
        4 => version().prop_map(Edit::Backend),
        1 => Just(Edit::NoStatus),
        1 => Just(Edit::NoChart),
        1 => Just(Edit::NoRelease),
        3 => version().prop_map(Edit::Image),
        1 => Just(Edit::NoAgent),
        2 => rarely().prop_map(Edit::OnDelete),
        1 => (0..NODES).prop_map(Edit::NoPod),
        3 => Just(Edit::Manifest),
        2 => prop::sample::select(rows).prop_map(Edit::Rows),
        2 => prop::sample::select(&["Enforce", "Enforce", "Audit"][..]).prop_map(Edit::Mode),
        1 => prop::sample::select(&["ControlPlane", "Workers"][..]).prop_map(Edit::Before),
        2 => prop::sample::select(&["", "cilium", "calico"][..]).prop_map(Edit::Selector),
        1 => Just(Edit::NoGate),
        2 => any::<bool>().prop_map(Edit::WorkersGate),
        2 => any::<bool>().prop_map(Edit::AuditGate),
    ]
}

/// Flux observes suspended objects when a run would begin. CAAPH rarely observes paused ones, and their generation does not change when
/// they go on.
fn deliveries() -> impl Strategy<Value = Delivery> {
    prop_oneof![
        4 => Just(Delivery::Begin),
        1 => Just(Delivery::BeginBehind),
        2 => Just(Delivery::Pend),
        4 => Just(Delivery::Succeed),
        1 => Just(Delivery::Fail),
        1 => Just(Delivery::RollBack),
        1 => Just(Delivery::NotRendered),
        1 => Just(Delivery::Kill),
    ]
}

fn setups() -> impl Strategy<Value = Setup> {
    let systems = prop::sample::select(&System::ALL[..]);
    let setups = (systems, prop::bool::weighted(0.3));
    setups.prop_map(|(system, has_extras)| Setup { system, has_extras })
}

fn steps() -> impl Strategy<Value = Step> {
    let leader = || prop_oneof![4 => Just(0_usize), 1 => Just(1_usize)];
    let kind = || prop::sample::select(&CACHES[..]);
    prop_oneof![
        16 => (leader(), faults()).prop_map(|(leader, fault)| Step::Lead(leader, fault)),
        10 => leader().prop_map(Step::Reconcile),
        3 => leader().prop_map(Step::Plan),
        12 => leader().prop_map(Step::Watch),
        5 => (leader(), kind()).prop_map(|(leader, kind)| Step::WatchKind(leader, kind)),
        1 => leader().prop_map(Step::Crash),
        6 => Just(Step::Replica),
        3 => kind().prop_map(Step::ReplicaKind),
        10 => Just(Step::ClusterApi),
        1 => Just(Step::ClusterApiBehind),
        6 => Just(Step::Roll),
        5 => Just(Step::Chart),
        8 => deliveries().prop_map(Step::Delivery),
        6 => Just(Step::Deliver),
        5 => (0..NODES).prop_map(Step::Pod),
        5 => (0..NODES, prop::bool::weighted(0.8)).prop_map(|(node, is_available)| Step::Available(node, is_available)),
        5 => Just(Step::Count),
        8 => Just(Step::RollOut),
        4 => Just(Step::Report),
        14 => edits().prop_map(Step::User),
        1 => Just(Step::Collect),
        2 => prop::sample::select(&[5_u64, 70, 700][..]).prop_map(Step::Wait),
    ]
}

/// Returns the number in an environment variable.
fn number<N: std::str::FromStr>(variable: &str, otherwise: N) -> N {
    let given = std::env::var(variable).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn no_version_is_written_early_and_no_hold_lasts_forever() {
    let seed = number("SEED", SEED);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: number("WALKS", WALKS),
        max_shrink_iters: number("SHRINKS", 3_000),
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let walks = (setups(), prop::collection::vec(steps(), 0..140));
    let (made, released) = (Cell::new(0_u32), Cell::new(0_u32));
    let outcome = TestRunner::new_with_rng(config, rng).run(&walks, |(setup, steps)| {
        let mut walk = Walk::of(setup);
        walk.take(&steps);
        if walk.control_plane() > 0 {
            released.set(released.get() + 1);
        }
        walk.finish();
        made.set(made.get() + 1);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("seed {seed}, after {} walks: {error}", made.get());
    }
    let (made, released) = (made.get(), released.get());
    eprintln!("seed {seed}: {made} walks, {released} with a version that Cluster API wrote before the end");
    assert!(
        made < 50 || released > 0,
        "no random walk takes a version, so none is judged"
    );
}
