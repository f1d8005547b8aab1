//! Tests of overrides, and one for other tests.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rstest::rstest;
use sluice_crds::lifecycle::{OverrideTarget, UpgradeOverrideSpec};

use super::*;

/// Time of the creation of an override, in seconds.
const CREATED: i64 = 1_000_000;

/// Time at which an override expires, in seconds.
pub(crate) const EXPIRES: i64 = CREATED + 3_600;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Returns an override of a gate of Cluster `team-a/one`, with UID `uid`, that names these packages.
pub(crate) fn object(
    name: &str,
    gate: OverriddenGate,
    (version, release): (&str, &str),
    packages: &[&str],
) -> UpgradeOverride {
    let spec = UpgradeOverrideSpec {
        cluster_name: "one".to_owned(),
        cluster_uid: Some("uid".to_owned()),
        target: OverrideTarget {
            kubernetes_version: version.to_owned(),
            release: release.to_owned(),
        },
        gate,
        packages: packages.iter().copied().map(str::to_owned).collect(),
        reason: "CHG-4711: metrics is unused here".to_owned(),
        expires_at: Time(at(EXPIRES)),
        requested_by: Some("alice".to_owned()),
    };
    let mut object = UpgradeOverride::new(name, spec);
    object.metadata.namespace = Some("team-a".to_owned());
    object.metadata.uid = Some(format!("uid of {name}"));
    object.metadata.creation_timestamp = Some(Time(at(CREATED)));
    object
}

fn given() -> UpgradeOverride {
    object("skip", OverriddenGate::Workers, ("v1.36.3", "36-1"), &["metrics"])
}

/// Returns the trace of the override with this name.
pub(crate) fn by(name: &str) -> GateOverride {
    GateOverride {
        name: name.to_owned(),
        uid: format!("uid of {name}"),
        user: "alice".to_owned(),
        reason: "CHG-4711: metrics is unused here".to_owned(),
        expires_at: Time(at(EXPIRES)),
    }
}

type Edit = fn(&mut UpgradeOverride);

#[test]
fn a_complete_override_names_its_step_and_its_user() {
    let of = Override::of(&given(), "uid", at(CREATED)).unwrap();
    assert_eq!(
        (of.gate, of.version.as_str(), of.release.as_str()),
        (OverriddenGate::Workers, "v1.36.3", "36-1")
    );
    assert_eq!(of.by, by("skip"));
    assert!(of.passes("metrics") && !of.passes("antrea") && !of.is_of_every());
}

#[rstest]
#[case::alone(&["*"])]
#[case::with_others(&["metrics", "*"])]
fn an_override_of_every_package_passes_each(#[case] packages: &[&str]) {
    let every = object("skip", OverriddenGate::Workers, ("v1.36.3", "36-1"), packages);
    let of = Override::of(&every, "uid", at(CREATED)).unwrap();
    assert!(of.is_of_every() && of.passes("antrea"));
}

#[rstest]
#[case::no_user((|o: &mut UpgradeOverride| o.spec.requested_by = None) as Edit, Unusable::Incomplete)]
#[case::empty_user(|o: &mut UpgradeOverride| o.spec.requested_by = Some(String::new()), Unusable::Incomplete)]
#[case::no_cluster(|o: &mut UpgradeOverride| o.spec.cluster_uid = None, Unusable::Incomplete)]
#[case::no_uid(|o: &mut UpgradeOverride| o.metadata.uid = None, Unusable::Incomplete)]
#[case::another_cluster(|o: &mut UpgradeOverride| o.spec.cluster_uid = Some("before".into()), Unusable::OtherCluster)]
#[case::deleted(|o: &mut UpgradeOverride| o.metadata.deletion_timestamp = Some(Time(at(CREATED))), Unusable::Deleted)]
#[case::expired(|o: &mut UpgradeOverride| o.spec.expires_at = Time(at(CREATED + 1)), Unusable::Expired)]
#[case::eight_days(|o: &mut UpgradeOverride| o.spec.expires_at = Time(at(CREATED + 8 * 86_400)), Unusable::ExpiresTooLate)]
#[case::created_before_that(
    |o: &mut UpgradeOverride| o.metadata.creation_timestamp = Some(Time(at(EXPIRES - 7 * 86_400 - 1))),
    Unusable::ExpiresTooLate
)]
#[case::created_at_an_unknown_time(|o: &mut UpgradeOverride| o.metadata.creation_timestamp = None, Unusable::ExpiresTooLate)]
#[case::blank_reason(|o: &mut UpgradeOverride| o.spec.reason = "  ".into(), Unusable::Malformed)]
#[case::long_reason(|o: &mut UpgradeOverride| o.spec.reason = "x".repeat(10_240), Unusable::Malformed)]
#[case::escape_sequence(|o: &mut UpgradeOverride| o.spec.reason = "\u{1b}[2J".into(), Unusable::Malformed)]
#[case::user_of_two_lines(|o: &mut UpgradeOverride| o.spec.requested_by = Some("a\nb".into()), Unusable::Malformed)]
#[case::no_package(|o: &mut UpgradeOverride| o.spec.packages.clear(), Unusable::Malformed)]
#[case::too_many_packages(|o: &mut UpgradeOverride| o.spec.packages = vec!["a".into(); 65], Unusable::Malformed)]
fn an_override_has_no_effect(#[case] edit: Edit, #[case] expected: Unusable) {
    let mut object = given();
    edit(&mut object);
    assert_eq!(Override::of(&object, "uid", at(CREATED + 1)), Err(expected));
    assert!(Unusable::ALL.contains(&expected));
}

