//! Walks in which a user lets gates pass without the proof of a package.

use proptest::prelude::*;
use rstest::rstest;
use sluice_crds::{
    lifecycle::OverriddenGate,
    run::{Outcome, UpgradeRecord},
};

use crate::{
    capi::{brief, record, version_at},
    defect::Defect,
    fault::Fault,
    named::{CREATED, DEPLOYED, INSTALLED, MERGED, SEEN, TAKEN},
    objects::{HIGHER_RELEASE, HIGHEST_RELEASE, OTHER_RELEASE, VERSIONS, control_plane, worker},
    overridden::{Asked, OVERRIDES, OfCluster},
    planted::assert_is_found,
    random::{WALKS, number, planned, random, readings, steps, swap_steps, take},
    replica::Reading,
    users::Edit,
    walk::{
        Step::{self, *},
        Walk,
    },
};

const CLUSTER_API: Step = ClusterApi(Reading::AtOnce);

const CALL: [Step; 2] = [Replica, CLUSTER_API];

/// Without an older policy and an older binding, no override counts.
const ENFORCED: [Step; 2] = [OverridePolicy(true), OverrideBinding(true)];

/// The last package is the only one that is not deployed.
const UNPROVEN: [&[Step]; 4] = [&MERGED, &INSTALLED, &[Deploy(1)], &SEEN];

/// The same after the control plane was rolled.
const UNPROVEN_AGAIN: [&[Step]; 5] = [&SEEN, &INSTALLED, &[Deploy(1)], &SEEN, &SEEN];

/// Validity of an override, in seconds.
const LASTS: u64 = 100_000;

const fn asked(name: &'static str, gate: OverriddenGate, version: usize, release: usize) -> Asked {
    Asked {
        name,
        gate,
        version,
        release,
        packages: &["metrics"],
        lasts: LASTS,
        of: OfCluster::This,
    }
}

const CONTROL_PLANE: Asked = asked("a", OverriddenGate::ControlPlane, 1, 1);
const WORKERS: Asked = asked("b", OverriddenGate::Workers, 1, 1);
const MACHINES: Asked = asked("c", OverriddenGate::Machines, 0, HIGHER_RELEASE);

fn created(defect: Option<Defect>) -> Walk {
    let mut walk = Walk::new();
    walk.plant(defect);
    walk.take(&ENFORCED);
    walk.take(&CREATED);
    walk
}

/// Returns a walk whose control plane waits for the last package.
fn held() -> Walk {
    let mut walk = created(None);
    walk.take(&UNPROVEN.concat());
    walk.take(&CALL);
    assert_eq!(versions(&walk), [0, 0]);
    walk
}

/// Returns a walk whose control plane is released by an override, and has not taken the version yet.
fn opened() -> Walk {
    let mut walk = held();
    walk.step(Override(CONTROL_PLANE));
    walk.take(&SEEN);
    walk.step(Replica);
    walk
}

/// Returns a walk whose control plane has rolled by an override, and whose workers wait for the last package.
fn rolled() -> Walk {
    let mut walk = opened();
    walk.take(&TAKEN);
    walk.take(&UNPROVEN_AGAIN.concat());
    walk.take(&CALL);
    assert_eq!(versions(&walk), [1, 0], "{}", brief(Some(&recorded(&walk))));
    walk
}

fn recorded(walk: &Walk) -> UpgradeRecord {
    record(&walk.servers).expect("a record")
}

/// Returns the versions that Cluster API has written for control plane and workers.
fn versions(walk: &Walk) -> [usize; 2] {
    [control_plane(), worker()].map(|place| version_at(&walk.servers, &place, "spec"))
}

#[track_caller]
fn assert_versions(walk: &Walk, versions: [usize; 2]) {
    let record = recorded(walk);
    assert_eq!(self::versions(walk), versions, "{}", brief(Some(&record)));
}

fn completed(mut walk: Walk) {
    walk.calm();
    walk.finish();
    assert_eq!(recorded(&walk).outcome, Some(Outcome::Completed));
}

/// The record is completed only with the proof of the package.
#[test]
fn each_gate_needs_an_override() {
    let mut walk = rolled();
    walk.step(Override(WORKERS));
    walk.take(&SEEN);
    walk.take(&CALL);
    assert_versions(&walk, [1, 1]);
    for _ in 0..3 {
        walk.step(Roll);
        walk.take(&SEEN);
        walk.take(&CALL);
    }
    let record = recorded(&walk);
    assert_eq!(record.outcome, None, "{}", brief(Some(&record)));
    completed(walk);
}

