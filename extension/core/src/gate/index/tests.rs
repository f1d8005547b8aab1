mod by_gates;
mod confirmation;

use jiff::Timestamp;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::{ClusterClass, cluster::ClassRef},
    labels::annotation,
};

use super::*;
use crate::gate::retry::RetryAfter;
use crate::{
    cache::stores::{
        Stored,
        tests::{Filling, Given, object, undecodable},
    },
    cluster::ClusterRef,
    gate::{hook_call::Hook, stuck::STUCK_AFTER},
    reasons::{CallReason, GateReason, HoldReason},
};

const LABEL: &str = "v1.35.4---sluice.1";
const SYSTEM: &str = "tkg-system";

/// A Cluster of a release that has its template.
fn given() -> Given {
    let spec = json!({"spec": {"version": "v1.35.4+sluice.1", "kubernetes": {"version": "v1.35.4"}}});
    Given {
        clusters: vec![object(
            Some("team-a"),
            "one",
            &json!({label::TKR: LABEL}),
            &json!({"spec": {}}),
        )],
        releases: vec![object(None, LABEL, &json!({}), &spec)],
        templates: vec![object(Some(SYSTEM), LABEL, &json!({}), &json!({"spec": {}}))],
        ..Given::default()
    }
}

/// Its ClusterBootstrap, with a record in which the gate is open.
fn bootstrap(outcome: &Value) -> Arc<ClusterBootstrap> {
    let gate = json!({"hook": "BeforeClusterUpgrade", "version": "v1.35.4", "open": true});
    let record = json!({
        "schema": sluice_crds::run::SCHEMA, "clusterUID": "uid", "label": LABEL, "to": "v1.35.4", "outcome": outcome,
        "observedClusterGeneration": 1, "observedBootstrapGeneration": 1, "gates": [gate],
    });
    let rest = json!({"spec": {}, "status": {"upgrade": record}});
    object(Some("team-a"), "one", &json!({}), &rest)
}

fn legacy() -> Arc<TanzuKubernetesRelease> {
    let mut release = given().releases.remove(0);
    Arc::make_mut(&mut release)
        .labels_mut()
        .insert(label::LEGACY_TKR.to_owned(), String::new());
    release
}

fn custom(mut given: Given) -> Given {
    let custom = (annotation::CUSTOM_CLUSTER_BOOTSTRAP.to_owned(), String::new());
    Arc::make_mut(&mut given.clusters[0])
        .annotations_mut()
        .extend([custom]);
    given
}

fn index(stores: &Given) -> Index<'_, Given, impl Fn(&str) -> Option<Hold>> {
    Index {
        stores,
        system_namespace: SYSTEM,
        hold_unresolved: true,
        note: |uid: &str| (uid == "noted").then(|| Hold::new(GateReason::PackageNotFound, "antrea")),
    }
}

fn call() -> HookCall<'static> {
    HookCall {
        hook: Hook::BeforeClusterUpgrade,
        namespace: "team-a",
        name: "one",
        uid: "uid",
        generation: 1,
        label: Some(LABEL),
        labels: None,
        version: "v1.35.4",
        first_step: Some("v1.35.4"),
        deleted_at: None,
        now: None,
        clock: None,
    }
}

fn reason(stores: &Given, call: &HookCall<'_>, leaderless: bool) -> Option<HoldReason> {
    let pace = Pace::of(call.uid, &Counted::default(), 600, Duration::ZERO);
    match index(stores).decide(call, &pace, leaderless) {
        Decision::Release => None,
        Decision::Hold { reason, .. } => Some(reason),
    }
}