#[test]
fn an_override_of_seven_days_counts_until_it_expires() {
    let mut object = given();
    object.spec.expires_at = Time(at(CREATED + 7 * 86_400));
    let of = |second| Override::of(&object, "uid", at(second)).err();
    assert_eq!(of(CREATED), None);
    assert_eq!(of(CREATED + 7 * 86_400 - 1), None);
    assert_eq!(of(CREATED + 7 * 86_400), Some(Unusable::Expired));
}

#[test]
fn unusable_overrides_exist_nevertheless() {
    let named = |name: &str| Arc::new(object(name, OverriddenGate::Workers, ("v1.36.3", "36-1"), &["*"]));
    let mut expired = given();
    expired.spec.expires_at = Time(at(CREATED));
    let (existing, found) = usable(
        &[named("b"), Arc::new(expired), named("a")],
        "uid",
        at(CREATED + 1),
    );
    assert_eq!(
        existing,
        Some(["uid of b", "uid of skip", "uid of a"].map(str::to_owned).into())
    );
    let found: Vec<&str> = found.iter().map(|of| of.by.name.as_str()).collect();
    assert_eq!(found, ["a", "b"], "by name");
}

#[rstest]
#[case::as_many_as_possible(64, true)]
#[case::one_more(65, false)]
fn too_many_overrides_do_not_count(#[case] number: usize, #[case] count: bool) {
    let named = |each| {
        Arc::new(object(
            &format!("o{each}"),
            OverriddenGate::Workers,
            ("v1.36.3", "36-1"),
            &["*"],
        ))
    };
    let objects: Vec<Arc<UpgradeOverride>> = (0..number).map(named).collect();
    let (existing, found) = usable(&objects, "uid", at(CREATED));
    assert_eq!(
        (existing.is_some(), found.len()),
        (count, if count { number } else { 0 })
    );
}

#[test]
fn the_override_that_has_opened_a_gate_is_preferred() {
    let objects = ["a", "b", "c"].map(|name| {
        let object = object(name, OverriddenGate::Workers, ("v1.36.3", "36-1"), &["*"]);
        Override::of(&object, "uid", at(CREATED)).unwrap()
    });
    let first = |before: Option<&str>, opens: fn(&Override) -> bool| {
        let before = before.map(by);
        first_that(objects.iter(), before.as_ref(), opens).map(|by| by.name)
    };
    assert_eq!(first(None, |_| true).as_deref(), Some("a"));
    assert_eq!(first(None, |of| of.by.name != "a").as_deref(), Some("b"));
    assert_eq!(first(Some("c"), |_| true).as_deref(), Some("c"));
    assert_eq!(first(Some("c"), |of| of.by.name != "c").as_deref(), Some("a"));
    assert_eq!(first(Some("gone"), |_| true).as_deref(), Some("a"));
    assert_eq!(first(None, |_| false), None);
}