#[rstest]
#[case::of_another_gate(&[Override(WORKERS)])]
#[case::of_another_version(&[Override(Asked { version: 2, ..CONTROL_PLANE })])]
#[case::of_another_release(&[Override(Asked { release: OTHER_RELEASE, ..CONTROL_PLANE })])]
#[case::of_another_package(&[Override(Asked { packages: &["antrea"], ..CONTROL_PLANE })])]
#[case::of_another_cluster(&[Override(Asked { of: OfCluster::Another, ..CONTROL_PLANE })])]
#[case::without_the_webhook(&[Override(Asked { of: OfCluster::Unset, ..CONTROL_PLANE })])]
#[case::expired(&[Override(Asked { lasts: 5, ..CONTROL_PLANE }), Wait(5)])]
#[case::of_eight_days(&[Override(Asked { lasts: 8 * 24 * 3_600, ..CONTROL_PLANE })])]
#[case::without_the_policy(&[Override(CONTROL_PLANE), OverridePolicy(false)])]
#[case::without_the_binding(&[Override(CONTROL_PLANE), OverrideBinding(false)])]
#[case::older_than_the_policy(&[Override(CONTROL_PLANE), OverridePolicy(false), OverridePolicy(true), Wait(60)])]
#[case::older_than_the_binding(&[Override(CONTROL_PLANE), OverrideBinding(false), OverrideBinding(true), Wait(60)])]
#[case::revoked(&[Override(CONTROL_PLANE), Watch(0), User(Edit::Revoke("a")), Reconcile(0)])]
#[case::not_observed(&[Override(CONTROL_PLANE), WatchBut(0, OVERRIDES), Reconcile(0), User(Edit::Revoke("a"))])]
fn an_override_does_not_open_the_gate(#[case] steps: &[Step]) {
    let mut walk = held();
    walk.take(steps);
    walk.take(&SEEN);
    walk.take(&CALL);
    assert_versions(&walk, [0, 0]);
    completed(walk);
}

/// Each API server applies a policy some time after its creation.
#[rstest]
#[case::too_early(27, [0, 0])]
#[case::in_time(28, [1, 0])]
fn an_override_is_younger_than_its_policy(
    #[case] seconds: u64,
    #[case] expected: [usize; 2],
    #[values(OverridePolicy, OverrideBinding)] sets: fn(bool) -> Step,
) {
    let mut walk = held();
    walk.take(&[sets(false), sets(true), Wait(seconds), Override(CONTROL_PLANE)]);
    walk.take(&[&SEEN[..], &SEEN, &CALL].concat());
    assert_versions(&walk, expected);
    completed(walk);
}

/// The watch of overrides is behind while the record of the upgrade is written.
const BEHIND: [Step; 8] = [
    WatchBut(0, OVERRIDES),
    Reconcile(0),
    WatchBut(0, OVERRIDES),
    Reconcile(0),
    WatchBut(0, OVERRIDES),
    Reconcile(0),
    WatchBut(0, OVERRIDES),
    Reconcile(0),
];

/// The API server, and not the cache, tells which overrides existed.
#[rstest]
#[case::before_the_target(&[Override(CONTROL_PLANE), User(Edit::Target(1))])]
#[case::before_the_record(&[User(Edit::Target(1)), Override(CONTROL_PLANE)])]
fn an_override_that_is_observed_late_does_not_open_the_gate(#[case] begun: &[Step]) {
    let mut walk = created(None);
    walk.take(begun);
    walk.take(&BEHIND);
    let spent = recorded(&walk).spent_overrides;
    assert_eq!(spent.map(|spent| spent.len()), Some(1));
    walk.take(&UNPROVEN[1..].concat());
    walk.take(&[&SEEN[..], &SEEN, &CALL].concat());
    assert_versions(&walk, [0, 0]);
    completed(walk);
}

/// As one that is left in Git. Another one of the name counts.
#[test]
fn an_override_from_before_the_upgrade_does_not_open_the_gate() {
    let mut walk = created(None);
    walk.step(Override(CONTROL_PLANE));
    walk.take(&UNPROVEN.concat());
    walk.take(&SEEN);
    walk.take(&CALL);
    assert_versions(&walk, [0, 0]);
    walk.take(&[User(Edit::Revoke("a")), Override(CONTROL_PLANE)]);
    walk.take(&SEEN);
    walk.take(&TAKEN);
    assert_versions(&walk, [1, 0]);
    completed(walk);
}

