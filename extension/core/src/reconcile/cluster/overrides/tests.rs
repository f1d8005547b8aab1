//! Tests of the reads that confirm overrides.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::run::{Gate, Hook, Outcome, Swap};

use super::*;
use crate::{
    reconcile::cluster::{
        Clock, Facts, Failure, LocalState, ReadResult,
        tests::{clock, facts},
    },
    upgrade::{
        hop::{ControlPlanePhase, Progress, UpgradeDirection},
        overrides::tests::{EXPIRES, by, object},
        rollback::Decision,
        swap::SwapFacts,
    },
};

const V35: &str = "v1.35.4";
const V36: &str = "v1.36.3";
const RELEASE: &str = "36-1";

/// Time of the reconcile, in seconds: the overrides exist, and have not expired.
const NOW: i64 = EXPIRES - 600;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn control_plane(name: &str) -> UpgradeOverride {
    object(name, OverriddenGate::ControlPlane, (V36, RELEASE), &["*"])
}

/// Returns the facts of the Cluster with these overrides in the cache.
fn with(overrides: impl IntoIterator<Item = UpgradeOverride>) -> Facts {
    Facts {
        overrides: Some(overrides.into_iter().map(Arc::new).collect()),
        ..facts()
    }
}

/// Objects of the management API server.
struct World {
    policy: ValidatingAdmissionPolicy,
    binding: ValidatingAdmissionPolicyBinding,
    overrides: Vec<UpgradeOverride>,
    /// Kinds that do not exist.
    absent: &'static str,
    /// Kinds that cannot be read.
    unreadable: &'static str,
}

impl World {
    /// The overrides were created under the policy.
    fn with(overrides: impl IntoIterator<Item = UpgradeOverride>) -> Self {
        let mut policy = ValidatingAdmissionPolicy::default();
        policy.metadata.name = Some(POLICY.to_owned());
        policy.metadata.creation_timestamp = Some(Time(at(0)));
        let mut binding = ValidatingAdmissionPolicyBinding {
            metadata: policy.metadata.clone(),
            ..ValidatingAdmissionPolicyBinding::default()
        };
        let spec = binding.spec.get_or_insert_default();
        spec.policy_name = Some(POLICY.to_owned());
        spec.validation_actions = Some(vec!["Deny".to_owned()]);
        Self {
            policy,
            binding,
            overrides: overrides.into_iter().collect(),
            absent: "",
            unreadable: "",
        }
    }

    fn answer(&self, read: &Read) -> ReadResult {
        let kind = match read {
            Read::Object(key, ReadPhase::Confirm) => &key.resource.kind,
            Read::Labelled { resource, .. } => &resource.kind,
            read => panic!("{read:?}"),
        };
        if *kind == *self.unreadable {
            return ReadResult::Failed(Failure::other(Server::Management, "no response"));
        }
        if *kind == *self.absent {
            return ReadResult::Absent;
        }
        let found: Option<Value> = match (read, &**kind) {
            (Read::Object(..), "ValidatingAdmissionPolicy") => Some(json!(self.policy)),
            (Read::Object(..), "ValidatingAdmissionPolicyBinding") => Some(json!(self.binding)),
            (Read::Object(key, _), "UpgradeOverride") => {
                assert_eq!(key.namespace.as_deref(), Some("team-a"));
                let mut overrides = self.overrides.iter();
                overrides.find(|of| of.name_any() == key.name).map(|of| json!(of))
            }
            (
                Read::Labelled {
                    namespace, labels, ..
                },
                "UpgradeOverride",
            ) => {
                assert_eq!((namespace.as_str(), labels.as_str()), ("team-a", ""));
                let overrides = self.overrides.iter();
                return ReadResult::Listed(overrides.map(|of| Object(json!(of))).collect());
            }
            (read, _) => panic!("{read:?}"),
        };
        found.map_or(ReadResult::Absent, |found| ReadResult::Found(Object(found)))
    }