#[test]
fn a_cached_record_releases() {
    let with = Given {
        bootstraps: vec![bootstrap(&Value::Null)],
        ..given()
    };
    assert_eq!(reason(&with, &call(), false), None);
    assert_eq!(
        reason(&with, &call(), true),
        Some(HoldReason::Call(CallReason::NoLeader))
    );
    let another = HookCall {
        namespace: "team-b",
        ..call()
    };
    assert_eq!(
        reason(&with, &another, false),
        Some(HoldReason::Call(CallReason::RecordNotFound))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// The cause of a held gate is for users alone, whatever it is.
    #[test]
    fn no_decision_depends_on_a_cause(
        open in any::<bool>(), leaderless in any::<bool>(), name in ".{0,20}", evidence in ".{0,40}",
    ) {
        let decide = |cause: &Value| {
            let reason_of_gate = if open { "" } else { "PackagesNotReady" };
            let gate = json!({
                "hook": "BeforeClusterUpgrade", "version": "v1.35.4", "open": open, "reason": reason_of_gate,
            });
            let mut shown = json!({"spec": {}, "status": {
                "held": {
                    "hook": "BeforeClusterUpgrade", "version": "v1.35.4", "since": "2026-11-26T10:02:11Z", "cause": cause,
                },
                "upgrade": {
                    "schema": sluice_crds::run::SCHEMA, "clusterUID": "uid", "label": LABEL, "to": "v1.35.4",
                    "observedClusterGeneration": 1, "observedBootstrapGeneration": 1, "gates": [gate],
                },
            }});
            if cause.is_null() {
                shown["status"]["held"].take();
            }
            let with = Given {
                bootstraps: vec![object(Some("team-a"), "one", &json!({}), &shown)],
                ..given()
            };
            Hook::ALL.map(|hook| reason(&with, &HookCall { hook, ..call() }, leaderless))
        };
        let cause = json!({"name": name, "object": name, "evidence": evidence});
        prop_assert_eq!(decide(&cause), decide(&Value::Null));
    }
}

#[rstest]
#[case::nothing(given(), "uid", HoldReason::Call(CallReason::RecordNotFound))]
#[case::its_release(Given { releases: Vec::new(), ..given() }, "uid", HoldReason::Gate(GateReason::TKRNotFound))]
#[case::its_template(Given { templates: Vec::new(), ..given() }, "uid", HoldReason::Gate(GateReason::TemplateNotFound))]
#[case::what_is_noted(given(), "noted", HoldReason::Gate(GateReason::PackageNotFound))]
fn the_cause_of_a_missing_record_is_reported(
    #[case] given: Given,
    #[case] uid: &'static str,
    #[case] missing: HoldReason,
) {
    assert_eq!(reason(&given, &HookCall { uid, ..call() }, false), Some(missing));
}

#[rstest]
#[case::its_cluster("Cluster", Some("team-a"), "one")]
#[case::its_bootstrap("ClusterBootstrap", Some("team-a"), "one")]
#[case::its_release("TanzuKubernetesRelease", None, LABEL)]
fn an_object_that_cannot_be_decoded_holds_its_own_cluster(
    #[case] kind: &str,
    #[case] namespace: Option<&str>,
    #[case] name: &str,
) {
    let with = |namespace, name| Given {
        bootstraps: vec![bootstrap(&Value::Null)],
        undecodable: vec![undecodable(kind, namespace, name, &json!({}))],
        ..given()
    };
    let held = Some(HoldReason::Gate(GateReason::ObjectUndecodable));
    assert_eq!(reason(&with(namespace, name), &call(), false), held);
    assert_eq!(reason(&with(namespace, "other"), &call(), false), None);
    let elsewhere = namespace.map(|_| "team-b").or(Some("team-a"));
    assert_eq!(reason(&with(elsewhere, name), &call(), false), None);
}

#[test]
fn a_deletion_needs_no_release() {
    let mut odd = Given {
        releases: Vec::new(),
        bootstraps: vec![bootstrap(&Value::Null)],
        undecodable: vec![undecodable("TanzuKubernetesRelease", None, LABEL, &json!({}))],
        ..given()
    };
    let status = Arc::make_mut(&mut odd.bootstraps[0]).status.as_mut().unwrap();
    status.upgrade.as_mut().unwrap().gates[0].hook = Hook::BeforeClusterDelete;
    let deleted = HookCall {
        hook: Hook::BeforeClusterDelete,
        ..call()
    };
    assert_eq!(reason(&odd, &deleted, false), None);
}

#[rstest]
#[case::its_cluster("Cluster", true)]
#[case::its_bootstrap("ClusterBootstrap", true)]
#[case::another_kind("ClusterClass", false)]
fn holds_of_undecodable_objects_are_counted(#[case] kind: &str, #[case] counts: bool) {
    let labels = json!({label::TKR: LABEL});
    let odd = |name| Given {
        clusters: if kind == "Cluster" {
            Vec::new()
        } else {
            given().clusters
        },
        undecodable: vec![undecodable(kind, Some("team-a"), name, &labels)],
        ..given()
    };
    let held = |given: &Given| index(given).held("team-a", "one").map(|held| held.uid);
    assert_eq!(held(&odd("one")), counts.then(|| "uid".to_owned()));
    assert_eq!(held(&odd("other")), None);
}

#[test]
fn a_release_that_cannot_be_decoded_may_be_legacy() {
    let legacy = undecodable(
        "TanzuKubernetesRelease",
        None,
        LABEL,
        &json!({label::LEGACY_TKR: ""}),
    );
    let with = Given {
        releases: Vec::new(),
        undecodable: vec![legacy],
        ..given()
    };
    assert_eq!(reason(&with, &call(), false), None);
}

#[test]
fn clusters_that_are_left_alone_are_released() {
    let of_legacy = Given {
        releases: vec![legacy()],
        ..given()
    };
    assert_eq!(reason(&of_legacy, &call(), false), None);
    let created = HookCall {
        hook: Hook::BeforeClusterCreate,
        ..call()
    };
    assert_eq!(
        reason(&given(), &created, false),
        Some(HoldReason::Call(CallReason::RecordNotFound))
    );
    assert_eq!(reason(&custom(given()), &created, false), None);
}

const STARTING: Option<HoldReason> = Some(HoldReason::Call(CallReason::Starting));
const UNAVAILABLE: Option<HoldReason> = Some(HoldReason::Gate(GateReason::APIUnavailable));

/// Decisions of the call if one kind was never listed, by kind.
fn without_each_kind(
    given: impl Fn() -> Given,
    call: &HookCall<'_>,
) -> impl Iterator<Item = (StoredKind, Option<HoldReason>)> {
    StoredKind::ALL.into_iter().map(move |kind| {
        let unlisted = vec![kind];
        (kind, reason(&Given { unlisted, ..given() }, call, false))
    })
}

#[rstest]
#[case::unlabelled(None, Hook::BeforeWorkersUpgrade, &[])]
#[case::unlabelled_that_may_ask(None, Hook::BeforeClusterUpgrade, &[StoredKind::Cluster, StoredKind::ClusterClass])]
#[case::of_a_legacy_release(Some(LABEL), Hook::BeforeClusterUpgrade, &[StoredKind::TanzuKubernetesRelease])]
#[case::that_is_deleted(None, Hook::BeforeClusterDelete, &[])]
#[case::labelled_that_is_deleted(Some(LABEL), Hook::BeforeClusterDelete, &[])]
fn an_unmanaged_cluster_waits_only_for_the_kinds_that_show_it(
    #[case] label: Option<&'static str>,
    #[case] hook: Hook,
    #[case] needs: &[StoredKind],
) {
    let call = HookCall {
        hook,
        label,
        ..call()
    };
    let given = || Given {
        releases: vec![legacy()],
        ..changed(given(), |cluster| cluster.metadata.labels = None)
    };
    assert_eq!(reason(&given(), &call, false), None);
    for (kind, answer) in without_each_kind(given, &call) {
        let is_needed = kind == StoredKind::ClusterBootstrap || needs.contains(&kind);
        let expected = if is_needed { STARTING } else { None };
        assert_eq!(answer, expected, "{kind:?}");
    }
}

#[rstest]
#[case::in_an_upgrade(Hook::BeforeClusterUpgrade, UNAVAILABLE)]
#[case::that_was_uninstalled(Hook::BeforeClusterDelete, None)]
fn a_managed_cluster_waits_for_every_kind(#[case] hook: Hook, #[case] unlisted: Option<HoldReason>) {
    let mut recorded = bootstrap(&Value::Null);
    let status = Arc::make_mut(&mut recorded).status.as_mut().unwrap();
    status.upgrade.as_mut().unwrap().gates[0].hook = hook;
    let with_record = || Given {
        bootstraps: vec![Arc::clone(&recorded)],
        ..given()
    };
    let call = HookCall { hook, ..call() };
    assert_eq!(reason(&with_record(), &call, false), None);
    for (kind, answer) in without_each_kind(with_record, &call) {
        let unlisted = if kind == StoredKind::ClusterBootstrap {
            STARTING
        } else {
            unlisted
        };
        assert_eq!(answer, unlisted, "{kind:?}");
    }
}

/// A managed Cluster that looks unmanaged.
#[test]
fn a_lookup_before_the_list_releases_nothing() {
    let filling = Filling::with(Given {
        bootstraps: vec![bootstrap(&Value::Null)],
        ..given()
    });
    let index = Index {
        stores: &filling,
        system_namespace: SYSTEM,
        hold_unresolved: true,
        note: |_: &str| None,
    };
    let call = HookCall {
        hook: Hook::BeforeWorkersUpgrade,
        label: None,
        ..call()
    };
    let pace = Pace::of(call.uid, &Counted::default(), 600, Duration::ZERO);
    let decision = index.decide(&call, &pace, false);
    assert!(
        matches!(decision, Decision::Hold { reason, .. } if Some(reason) == STARTING),
        "{decision:?}"
    );
}

/// Whether each Cluster that is held has a record.
fn held(given: &Given) -> Vec<bool> {
    let held = given
        .clusters
        .iter()
        .filter_map(|_| index(given).held("team-a", "one"));
    held.map(|held| held.recorded).collect()
}

#[test]
fn clusters_are_held_by_records_and_missing_objects() {
    let with = |outcome: Value| Given {
        bootstraps: vec![bootstrap(&outcome)],
        ..given()
    };
    let without_release = || Given {
        releases: Vec::new(),
        ..given()
    };
    assert_eq!(held(&with(Value::Null)), [true]);
    assert_eq!(held(&with(json!("Completed"))), [false; 0], "its upgrade is over");
    assert_eq!(held(&given()), [false; 0], "the first count is pending");
    assert_eq!(held(&without_release()), [false]);
    let unlisted = |given| Given {
        unlisted: vec![StoredKind::App],
        ..given
    };
    assert_eq!(held(&unlisted(given())), [false]);
    assert_eq!(held(&unlisted(with(Value::Null))), [true]);
    assert_eq!(held(&custom(without_release())), [false; 0]);
    let of_legacy = Given {
        releases: vec![legacy()],
        templates: Vec::new(),
        ..given()
    };
    assert_eq!(held(&of_legacy), [false; 0]);
}

#[test]
fn a_cluster_without_progress_is_asked_rarely() {
    let given = Given {
        releases: Vec::new(),
        ..given()
    };
    let mut counting = Counting::default();
    let later = STUCK_AFTER * 12;
    for now in [Duration::ZERO, later] {
        let mut changed = Uncounted::default();
        changed.one(ClusterRef::new("team-a", "one"));
        counting.count(now, changed, Vec::new, |cluster| {
            index(&given).hold_snapshot(cluster.namespace(), cluster.name())
        });
    }
    let counted = counting.counted(later);
    let wait = |given: &Given| {
        let pace = Pace::of("uid", &counted, 600, later);
        match index(given).decide(&call(), &pace, false) {
            Decision::Hold { retry_after, .. } => retry_after.seconds(),
            Decision::Release => panic!("released"),
        }
    };
    assert!(wait(&given) > 200, "{} s", wait(&given));
    let moved = Given {
        templates: Vec::new(),
        ..self::given()
    };
    assert_eq!(wait(&moved), 1, "it waits for something else");
}

/// A Cluster without a label and without a ClusterBootstrap, and its class.
fn unresolved(own: bool, of_class: bool) -> Given {
    let annotated = |asks: bool| {
        let key = annotation::RESOLVE_TKR.to_owned();
        asks.then(|| (key, String::new())).into_iter()
    };
    let topology = json!({"spec": {"topology": {"classRef": {"name": "class"}, "version": "v1.35.4"}}});
    let mut cluster: Arc<Cluster> = object(Some("team-a"), "one", &json!({}), &topology);
    Arc::make_mut(&mut cluster)
        .annotations_mut()
        .extend(annotated(own));
    let mut class: Arc<ClusterClass> = object(Some("team-a"), "class", &json!({}), &json!({"spec": {}}));
    Arc::make_mut(&mut class)
        .annotations_mut()
        .extend(annotated(of_class));
    Given {
        clusters: vec![cluster],
        classes: vec![class],
        ..given()
    }
}

fn changed(mut given: Given, change: impl FnOnce(&mut Cluster)) -> Given {
    change(Arc::make_mut(&mut given.clusters[0]));
    given
}

/// A Cluster that cannot be decoded, whose class can be read or not.
fn undecodable_cluster(mut given: Given, class: Option<&str>) -> Given {
    given.clusters.clear();
    let mut cluster = undecodable("Cluster", Some("team-a"), "one", &json!({}));
    let changed = Arc::make_mut(&mut cluster);
    changed.metadata.generation = Some(1);
    changed.class = class.map(|name| ClassRef {
        name: name.to_owned(),
        namespace: None,
    });
    given.undecodable.push(cluster);
    given
}

/// The class, which cannot be decoded.
fn undecodable_class(mut given: Given, asks: bool) -> Given {
    given.classes.clear();
    let mut class = undecodable("ClusterClass", Some("team-a"), "class", &json!({}));
    let annotations = asks.then(|| (annotation::RESOLVE_TKR.to_owned(), String::new()));
    Arc::make_mut(&mut class).metadata.annotations = Some(annotations.into_iter().collect());
    given.undecodable.push(class);
    given
}

const NOT_RESOLVED: Option<HoldReason> = Some(HoldReason::Gate(GateReason::TKRNotResolved));
const UNDECODABLE: Option<HoldReason> = Some(HoldReason::Gate(GateReason::ObjectUndecodable));
const NOT_SEEN: Option<HoldReason> = Some(HoldReason::Call(CallReason::ClusterNotObserved));

#[rstest]
#[case::class_asks(unresolved(false, true), NOT_RESOLVED)]
#[case::cluster_asks(unresolved(true, false), NOT_RESOLVED)]
#[case::neither_asks(unresolved(false, false), None)]
#[case::deleting(changed(unresolved(true, true), |cluster| cluster.metadata.deletion_timestamp = Some(
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH)
)), None)]
#[case::without_topology(changed(unresolved(true, true), |cluster| cluster.spec.topology = None), None)]
#[case::has_a_bootstrap(Given { bootstraps: vec![bootstrap(&Value::Null)], ..unresolved(true, true) }, None)]
#[case::cluster_not_seen(Given { clusters: Vec::new(), ..unresolved(false, true) }, NOT_SEEN)]
#[case::cluster_of_another_uid(changed(unresolved(false, false), |cluster| cluster.metadata.uid = None), NOT_SEEN)]
#[case::class_not_seen(Given { classes: Vec::new(), ..unresolved(false, true) }, NOT_SEEN)]
#[case::undecodable_class(undecodable_class(unresolved(false, true), true), UNDECODABLE)]
#[case::undecodable_class_that_asks_for_nothing(undecodable_class(unresolved(false, true), false), None)]
#[case::undecodable_cluster(undecodable_cluster(unresolved(false, true), Some("class")), UNDECODABLE)]
#[case::undecodable_cluster_of_another_class(
    undecodable_cluster(unresolved(false, false), Some("class")),
    None
)]
#[case::undecodable_cluster_of_a_class_that_is_not_seen(
    undecodable_cluster(unresolved(false, false), Some("other")),
    UNDECODABLE
)]
#[case::undecodable_cluster_of_no_class_that_can_be_read(
    undecodable_cluster(unresolved(false, false), None),
    UNDECODABLE
)]
#[case::both_undecodable(
    undecodable_class(undecodable_cluster(unresolved(false, false), Some("class")), true),
    UNDECODABLE
)]
fn a_cluster_that_was_not_resolved_is_held(#[case] given: Given, #[case] held: Option<HoldReason>) {
    let unresolved = |given: &Given, call: &HookCall<'_>| {
        let reason = reason(given, call, false);
        reason.filter(|_| [NOT_RESOLVED, UNDECODABLE, NOT_SEEN].contains(&reason))
    };
    for hook in Hook::ALL {
        let call = HookCall {
            hook,
            label: None,
            ..call()
        };
        let expected = held.filter(|_| requires_resolution(hook));
        assert_eq!(unresolved(&given, &call), expected, "{hook}");
        let labelled = HookCall { hook, ..self::call() };
        assert_ne!(unresolved(&given, &labelled), NOT_RESOLVED, "{hook} with a label");
    }
    let seen = given
        .clusters
        .iter()
        .filter(|cluster| cluster.metadata.uid.is_some());
    let is_there =
        seen.count() > 0 || Stored::<Cluster>::undecodable(&given, Some("team-a"), "one").is_some();
    if is_there && given.bootstraps.is_empty() {
        let waits = held.is_some_and(|reason| !reason.is_passing());
        assert_eq!(index(&given).held("team-a", "one").is_some(), waits);
    }
    let off = Index {
        hold_unresolved: false,
        ..index(&given)
    };
    let call = HookCall {
        label: None,
        hook: Hook::BeforeClusterCreate,
        ..call()
    };
    let pace = Pace::of("uid", &Counted::default(), 600, Duration::ZERO);
    if given.bootstraps.is_empty() {
        assert_eq!(off.decide(&call, &pace, false), Decision::Release);
    }
}