/// A cancellation spends the override, and so does the version that the control plane takes.
#[test]
fn an_override_is_of_one_upgrade() {
    let mut walk = opened();
    walk.step(User(Edit::Cancel));
    walk.take(&SEEN);
    walk.step(User(Edit::Target(1)));
    walk.take(&[&SEEN[..], &SEEN, &CALL].concat());
    assert_versions(&walk, [0, 0]);
    completed(walk);
}

#[test]
fn an_override_is_of_one_hop() {
    let mut walk = created(None);
    walk.take(&[User(Edit::Target(2)), Watch(0), Reconcile(0)]);
    walk.take(&UNPROVEN[1..].concat());
    walk.step(Override(CONTROL_PLANE));
    walk.take(&SEEN);
    walk.take(&TAKEN);
    assert_versions(&walk, [1, 0]);
    for _ in 0..6 {
        walk.take(&[&SEEN[..], &[Deploy(0), Deploy(1)], &SEEN, &CALL].concat());
    }
    assert_versions(&walk, [1, 0]);
    completed(walk);
}

/// A reconcile that proves the packages of one hop records the next hop before it knows the release of that one.
#[test]
fn an_override_of_the_next_hop_names_its_release() {
    let mut walk = created(None);
    walk.take(&[User(Edit::Target(2)), Watch(0), Reconcile(0)]);
    walk.take(&[&INSTALLED[..], &DEPLOYED, &SEEN, &TAKEN].concat());
    assert_versions(&walk, [1, 0]);
    walk.step(Override(Asked {
        version: 2,
        packages: &["*"],
        ..CONTROL_PLANE
    }));
    let is_at_next = |walk: &Walk| recorded(walk).hop.as_deref() == Some(VERSIONS[2]);
    for _ in 0..6 {
        if !is_at_next(&walk) {
            walk.take(&[&[Deploy(0)][..], &DEPLOYED, &SEEN].concat());
        }
    }
    assert!(is_at_next(&walk), "{}", brief(Some(&recorded(&walk))));
    walk.take(&CALL);
    assert_versions(&walk, [1, 0]);
    walk.take(&[&SEEN[..], &CALL].concat());
    assert_versions(&walk, [1, 0]);
    completed(walk);
}

/// Whatever the replica has observed, and although the leader has not closed the gate yet.
#[rstest]
#[case::revoked(&[User(Edit::Revoke("a"))])]
#[case::another_of_the_name(&[User(Edit::Revoke("a")), Override(CONTROL_PLANE)])]
#[case::expired(&[Wait(LASTS)])]
#[case::expired_by_the_clock_of_the_replica(&[ReplicaClock(600), Wait(LASTS - 300)])]
fn an_open_gate_needs_its_override(#[case] steps: &[Step], #[values(true, false)] is_observed: bool) {
    let mut walk = opened();
    walk.take(steps);
    if is_observed {
        walk.step(Replica);
    }
    walk.step(CLUSTER_API);
    assert_versions(&walk, [0, 0]);
    completed(walk);
}

/// The leader has closed the gate, whatever the clock of the replica says.
#[rstest]
#[case::revoked(&[User(Edit::Revoke("b"))])]
#[case::expired(&[ReplicaClock(-600), Wait(LASTS)])]
fn workers_are_held_again(#[case] steps: &[Step]) {
    let mut walk = rolled();
    walk.step(Override(WORKERS));
    walk.take(&SEEN);
    walk.take(steps);
    walk.take(&SEEN);
    walk.take(&CALL);
    assert_versions(&walk, [1, 0]);
    walk.take(&[User(Edit::Revoke("b")), Override(WORKERS), ReplicaClock(0)]);
    walk.take(&[&SEEN[..], &SEEN, &CALL].concat());
    assert_versions(&walk, [1, 1]);
    completed(walk);
}

/// The control plane was released, so its version arrives whatever becomes of the override.
#[rstest]
fn a_released_version_arrives_later(#[values(true, false)] is_frozen: bool) {
    let mut walk = opened();
    walk.step(BeginClusterApi(Reading::AtOnce));
    assert_eq!(walk.taking(), Some(1));
    if is_frozen {
        walk.step(FreezeClusterApi);
    }
    walk.step(User(Edit::Revoke("a")));
    walk.take(&SEEN);
    walk.step(if is_frozen { Arrive } else { EndClusterApi });
    assert_versions(&walk, [1, 0]);
    walk.step(Roll);
    walk.take(&UNPROVEN_AGAIN.concat());
    walk.take(&CALL);
    assert_versions(&walk, [1, 0]);
    completed(walk);
}