    /// Calls `step` until its reads are answered. Returns the names of the overrides that were read, and the outcome.
    fn reads<T>(&self, facts: &Facts, step: impl Fn(&Context<'_>) -> Step<T>) -> (Vec<String>, T) {
        let (local, mut read_overrides) = (LocalState::default(), Vec::new());
        let began = Clock {
            now: at(NOW),
            ..clock()
        };
        let mut context = Context::new(facts, &local, began);
        loop {
            match step(&context) {
                Err(Interrupt::Need(reads)) => {
                    for read in reads {
                        if let Read::Object(key, _) = &read
                            && key.name != POLICY
                        {
                            read_overrides.push(key.name.clone());
                        }
                        let answer = self.answer(&read);
                        context.record_answer(read, answer);
                    }
                }
                outcome => return (read_overrides, outcome.unwrap()),
            }
        }
    }

    /// Confirms the cached overrides for a record that follows another one. Returns the names of those that were read, too.
    fn confirmed(
        &self,
        facts: &Facts,
        previous: Option<&UpgradeRecord>,
        record: &UpgradeRecord,
    ) -> (Vec<String>, Known) {
        self.reads(facts, |context| {
            confirm(context, &validated(), (previous, record), &Known::of(context))
        })
    }
}

/// The overrides of the cache.
fn cached(facts: &Facts) -> Known {
    let (_, known) = World::with([]).reads(facts, |context| Ok(Known::of(context)));
    known
}

fn names(known: &Known) -> Vec<&str> {
    known.usable.iter().map(|of| of.by.name.as_str()).collect()
}

/// An upgrade whose control plane waits for its packages.
fn validated() -> Validated {
    Validated {
        progress: Progress {
            phase: ControlPlanePhase::Settled {
                version: V35.to_owned(),
            },
            hop: V36.to_owned(),
            direction: UpgradeDirection::Forward,
            taken: false,
        },
        release: Ok(RELEASE.to_owned()),
        change: None,
        paused: None,
        problem: None,
        restored: false,
        swap: SwapFacts::default(),
        machines: None,
        entry: None,
        requires: false,
        rollback: Decision::None,
    }
}

/// Its record, with a gate that is closed, or open by the override of this name, and a closed one.
fn record(name: Option<&str>) -> UpgradeRecord {
    let gate = |hook, name: Option<&str>| Gate {
        hook,
        version: V36.to_owned(),
        open: name.is_some(),
        reason: name.map_or("PackagesNotReady", |_| "").to_owned(),
        message: String::new(),
        overridden_by: name.map(by),
    };
    UpgradeRecord {
        from: Some(V35.to_owned()),
        to: V36.to_owned(),
        hop: Some(V36.to_owned()),
        gates: vec![
            gate(Hook::BeforeClusterUpgrade, name),
            gate(Hook::BeforeControlPlaneUpgrade, None),
        ],
        spent_overrides: Some(Vec::new()),
        ..UpgradeRecord::default()
    }
}

/// The record of machines that wait for their packages, or that the override of this name has released.
fn record_of_swap(name: Option<&str>) -> UpgradeRecord {
    UpgradeRecord {
        gates: Vec::new(),
        swap: Some(Swap {
            version: V36.to_owned(),
            to: RELEASE.to_owned(),
            open: name.is_some(),
            overridden_by: name.map(by),
            ..Swap::default()
        }),
        ..record(None)
    }
}

type Edit = fn(&mut World);

/// Whether the override opens a gate, and whether it keeps one open that it has opened before.
#[rstest]
#[case::as_cached(|_: &mut World| {}, true, true)]
#[case::policy_is_younger(|w: &mut World| w.policy.metadata.creation_timestamp = Some(Time(at(NOW))), false, false)]
#[case::policy_is_absent(|w: &mut World| w.absent = "ValidatingAdmissionPolicy", false, false)]
#[case::binding_is_absent(|w: &mut World| w.absent = "ValidatingAdmissionPolicyBinding", false, false)]
#[case::binding_only_audits(
    |w: &mut World| w.binding.spec.as_mut().unwrap().validation_actions = Some(vec!["Audit".to_owned()]),
    false, false
)]
#[case::policy_is_unreadable(|w: &mut World| w.unreadable = "ValidatingAdmissionPolicy", false, true)]
#[case::binding_is_unreadable(|w: &mut World| w.unreadable = "ValidatingAdmissionPolicyBinding", false, true)]
#[case::override_is_unreadable(|w: &mut World| w.unreadable = "UpgradeOverride", false, true)]
#[case::override_is_gone(|w: &mut World| w.overrides.clear(), false, false)]
#[case::another_one_of_the_name(|w: &mut World| w.overrides[0].metadata.uid = Some("another".to_owned()), false, false)]
#[case::being_deleted(|w: &mut World| w.overrides[0].metadata.deletion_timestamp = Some(Time(at(NOW))), false, false)]
#[case::of_other_packages(|w: &mut World| w.overrides[0].spec.packages = vec!["antrea".to_owned()], false, false)]
fn an_override_is_confirmed(#[case] edit: Edit, #[case] opens: bool, #[case] keeps: bool) {
    let mut world = World::with([control_plane("cp")]);
    edit(&mut world);
    let facts = with([control_plane("cp")]);
    let (closed, open) = (record(None), record(Some("cp")));
    assert!(
        unconfirmed(Some(&closed), &open, &cached(&facts)).is_some(),
        "by the cache"
    );

    for previous in [None, Some(&closed)] {
        let (_, known) = world.confirmed(&facts, previous, &open);
        let expected = if opens { vec!["cp"] } else { Vec::new() };
        assert_eq!((names(&known), known.is_confirmed), (expected, true));
    }
    let (_, known) = world.confirmed(&facts, Some(&open), &open);
    let expected = if keeps { vec!["cp"] } else { Vec::new() };
    assert_eq!((names(&known), known.is_confirmed), (expected, opens || !keeps));
    // It opens no other gate.
    let held = unconfirmed(Some(&closed), &open, &known);
    assert_eq!(held.is_some(), !known.is_confirmed);
    assert_eq!(unconfirmed(Some(&open), &open, &known), None, "it was open");
}