/// Only the watch lags, and Sluice may not manage the Cluster: the number of other held Clusters does not matter.
#[rstest]
#[case::never(Given { clusters: Vec::new(), ..unresolved(false, false) }, 1)]
#[case::before_an_edit(unresolved(false, false), 2)]
#[case::its_class(Given { classes: Vec::new(), ..unresolved(false, false) }, 1)]
fn a_cluster_that_was_not_seen_is_held_for_a_second(#[case] given: Given, #[case] generation: i64) {
    let call = HookCall {
        label: None,
        generation,
        ..call()
    };
    let many = Counted {
        moving: 2_000,
        ..Counted::default()
    };
    let pace = Pace::of("uid", &many, 600, Duration::ZERO);
    let Decision::Hold { retry_after, .. } = index(&given).decide(&call, &pace, false) else {
        panic!("it is released");
    };
    assert_eq!(retry_after, RetryAfter::SHORTEST);
    let held = index(&given).held("team-a", "one");
    assert!(held.is_none(), "it is none of those that are held");
}

/// An annotation that exists already is no remedy: setting it again calls no webhook.
#[rstest]
#[case::of_the_class(unresolved(false, true), "set that annotation on the Cluster, or the label")]
#[case::of_the_cluster(unresolved(true, false), "names one; set that label")]
fn the_way_out_of_a_missed_resolution(#[case] given: Given, #[case] says: &str) {
    let call = HookCall {
        label: None,
        ..call()
    };
    let pace = Pace::of("uid", &Counted::default(), 600, Duration::ZERO);
    let Decision::Hold { message, .. } = index(&given).decide(&call, &pace, false) else {
        panic!("it is released");
    };
    assert!(message.ends_with(says), "{message}");
}