/// The second leader does not observe the revocation.
#[rstest]
fn a_leader_with_an_old_cache_opens_no_gate(#[values(1, 4, 16)] steps: usize) {
    let mut walk = held();
    walk.take(&[Watch(1), Reconcile(1), Watch(1), Reconcile(1)]);
    walk.take(&[Override(CONTROL_PLANE), Watch(1), User(Edit::Revoke("a"))]);
    for _ in 0..4 {
        walk.take(&vec![Lead(1, Fault::OneWrite); steps]);
        walk.take(&vec![Lead(0, Fault::OneWrite); steps]);
        walk.take(&CALL);
    }
    walk.step(Reconcile(1));
    walk.take(&CALL);
    assert_versions(&walk, [0, 0]);
    completed(walk);
}

/// At every sixteenth step: `SEED` 0 to 15 together cover all.
#[rstest]
#[case::crashed(None)]
#[case::frozen(Some(Fault::Frozen))]
#[case::conflict(Some(Fault::Refused(409)))]
#[case::unanswered(Some(Fault::Unanswered))]
fn a_disturbed_leader_uses_an_override(#[case] fault: Option<Fault>) {
    for at in (number("SEED", 0_usize) % 16..64).step_by(16) {
        let mut walk = held();
        walk.step(Override(CONTROL_PLANE));
        walk.ends_at = Some((walk.led() + at, fault));
        for _ in 0..8 {
            if versions(&walk) == [0, 0] {
                walk.take(&[&SEEN[..], &[Arrive], &TAKEN].concat());
            }
        }
        assert_versions(&walk, [1, 0]);
        completed(walk);
    }
}

#[test]
fn machines_are_replaced_by_an_override() {
    let mut walk = Walk::with_images();
    walk.take(&ENFORCED);
    walk.take(&CREATED);
    walk.take(&[User(Edit::Label(HIGHER_RELEASE)), Watch(0), Reconcile(0)]);
    walk.take(&UNPROVEN[1..].concat());
    walk.step(Override(CONTROL_PLANE));
    walk.take(&[&SEEN[..], &SEEN, &SEEN].concat());
    assert!(walk.swaps.written.is_empty());
    walk.step(Override(MACHINES));
    walk.take(&[&SEEN[..], &SEEN, &SEEN].concat());
    assert_eq!(
        walk.swaps.written,
        [HIGHER_RELEASE],
        "{}",
        brief(Some(&recorded(&walk)))
    );
    walk.take(&[CLUSTER_API, Roll, Roll, Roll, Wait(10)]);
    walk.take(&[&SEEN[..], &SEEN].concat());
    let record = recorded(&walk);
    assert_eq!(record.outcome, None, "{}", brief(Some(&record)));
    walk.finish_swap();
    assert_eq!(recorded(&walk).outcome, Some(Outcome::Completed));
    walk.finish();
}

/// An override is observed, and then it changes before the leader or the replica observes that.
const CHANGED: [&[Step]; 2] = [&[Override(CONTROL_PLANE), Watch(0)], &[Reconcile(0)]];

/// The gate is open by an override.
const OVERRIDDEN: [&[Step]; 3] = [&[Override(CONTROL_PLANE)], &SEEN, &[Replica]];

/// The control plane has rolled by proofs.
const PROVEN: [&[Step]; 3] = [&[Deploy(2)], &SEEN, &TAKEN];

