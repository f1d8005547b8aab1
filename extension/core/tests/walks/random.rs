//! Random walks.

use std::{cell::Cell, fmt::Debug, time::Instant};

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use sluice_core::reconcile::cluster::Server;

use crate::{
    fault::Fault,
    leader::CACHES,
    named::CREATED,
    objects::{HIGHER_RELEASE, HIGHEST_RELEASE, PlannedBy, RANGES, REBUILT_RELEASE},
    odd,
    replica::{self, Reading},
    users::{Edit, Edited, Paused},
    walk::{Step, Walk},
};

/// Default number of walks, and default seed.
pub(crate) const WALKS: u32 = 200;
pub(crate) const SEED: u64 = 7;

/// Returns the faults of a request.
fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        6 => Just(Fault::None),
        3 => Just(Fault::Alone),
        1 => prop::sample::select(&[403, 404, 409, 422, 429, 500, 503][..]).prop_map(Fault::Refused),
        1 => Just(Fault::Unanswered),
        1 => Just(Fault::Frozen),
    ]
}

/// Ways to stop a package.
const STOPS: &[(&str, &str)] = &[
    ("packageinstalls", "paused"),
    ("packageinstalls", "canceled"),
    ("apps", "paused"),
    ("apps", "canceled"),
];

fn paused() -> impl Strategy<Value = Paused> {
    prop::sample::select(&[Paused::Cluster, Paused::Bootstrap, Paused::Start][..])
}

/// Most upgrades take every minor version, and workers only the last.
pub(crate) fn planned() -> impl Strategy<Value = PlannedBy> {
    prop_oneof![
        4 => Just(PlannedBy::Class),
        1 => Just(PlannedBy::Nobody),
        2 => Just(PlannedBy::Extension),
        2 => any::<bool>().prop_map(|shown| PlannedBy::Sluice { shown }),
    ]
}

fn edits() -> impl Strategy<Value = Edit> {
    let package = || 0..3_usize;
    let content = || prop::sample::select(&["a", "b"][..]);
    let kinds = &[
        "secrets",
        "packages",
        "packageinstalls",
        "apps",
        "clusterroles",
        "serviceaccounts",
    ][..];
    prop_oneof![
        6 => (1..3_usize).prop_map(Edit::Target),
        2 => (0..3_usize).prop_map(Edit::Version),
        1 => (0..3_usize).prop_map(Edit::UnsafeVersion),
        2 => (0..3_usize).prop_map(Edit::Label),
        1 => Just(Edit::NoLabel),
        1 => Just(Edit::OtherRelease),
        1 => Just(Edit::SameRelease),
        1 => Just(Edit::LaterRelease),
        2 => (paused(), any::<bool>()).prop_map(|(paused, sets)| if sets { Edit::Pause(paused) } else { Edit::Resume(paused) }),
        1 => Just(Edit::Delete),
        1 => Just(Edit::Move),
        1 => Just(Edit::Again),
        1 => any::<bool>().prop_map(Edit::OnCancel),
        1 => Just(Edit::Cancel),
        2 => (0..odd::KINDS.len(), any::<u8>()).prop_map(|(kind, which)| Edit::Odd(kind, which)),
        1 => Just(Edit::OddOfOthers),
        2 => Just(Edit::OfAddonsManager),
        2 => Just(Edit::Unimportant),
        1 => Just(Edit::LeavingWorkers),
        3 => (1..3_u8).prop_map(Edit::Values),
        1 => Just(Edit::NoValues),
        1 => (1..3_u8).prop_map(Edit::RecreatedValues),
        4 => (package(), 1..3_usize, content()).prop_map(|(which, version, content)| Edit::Content(which, version, content)),
        1 => (package(), 0..3_usize).prop_map(|(which, version)| Edit::NoPackage(which, version)),
        3 => (package(), 0..4_usize).prop_map(|(which, version)| Edit::Choose(which, version)),
        1 => (1..3_usize, package(), 0..4_usize).prop_map(|(of, which, version)| Edit::UpdatesAvailableWrite(of, which, version)),
        1 => (0..3_usize).prop_map(Edit::NoRelease),
        1 => (0..3_usize).prop_map(Edit::NoTemplate),
        1 => (0..3_usize, any::<bool>()).prop_map(|(release, sets)| Edit::Deactivate(release, sets)),
        1 => (package(), 1..3_usize, 0..RANGES.len()).prop_map(|(which, version, range)| Edit::Constrain(which, version, range)),
        2 => Just(Edit::RestoreCatalogue),
        2 => Just(Edit::OldManifest),
        1 => Just(Edit::NoMark),
        1 => Just(Edit::NoStatus),
        1 => Just(Edit::NoBootstrap),
        2 => package().prop_map(|which| Edit::Policy(which, "readiness", "Applied")),
        2 => (1..3_usize).prop_map(|which| Edit::Policy(which, "phase", "AfterControlPlane")),
        1 => Just(Edit::NoPolicy),
        1 => prop::sample::select(&["token", "other"][..]).prop_map(Edit::Kubeconfig),
        1 => Just(Edit::NoKubeconfig),
        2 => Just(Edit::ReplaceServer),
        2 => any::<bool>().prop_map(Edit::Silent),
        5 => (prop::sample::select(kinds), any::<u8>()).prop_map(|(kind, which)| Edit::Remove(kind, which)),
        5 => (prop::sample::select(&["secrets", "packages"][..]), any::<u8>()).prop_map(|(kind, which)| Edit::Alter(kind, which)),
        1 => (package(), prop::sample::select(&["syncPeriod", "values"][..])).prop_map(|(which, field)| Edit::Install(which, field)),
        1 => (package(), prop::sample::select(STOPS)).prop_map(|(which, (kind, field))| Edit::Stop(which, kind, field)),
        1 => package().prop_map(Edit::Restart),
    ]
}