/// Cluster API calls hooks neither for a paused Cluster nor for one without a topology, so such a cache is older than the call.
#[rstest]
#[case::paused(unresolved(false, true), |cluster: &mut Cluster| cluster.spec.paused = true)]
#[case::paused_by_annotation(unresolved(false, true), |cluster: &mut Cluster| {
    cluster.annotations_mut().insert(annotation::PAUSED.to_owned(), String::new());
})]
#[case::as_it_is(unresolved(false, true), |_: &mut Cluster| {})]
fn a_cached_pause_releases_nothing(#[case] given: Given, #[case] change: fn(&mut Cluster)) {
    let given = changed(given, change);
    let call = HookCall {
        hook: Hook::BeforeClusterCreate,
        label: None,
        ..call()
    };
    assert_eq!(reason(&given, &call, false), NOT_RESOLVED);
    let is_stopped = crate::cluster::is_stopped(&given.clusters[0]);
    let held = index(&given).held("team-a", "one");
    assert_eq!(
        held.is_none(),
        is_stopped,
        "a pause that lasts is no hold: nothing is asked"
    );
}

/// One update may take a Cluster out of its pause, give it a topology or another class, and change its version.
#[rstest]
#[case::of_another_class(unresolved(false, false))]
#[case::without_topology(changed(unresolved(false, true), |cluster| cluster.spec.topology = None))]
#[case::undecodable(undecodable_cluster(unresolved(false, false), Some("class")))]
fn a_cache_older_than_the_call_releases_nothing(#[case] given: Given) {
    for hook in [Hook::BeforeClusterCreate, Hook::BeforeClusterUpgrade] {
        let call = |generation| HookCall {
            hook,
            label: None,
            generation,
            ..call()
        };
        assert_eq!(reason(&given, &call(2), false), NOT_SEEN);
        assert_eq!(reason(&given, &call(1), false), None);
    }
}