/// A gate has two hooks, and stays open over many reconciles.
#[test]
fn each_use_is_new_once() {
    let by = |name| Some(by(name));
    let gate = |hook, overridden_by| Gate {
        hook,
        version: "v1.36.3".to_owned(),
        open: true,
        reason: String::new(),
        message: String::new(),
        overridden_by,
    };
    let record = |gates: Vec<Gate>, swap: Option<GateOverride>| UpgradeRecord {
        gates,
        swap: Some(Swap {
            version: "v1.36.3".to_owned(),
            overridden_by: swap,
            ..Swap::default()
        }),
        ..UpgradeRecord::default()
    };
    let used = |previous: Option<&UpgradeRecord>, next: &UpgradeRecord| {
        let used = newly_used(previous, next);
        used.map(|(gate, version, by)| format!("{} {version} {}", gate.as_str(), by.name))
            .collect::<Vec<_>>()
    };
    let one = record(vec![gate(Hook::AfterControlPlaneUpgrade, by("a"))], None);
    assert_eq!(used(None, &one), ["Workers v1.36.3 a"]);
    assert_eq!(used(Some(&one), &one), [""; 0]);
    let both = record(
        vec![
            gate(Hook::AfterControlPlaneUpgrade, by("a")),
            gate(Hook::BeforeWorkersUpgrade, by("a")),
        ],
        by("m"),
    );
    assert_eq!(used(Some(&one), &both), ["Machines v1.36.3 m"]);
    let other = record(vec![gate(Hook::BeforeWorkersUpgrade, by("b"))], by("m"));
    assert_eq!(used(Some(&both), &other), ["Workers v1.36.3 b"]);
    let proven = record(vec![gate(Hook::BeforeWorkersUpgrade, None)], None);
    assert_eq!(used(Some(&both), &proven), [""; 0]);
}

#[test]
fn only_gates_that_release_a_step_can_be_passed() {
    let passed: Vec<(Hook, OverriddenGate)> = Hook::ALL
        .into_iter()
        .filter_map(|hook| Some((hook, gate_of(hook)?)))
        .collect();
    assert_eq!(
        passed,
        [
            (Hook::BeforeClusterUpgrade, OverriddenGate::ControlPlane),
            (Hook::BeforeControlPlaneUpgrade, OverriddenGate::ControlPlane),
            (Hook::AfterControlPlaneUpgrade, OverriddenGate::Workers),
            (Hook::BeforeWorkersUpgrade, OverriddenGate::Workers),
        ]
    );
}

type Policy = ValidatingAdmissionPolicy;
type Binding = ValidatingAdmissionPolicyBinding;

/// The user of an override that was created at another time may be anybody.
#[rstest]
#[case::in_force(|_: &mut Policy, _: &mut Binding| {}, true)]
#[case::policy_is_too_young(|policy: &mut Policy, _: &mut Binding| policy.metadata.creation_timestamp = Some(Time(at(CREATED - 29))), false)]
#[case::binding_is_too_young(|_: &mut Policy, binding: &mut Binding| binding.metadata.creation_timestamp = Some(Time(at(CREATED - 29))), false)]
#[case::policy_is_deleted(|policy: &mut Policy, _: &mut Binding| policy.metadata.deletion_timestamp = Some(Time(at(CREATED + 1))), false)]
#[case::binding_is_deleted(|_: &mut Policy, binding: &mut Binding| binding.metadata.deletion_timestamp = Some(Time(at(CREATED + 1))), false)]
#[case::of_unknown_age(|policy: &mut Policy, _: &mut Binding| policy.metadata.creation_timestamp = None, false)]
#[case::only_warns(|_: &mut Policy, binding: &mut Binding| binding.spec.as_mut().unwrap().validation_actions = Some(vec!["Warn".into()]), false)]
#[case::of_another_policy(|_: &mut Policy, binding: &mut Binding| binding.spec.as_mut().unwrap().policy_name = Some("sluice-gates".into()), false)]
fn the_policy_is_in_force_at_the_creation(
    #[case] edit: fn(&mut Policy, &mut Binding),
    #[case] expected: bool,
) {
    let mut policy = ValidatingAdmissionPolicy::default();
    policy.metadata.creation_timestamp = Some(Time(at(CREATED - 30)));
    let mut binding = ValidatingAdmissionPolicyBinding {
        metadata: policy.metadata.clone(),
        ..ValidatingAdmissionPolicyBinding::default()
    };
    let spec = binding.spec.get_or_insert_default();
    spec.policy_name = Some(POLICY.to_owned());
    spec.validation_actions = Some(vec!["Deny".to_owned(), "Audit".to_owned()]);
    edit(&mut policy, &mut binding);
    assert_eq!(is_enforced(&given(), enforced_since(&policy, &binding)), expected);
}