#[test]
fn an_unconfirmed_override_permits_no_entry_of_a_swap() {
    let machines = object("m", OverriddenGate::Machines, (V36, RELEASE), &["*"]);
    let facts = with([machines.clone()]);
    let (closed, open) = (record_of_swap(None), record_of_swap(Some("m")));
    assert!(unconfirmed(Some(&closed), &open, &cached(&facts)).is_some());
    let (_, known) = World::with([machines]).confirmed(&facts, Some(&closed), &open);
    assert_eq!(names(&known), ["m"]);
    assert_eq!(unconfirmed(Some(&closed), &open, &known), None);
}

/// Overrides are no secret, and a user may create many.
#[test]
fn only_some_overrides_are_read_and_those_that_open_gates_first() {
    let all = || ["a", "b", "c", "d", "e", "f", "z"].map(control_plane);
    let facts = with(all());
    let mut open = record(Some("z"));
    let (read, known) = World::with(all()).confirmed(&facts, Some(&record(None)), &open);
    assert_eq!(read, ["z", "a", "b", "c", "d"]);
    assert_eq!(names(&known), read);

    open.spent_overrides = Some(["a", "b", "z"].map(|name| by(name).uid).into());
    let (read, _) = World::with(all()).confirmed(&facts, Some(&record(None)), &open);
    assert_eq!(read, ["c", "d", "e", "f"], "spent ones are not read");
    open.spent_overrides = None;
    let (read, known) = World::with(all()).confirmed(&facts, Some(&record(None)), &open);
    assert_eq!((read, names(&known)), (Vec::new(), Vec::new()), "none counts");
    assert!(known.is_confirmed);
}

#[rstest]
#[case::of_a_closed_gate(OverriddenGate::ControlPlane, (V36, RELEASE), record(None), true)]
#[case::of_no_gate(OverriddenGate::Workers, (V36, RELEASE), record(None), false)]
#[case::of_another_version(OverriddenGate::ControlPlane, (V35, RELEASE), record(None), false)]
#[case::of_another_release(OverriddenGate::ControlPlane, (V36, "36-2"), record(None), false)]
#[case::of_a_swap(OverriddenGate::Machines, (V36, RELEASE), record_of_swap(None), true)]
#[case::of_an_open_swap(OverriddenGate::Machines, (V36, RELEASE), record_of_swap(Some("m")), false)]
#[case::of_another_swap(OverriddenGate::Machines, (V36, "36-2"), record_of_swap(None), false)]
#[case::of_gates_beside_a_swap(OverriddenGate::ControlPlane, (V36, RELEASE), record_of_swap(None), false)]
fn an_override_that_opens_nothing_is_not_read(
    #[case] gate: OverriddenGate,
    #[case] step: (&str, &str),
    #[case] record: UpgradeRecord,
    #[case] is_read: bool,
) {
    let known = cached(&with([object("a", gate, step, &["*"])]));
    assert_eq!(wanted(&validated(), &record, &known).len(), usize::from(is_read));
}