pub(crate) fn readings() -> impl Strategy<Value = Reading> {
    prop_oneof![
        4 => Just(Reading::AtOnce),
        1 => Just(Reading::Fails),
        1 => Just(Reading::Late),
    ]
}

/// Most steps are undisturbed: otherwise few walks open a gate.
pub(crate) fn steps() -> impl Strategy<Value = Step> {
    let package = || 0..3_usize;
    let leader = || prop_oneof![4 => Just(0_usize), 1 => Just(1_usize)];
    let kind = || prop::sample::select(CACHES);
    let changes = || prop_oneof![1 => Just(0_u8), 1 => 1..64_u8];
    prop_oneof![
        24 => (leader(), faults()).prop_map(|(leader, fault)| Step::Lead(leader, fault)),
        12 => leader().prop_map(Step::Reconcile),
        14 => leader().prop_map(Step::Watch),
        4 => (leader(), any::<u8>()).prop_map(|(leader, which)| Step::WatchOne(leader, which)),
        4 => (leader(), kind()).prop_map(|(leader, (server, kind))| Step::WatchKind(leader, server, kind)),
        2 => (leader(), kind()).prop_map(|(leader, (_, kind))| Step::WatchBut(leader, kind)),
        1 => (leader(), any::<bool>()).prop_map(|(leader, refuses)| Step::RefuseValuesWatch(leader, refuses)),
        1 => leader().prop_map(Step::Crash),
        1 => Just(Step::Arrive),
        12 => Just(Step::Round),
        14 => package().prop_map(Step::Deploy),
        3 => package().prop_map(Step::Sync),
        5 => package().prop_map(Step::Begin),
        3 => package().prop_map(Step::Apply),
        4 => (package(), prop::bool::weighted(0.7)).prop_map(|(package, well)| Step::End(package, well)),
        2 => package().prop_map(Step::Interrupt),
        3 => Just(Step::Replica),
        3 => (prop::sample::select(replica::KINDS), changes()).prop_map(|(kind, changes)| Step::ReplicaKind(kind, changes)),
        1 => prop::sample::select(replica::KINDS).prop_map(Step::ReplicaLags),
        1 => Just(Step::AnotherCall),
        1 => Just(Step::OtherReplica),
        1 => Just(Step::Duplicate),
        1 => Just(Step::Swap),
        6 => readings().prop_map(Step::ClusterApi),
        1 => Just(Step::RetryAfterRound),
        1 => Just(Step::BackUp),
        1 => Just(Step::Restore),
        1 => leader().prop_map(Step::Detect),
        4 => Just(Step::Roll),
        2 => any::<u8>().prop_map(Step::Collect),
        3 => prop::sample::select(&[5_u64, 10, 60, 2_000][..]).prop_map(Step::Wait),
        14 => edits().prop_map(Step::User),
        1 => Just(Step::Calm),
    ]
}

/// Edits that start, change, hold or drop a swap.
fn swap_edits() -> impl Strategy<Value = Edit> {
    let release = || prop::sample::select(&[0, HIGHER_RELEASE, HIGHEST_RELEASE, REBUILT_RELEASE][..]);
    prop_oneof![
        10 => release().prop_map(Edit::Label),
        1 => release().prop_map(Edit::UnsafeLabel),
        1 => any::<bool>().prop_map(Edit::OnCancel),
        1 => Just(Edit::Cancel),
        2 => (release(), any::<bool>()).prop_map(|(release, sets)| Edit::Deactivate(release, sets)),
        1 => release().prop_map(Edit::NoImage),
        2 => (release(), prop::sample::select(&["a", "b"][..])).prop_map(|(release, content)| Edit::Image(release, content)),
        2 => any::<bool>().prop_map(Edit::Declare),
        1 => any::<bool>().prop_map(Edit::RefusePatches),
        1 => paused().prop_map(Edit::Pause),
        3 => paused().prop_map(Edit::Resume),
        1 => Just(Edit::OldManifest),
        1 => Just(Edit::Move),
        1 => (0..2_usize).prop_map(Edit::Target),
    ]
}