/// Each planted defect fails one walk by the name of its invariant, and that walk passes without it.
#[rstest]
#[case::of_another_cluster(
    Defect::ClusterOfOverrideUnseen,
    &[&[Override(Asked { of: OfCluster::Another, ..CONTROL_PLANE })][..], &SEEN].concat(),
    "overridden: "
)]
#[case::of_another_version(
    Defect::VersionOfOverrideUnseen,
    &[&[Override(Asked { version: 2, ..CONTROL_PLANE })][..], &SEEN].concat(),
    "overridden: "
)]
#[case::of_another_release(
    Defect::ReleaseOfOverrideUnseen,
    &[&[Override(Asked { release: OTHER_RELEASE, ..CONTROL_PLANE })][..], &SEEN].concat(),
    "overridden: "
)]
#[case::of_another_gate(
    Defect::GateOfOverrideUnseen,
    &[&PROVEN.concat()[..], &UNPROVEN_AGAIN.concat()[..], &[Override(CONTROL_PLANE)], &SEEN].concat(),
    "overridden: "
)]
#[case::of_another_package(
    Defect::PackagesOfOverrideUnseen,
    &[&[Override(Asked { packages: &["antrea"], ..CONTROL_PLANE })][..], &SEEN].concat(),
    "early: "
)]
#[case::expired(
    Defect::ExpiryUnseen,
    &[&[Override(Asked { lasts: 5, ..CONTROL_PLANE }), Wait(5)][..], &SEEN].concat(),
    "expired: "
)]
#[case::unconfirmed(
    Defect::OverrideUnread,
    &[CHANGED[0], &[User(Edit::Revoke("a"))], CHANGED[1]].concat(),
    "revoked: "
)]
#[case::policy_not_read(
    Defect::PolicyUnread,
    &[CHANGED[0], &[OverridePolicy(false)], CHANGED[1]].concat(),
    "unenforced: "
)]
#[case::binding_not_read(
    Defect::PolicyUnread,
    &[CHANGED[0], &[OverrideBinding(false)], CHANGED[1]].concat(),
    "unenforced: "
)]
#[case::older_than_the_policy(
    Defect::PolicyAgeUnseen,
    &[&[Override(CONTROL_PLANE), OverridePolicy(false), OverridePolicy(true)][..], &SEEN].concat(),
    "unenforced: "
)]
#[case::older_than_the_binding(
    Defect::PolicyAgeUnseen,
    &[&[Override(CONTROL_PLANE), OverrideBinding(false), OverrideBinding(true)][..], &SEEN].concat(),
    "unenforced: "
)]
#[case::revoked(
    Defect::RevocationUnseen,
    &[&OVERRIDDEN.concat()[..], &[User(Edit::Revoke("a")), Calm]].concat(),
    "open: "
)]
#[case::call_without_a_read(
    Defect::Unconfirmed,
    &[&OVERRIDDEN.concat()[..], &[User(Edit::Revoke("a")), CLUSTER_API]].concat(),
    "revoked: "
)]
#[case::call_with_a_cached_read(
    Defect::ConfirmedByCache,
    &[&OVERRIDDEN.concat()[..], &[User(Edit::Revoke("a")), CLUSTER_API]].concat(),
    "revoked: "
)]
#[case::clock_of_the_replica(
    Defect::ClockUnseen,
    &[&OVERRIDDEN.concat()[..], &[Wait(LASTS), CLUSTER_API]].concat(),
    "expired: "
)]
fn a_planted_defect_is_found(#[case] defect: Defect, #[case] steps: &[Step], #[case] invariant: &str) {
    let run = |defect: Option<Defect>| {
        let mut walk = created(defect);
        walk.take(&UNPROVEN.concat());
        walk.take(steps);
        walk
    };
    assert_is_found(|| run(Some(defect)), invariant);
    completed(run(None));
}

/// The override exists before the upgrade.
#[rstest]
#[case::not_recorded(Defect::SpentOverridesUnseen, &[])]
#[case::not_listed(Defect::OverridesUnlisted, &BEHIND)]
fn an_override_that_is_left_is_found(#[case] defect: Defect, #[case] begun: &[Step]) {
    let run = |defect: Option<Defect>| {
        let mut walk = created(defect);
        walk.take(&[Override(CONTROL_PLANE), User(Edit::Target(1))]);
        walk.take(begun);
        walk.take(&UNPROVEN.concat());
        walk.take(&[&SEEN[..], &SEEN].concat());
        walk
    };
    assert_is_found(|| run(Some(defect)), "left: ");
    completed(run(None));
}

const NAMES: &[&str] = &["a", "b", "c"];

const GATES: &[OverriddenGate] = &OverriddenGate::ALL;

const PACKAGES: &[&[&str]] = &[
    &["metrics"],
    &["antrea"],
    &["antrea", "metrics"],
    &["kapp-controller", "antrea", "metrics"],
    &["*"],
];