#[test]
fn the_release_of_a_hop_must_be_known() {
    let known = cached(&with([control_plane("cp")]));
    let unknown = Validated {
        release: Err(Hold::new(GateReason::NoTKRForHop, "")),
        ..validated()
    };
    assert!(wanted(&unknown, &record(None), &known).is_empty());
}

/// Returns the UIDs that the API server lists.
fn listed(world: &World) -> Option<Vec<String>> {
    let (_, known) = world.reads(&with([]), |context| {
        let mut known = Known::of(context);
        known.list(context)?;
        Ok(known)
    });
    known.existing
}

fn of_another_cluster(name: &str) -> UpgradeOverride {
    let mut object = control_plane(name);
    object.spec.cluster_name = "two".to_owned();
    object
}

fn numbered(count: usize) -> impl Iterator<Item = UpgradeOverride> {
    (0..count).map(|number| control_plane(&number.to_string()))
}

/// Also those that are expired, incomplete, or not in the cache yet.
#[test]
fn all_overrides_of_the_cluster_are_listed() {
    let mut expired = control_plane("b");
    expired.spec.expires_at = Time(at(NOW));
    expired.spec.requested_by = None;
    let world = World::with([control_plane("a"), of_another_cluster("c"), expired]);
    assert_eq!(listed(&world), Some(["a", "b"].map(|name| by(name).uid).into()));
    let others = (0..100).map(|number| of_another_cluster(&format!("other-{number}")));
    let many = World::with(numbered(64).chain(others));
    assert_eq!(listed(&many).map(|uids| uids.len()), Some(64));
    assert_eq!(listed(&World::with(numbered(65))), None, "too many");
    let unreadable = World {
        unreadable: "UpgradeOverride",
        ..world
    };
    assert_eq!(listed(&unreadable), None);
}

type RecordEdit = fn(&mut UpgradeRecord);

#[rstest]
#[case::of_an_upgrade((|_: &mut UpgradeRecord| {}) as RecordEdit, true)]
#[case::that_was_listed(|record: &mut UpgradeRecord| record.spent_overrides = Some(Vec::new()), false)]
#[case::of_an_ended_upgrade(|record: &mut UpgradeRecord| record.outcome = Some(Outcome::Completed), false)]
#[case::of_a_first_installation(|record: &mut UpgradeRecord| record.from = None, false)]
fn only_an_open_record_of_an_upgrade_lacks_a_list(#[case] edit: RecordEdit, #[case] lacks: bool) {
    let mut record = UpgradeRecord {
        spent_overrides: None,
        ..record(None)
    };
    edit(&mut record);
    assert_eq!(cached(&with([])).lacks_list(&record), lacks);
    assert!(!cached(&facts()).lacks_list(&record), "the cache has no list");
    assert!(!cached(&with(numbered(65))).lacks_list(&record), "none counts");
    let listed = Known {
        existing: Some(Vec::new()),
        ..cached(&with([]))
    };
    assert!(!listed.lacks_list(&record));
}

#[test]
fn the_first_expiry_is_waited_for() {
    let expires = |name: &str, second: i64| {
        let mut object = control_plane(name);
        object.spec.expires_at = Time(at(second));
        object
    };
    let known = cached(&with([
        expires("a", NOW + 60),
        expires("b", NOW + 30),
        expires("c", NOW),
    ]));
    assert_eq!(known.until_expiry(at(NOW)), Some(Duration::from_secs(30)));
    assert_eq!(known.until_expiry(at(NOW + 40)), Some(Duration::ZERO));
    assert_eq!(cached(&with([])).until_expiry(at(NOW)), None);
}