/// Most steps are those that complete a swap: otherwise few walks write entries.
pub(crate) fn swap_steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => steps(),
        2 => swap_edits().prop_map(Step::User),
        1 => Just(Step::WatchKind(0, Server::Management, "osimages")),
        1 => Just(Step::WatchBut(0, "osimages")),
        2 => Just(Step::Round),
        2 => Just(Step::ClusterApi(Reading::AtOnce)),
        2 => Just(Step::Roll),
    ]
}

/// Edits that start, cancel or repeat an upgrade, or that change what becomes of its packages.
fn cancellations() -> impl Strategy<Value = Edit> {
    let edited = || {
        prop::sample::select(
            &[
                Edited::Removed,
                Edited::Malformed,
                Edited::OtherRelease,
                Edited::UnknownPackages,
            ][..],
        )
    };
    prop_oneof![
        6 => (1..3_usize).prop_map(Edit::Target),
        8 => Just(Edit::Cancel),
        2 => prop::bool::weighted(0.8).prop_map(Edit::OnCancel),
        1 => (0..3_usize).prop_map(|which| Edit::Policy(which, "onCancel", "Keep")),
        1 => edited().prop_map(Edit::Snapshot),
        1 => (0..3_usize, 0..3_usize).prop_map(|(which, version)| Edit::NoWayBack(which, version)),
        1 => (0..3_usize, 0..3_usize).prop_map(|(which, version)| Edit::NoPackage(which, version)),
        1 => Just(Edit::RestoreCatalogue),
        1 => Just(Edit::OtherRelease),
        1 => Just(Edit::NoStatus),
    ]
}

/// Reconciles of Cluster API take time.
fn cancelled_steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => steps(),
        3 => cancellations().prop_map(Step::User),
        2 => readings().prop_map(Step::BeginClusterApi),
        1 => Just(Step::EndClusterApi),
        4 => Just(Step::Round),
        1 => Just(Step::Replica),
    ]
}

/// Returns the number in an environment variable.
pub(crate) fn number<N: std::str::FromStr>(variable: &str, otherwise: N) -> N {
    let given = std::env::var(variable).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn no_gate_opens_early_and_no_hold_lasts_forever() {
    let steps = prop::collection::vec(steps(), 0..160);
    random(number("WALKS", WALKS), &(planned(), steps), |(planned, steps)| {
        take(Walk::new(), planned, &steps, Walk::finish);
    });
}

#[test]
fn no_machine_is_replaced_early_and_no_swap_lasts_forever() {
    let steps = prop::collection::vec(swap_steps(), 0..120);
    let finish = |walk: &mut Walk| {
        walk.finish_swap();
        walk.finish();
    };
    // Each takes three times as long as another walk.
    let walks = number("WALKS", WALKS).div_ceil(3);
    random(walks, &(planned(), steps), |(planned, steps)| {
        take(Walk::with_images(), planned, &steps, finish);
    });
}

#[test]
fn no_package_goes_back_early_and_no_rollback_lasts_forever() {
    let steps = prop::collection::vec(cancelled_steps(), 0..120);
    let walks = number("WALKS", WALKS).div_ceil(4);
    random(walks, &(planned(), steps), |(planned, steps)| {
        let begun = [&CREATED[..], &[Step::User(Edit::OnCancel(true))], &steps[..]].concat();
        take(Walk::new(), planned, &begun, Walk::finish);
    });
}

/// Takes one walk.
pub(crate) fn take(mut walk: Walk, planned: PlannedBy, steps: &[Step], finish: impl FnOnce(&mut Walk)) {
    walk.step(Step::User(Edit::Steps(planned)));
    walk.take(steps);
    walk.calm();
    finish(&mut walk);
    walk.drift();
}

/// Takes random walks from generated values.
pub(crate) fn random<T: Debug>(walks: u32, values: &impl Strategy<Value = T>, take: impl Fn(T)) {
    let seed = number("SEED", SEED);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: walks,
        max_shrink_iters: number("SHRINKS", 3_000),
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let (began, made, said) = (Instant::now(), Cell::new(0_u32), Cell::new(0));
    let outcome = TestRunner::new_with_rng(config, rng).run(values, |value| {
        take(value);
        made.set(made.get() + 1);
        let minutes = began.elapsed().as_secs() / 60;
        if minutes > said.replace(minutes) {
            eprintln!("seed {seed}: {} walks, {minutes} min", made.get());
        }
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("seed {seed}, after {} walks: {error}", made.get());
    }
}