fn overrides() -> impl Strategy<Value = Asked> {
    let of = prop_oneof![
        8 => Just(OfCluster::This),
        1 => Just(OfCluster::Another),
        1 => Just(OfCluster::Unset),
    ];
    (
        prop::sample::select(NAMES),
        prop::sample::select(GATES),
        (1..3_usize, 0..10_u8),
        prop::sample::select(PACKAGES),
        prop::sample::select(&[30, 600, LASTS, 1_000_000][..]),
        of,
    )
        .prop_map(|(name, gate, (version, wrong), packages, lasts, of)| {
            let (version, release) = match (gate, wrong) {
                (OverriddenGate::Machines, 0) => (0, HIGHEST_RELEASE),
                (OverriddenGate::Machines, _) => (0, HIGHER_RELEASE),
                (_, 0) => (version, OTHER_RELEASE),
                // That of the hop before.
                (_, 1) => (version, version - 1),
                _ => (version, version),
            };
            Asked {
                name,
                gate,
                version,
                release,
                packages,
                lasts,
                of,
            }
        })
}

/// Edits that start or cancel an upgrade, or that revoke an override.
fn edits() -> impl Strategy<Value = Edit> {
    prop_oneof![
        8 => (1..3_usize).prop_map(Edit::Target),
        2 => Just(Edit::Cancel),
        3 => prop::sample::select(NAMES).prop_map(Edit::Revoke),
        1 => Just(Edit::NoStatus),
        1 => Just(Edit::OtherRelease),
        1 => Just(Edit::Silent(true)),
    ]
}

fn overridden_steps() -> impl Strategy<Value = Step> {
    let leader = || prop_oneof![4 => Just(0_usize), 1 => Just(1_usize)];
    let clock = prop::sample::select(&[-600_i64, 0, 600][..]);
    // Once one exists again, overrides count that are created half a minute later.
    let sets = prop_oneof![
        Just(Step::OverridePolicy as fn(bool) -> Step),
        Just(Step::OverrideBinding as fn(bool) -> Step),
    ];
    let exists = prop::bool::weighted(0.7);
    prop_oneof![
        16 => steps(),
        1 => (sets, exists).prop_map(|(sets, exists)| sets(exists)),
        6 => overrides().prop_map(Step::Override),
        5 => edits().prop_map(Step::User),
        2 => leader().prop_map(|leader| Step::WatchBut(leader, OVERRIDES)),
        2 => (0..32_u8).prop_map(|changes| Step::ReplicaKind(OVERRIDES, changes)),
        2 => clock.prop_map(Step::ReplicaClock),
        3 => readings().prop_map(Step::BeginClusterApi),
        1 => Just(Step::EndClusterApi),
        1 => Just(Step::Wait(300)),
        2 => Just(Step::Replica),
        6 => leader().prop_map(Step::Reconcile),
        6 => leader().prop_map(Step::Watch),
    ]
}

#[test]
fn no_override_opens_another_gate_and_no_hold_lasts_forever() {
    let steps = prop::collection::vec(overridden_steps(), 0..120);
    let walks = number("WALKS", WALKS).div_ceil(5);
    random(walks, &(planned(), steps), |(planned, steps)| {
        let begun = [&ENFORCED[..], &CREATED, &steps[..]].concat();
        take(Walk::new(), planned, &begun, Walk::finish);
    });
}

/// Most overrides are for machines: otherwise few open a swap.
fn overridden_swap_steps() -> impl Strategy<Value = Step> {
    let release = prop::sample::select(&[HIGHER_RELEASE, HIGHER_RELEASE, HIGHEST_RELEASE][..]);
    let of_machines = (overrides(), release).prop_map(|(asked, release)| Asked {
        gate: OverriddenGate::Machines,
        version: 0,
        release,
        ..asked
    });
    prop_oneof![
        4 => swap_steps(),
        2 => overridden_steps(),
        1 => of_machines.prop_map(Step::Override),
    ]
}

#[test]
fn no_override_replaces_machines_early_and_no_swap_lasts_forever() {
    let steps = prop::collection::vec(overridden_swap_steps(), 0..120);
    let finish = |walk: &mut Walk| {
        walk.finish_swap();
        walk.finish();
    };
    // Each takes three times as long as another walk.
    let walks = number("WALKS", WALKS).div_ceil(20);
    random(walks, &(planned(), steps), |(planned, steps)| {
        let begun = [&ENFORCED[..], &CREATED, &steps[..]].concat();
        take(Walk::with_images(), planned, &begun, finish);
    });
}
